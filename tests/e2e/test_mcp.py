"""MCP servers over the wire: their tools, starts and deaths, and that no process is left."""

import json
import os
import re
import signal
import sys
from collections.abc import Callable, Generator
from pathlib import Path

import pytest
import trio

from e2e.gates import Gate
from e2e.words import always, bash, calls, calls_in, text
from support import mcp_server, tiny_mcp
from support.daemon import CONFIG, Daemon, gone
from support.frontend import Frontend
from tiller_daemon.models.scripted import CallPart
from tiller_protocol.answers import CatalogResult
from tiller_protocol.catalog import ServerSummary
from tiller_protocol.events import (
    Event,
    ItemCompleted,
    ItemDelta,
    RequestResolved,
    ToolCallUpdated,
    TurnStarted,
    WarningRaised,
)
from tiller_protocol.ids import ItemId
from tiller_protocol.items import ToolCall
from tiller_protocol.ops import Answer, Catalog, Interrupt
from tiller_protocol.settings import Rule, TurnOverrides

AT_ONCE_S = 1.0
"""Seconds that an interrupt may take, whatever a server does."""


def server(name: str, script: str | None, *modes: str, more: str = "") -> str:
    """Return the configuration of a server that is a Python script."""
    command = [sys.executable, "-SEs", script, *modes]
    if script == mcp_server.__file__:
        command.remove("-SEs")
    return f"[mcp.{name}]\ncommand = {command}\n{more}\n"


TINY = server("tiny", tiny_mcp.__file__)
BENCH = server("bench", mcp_server.__file__, more='env_vars = ["PASSED_TOKEN"]')
BAD = server("bad", tiny_mcp.__file__, "refuse")


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Generator[Daemon]:
    daemon = Daemon(tmp_path_factory.mktemp("d"), CONFIG + TINY + BENCH + BAD)
    daemon.start(PASSED_TOKEN="token-of-mine", OPENAI_API_KEY="sk-of-a-provider")
    yield daemon
    daemon.close()


def bench(tool: str, call_id: str = "", **arguments: object) -> CallPart:
    """Return a tool call to the server that is made with the MCP package."""
    return CallPart(f"mcp__bench__{tool}", arguments=arguments, call_id=call_id)


def tiny(tool: str, call_id: str = "", **arguments: object) -> CallPart:
    """Return a tool call to the server that is written by hand."""
    return CallPart(f"mcp__tiny__{tool}", arguments=arguments, call_id=call_id)


def course(events: list[Event]) -> list[tuple[str, str]]:
    """Return each call's provider id and final state, in order."""
    ids = {
        event.body.item.id: event.body.item.call_id
        for event in events
        if isinstance(event.body, ItemCompleted) and isinstance(event.body.item, ToolCall)
    }
    updates = [event.body for event in events if isinstance(event.body, ToolCallUpdated)]
    return [(ids[ItemId(update.item_id)], update.state) for update in updates]


def live_output(frontend: Frontend, session_id: str) -> str:
    """Return the output of calls while they ran."""
    found = [event.body for event in frontend.events(session_id)]
    deltas = [body for body in found if isinstance(body, ItemDelta)]
    return "".join(body.delta for body in deltas if body.channel == "output")


def warnings(frontend: Frontend, session_id: str) -> list[str]:
    found = [event.body for event in frontend.events(session_id)]
    return [body.message for body in found if isinstance(body, WarningRaised)]


@pytest.mark.promise("B35")
@pytest.mark.nightly
async def test_tools_that_only_read_run_beside_each_other_and_others_alone(
    frontend: Frontend, workspace: Path
) -> None:
    """A tool with readOnlyHint runs in parallel; one without runs alone."""
    gates = [Gate(workspace, name) for name in "1234"]
    one, two, three, four = gates
    session_id = await frontend.session(
        workspace,
        calls(
            *(
                bench(tool, str(number), gate=str(gates[number].path))
                for number, tool in enumerate(("look", "look", "change", "look"))
            )
        ),
        text("done"),
    )
    await frontend.say(session_id)
    await one.reached()
    await two.reached()
    two.open("second")
    one.open("first")
    await three.pass_one("third")
    await four.pass_one("fourth")
    assert (await frontend.turn_ended(session_id)).outcome == "completed"
    found = calls_in(frontend.requests(session_id)[1].items)
    assert [call.output for call in found] == ["first", "second", "third", "fourth"]
    assert [call.effect for call in found] == ["read", "read", "write", "read"]
    order = course(frontend.events(session_id))
    alone = order.index(("2", "running"))
    assert {("0", "completed"), ("1", "completed")} <= set(order[:alone])
    after = [("2", "running"), ("2", "completed"), ("3", "running"), ("3", "completed")]
    assert order[alone:] == after


@pytest.mark.promise("B35")
@pytest.mark.nightly
async def test_a_server_that_dies_in_mid_call_yields_an_error_and_is_started_again(
    frontend: Frontend, workspace: Path
) -> None:
    """A server that dies in mid-call yields an error result and is restarted for the next call."""
    session_id = await frontend.session(
        workspace,
        calls(bench("pid"), bench("die", status=7)),
        calls(bench("pid"), bench("pid")),
        text("done"),
    )
    await frontend.say(session_id)
    assert (await frontend.turn_ended(session_id)).outcome == "completed"
    before, died, after, again = calls_in(frontend.requests(session_id)[-1].items)
    assert (died.state, died.error_kind) == ("error", "failed")
    assert "bench was lost during the call. It ended with status 7" in died.output
    assert "about to die" in died.output
    assert "The next call connects again." in died.output
    assert before.output != after.output == again.output


@pytest.mark.nightly
async def test_servers_are_shared_by_sessions(frontend: Frontend, workspace: Path) -> None:
    pids: set[str] = set()
    for _ in range(2):
        session_id = await frontend.session(workspace, calls(tiny("pid")), text("done"))
        await frontend.say(session_id)
        await frontend.turn_ended(session_id)
        pids |= {call.output for call in frontend.completed_calls(session_id)}
    assert len(pids) == 1


async def test_a_turn_is_offered_the_tools_and_a_bad_server_is_a_warning_once(
    frontend: Frontend, workspace: Path
) -> None:
    session_id = await frontend.session(workspace, always("hello"))
    await frontend.say(session_id)
    assert (await frontend.turn_ended(session_id)).outcome == "completed"
    await frontend.say(session_id)
    await frontend.turn_ended(session_id, 2)
    (warning,) = warnings(frontend, session_id)
    assert "MCP server bad can't be used. It ended with status 1" in warning
    assert "no configuration found" in warning
    offered = {tool.name: tool for tool in frontend.requests(session_id)[0].tools}
    echo = offered["mcp__tiny__echo"]
    assert echo.description == "Says it again."
    assert echo.parameters["properties"] == {"text": {"type": "string"}}
    assert "mcp__bench__look" in offered
    assert "bash" in offered
    catalog = await frontend.must(Catalog())
    assert isinstance(catalog, CatalogResult)
    found = {one.name: one for one in catalog.servers}
    assert found["tiny"].state == found["bench"].state == "up"
    assert (found["bad"].state, found["bad"].tools) == ("failed", 0)
    (listed,) = [tool for tool in catalog.tools if tool.name == "mcp__tiny__echo"]
    assert (listed.server, listed.effect) == ("tiny", "read")


@pytest.mark.promise("G6")
async def test_a_turn_keeps_the_tools_that_it_began_with(
    frontend: Frontend, workspace: Path
) -> None:
    session_id = await frontend.session(
        workspace,
        calls(tiny("grow", text="fresh")),
        calls(bash("sleep 0.5")),
        calls(tiny("fresh")),
        text("done"),
        calls(tiny("fresh")),
        text("done"),
    )
    await frontend.say(session_id)
    await frontend.turn_ended(session_id)
    for request in frontend.requests(session_id):
        assert "mcp__tiny__fresh" not in {tool.name for tool in request.tools}
    await frontend.say(session_id)
    await frontend.turn_ended(session_id, 2)
    assert "mcp__tiny__fresh" in {tool.name for tool in frontend.requests(session_id)[-1].tools}
    _, _, unknown, known = frontend.completed_calls(session_id)
    assert (unknown.error_kind, known.output) == ("invalid", "I am fresh")
    started = [e.body for e in frontend.events(session_id) if isinstance(e.body, TurnStarted)]
    assert ["mcp__tiny__fresh" in one.context.tools for one in started] == [False, True]


async def test_arguments_are_held_against_the_servers_schema(
    frontend: Frontend, workspace: Path
) -> None:
    """B6 for MCP tools: an error result that names the field, and the tool does not run."""
    session_id = await frontend.session(
        workspace, calls(tiny("echo", text=5), tiny("echo"), tiny("echo", text="x")), text("done")
    )
    await frontend.say(session_id)
    await frontend.turn_ended(session_id)
    wrong, missing, right = calls_in(frontend.requests(session_id)[1].items)
    assert wrong.error_kind == missing.error_kind == "invalid"
    assert "at $.text: 5 is not of type 'string'" in wrong.output
    assert "'text' is a required property" in missing.output
    assert right.output == "x"


async def test_a_call_is_asked_about_and_always_allows_that_tool(
    frontend: Frontend, workspace: Path
) -> None:
    session_id = await frontend.session(
        workspace,
        calls(tiny("echo", text="one")),
        calls(tiny("echo", text="two"), tiny("pid")),
        text("done"),
        approve="ask",
    )
    await frontend.say(session_id)
    request = await frontend.request_opened(session_id)
    assert (request.permission, request.subjects, request.always) == (
        "mcp",
        ("tiny/echo",),
        ("tiny/echo",),
    )
    assert request.title == "Call tiny/echo"
    assert '"text": "one"' in request.detail
    await frontend.must(Answer(request.id, "always"))
    other = await frontend.request_opened(session_id, 2)
    assert other.subjects == ("tiny/pid",)
    await frontend.must(Answer(other.id, "reject"))
    assert (await frontend.turn_ended(session_id)).outcome == "blocked"
    first, *both = frontend.completed_calls(session_id)
    assert first.output == "one"
    # The calls run in parallel and complete in any order.
    assert {(call.name, call.error_kind) for call in both} == {
        ("mcp__tiny__echo", None),
        ("mcp__tiny__pid", "denied"),
    }


async def test_a_rule_may_be_about_a_whole_server(frontend: Frontend, workspace: Path) -> None:
    rules = (Rule("mcp", "tiny/*", "allow"), Rule("mcp", "tiny/pid", "deny"))
    session_id = await frontend.session(
        workspace,
        calls(tiny("echo", text="fine"), tiny("pid"), bench("pid")),
        text("done"),
        approve="never",
        permissions=rules,
    )
    await frontend.say(session_id)
    await frontend.turn_ended(session_id)
    allowed, denied, unasked = calls_in(frontend.requests(session_id)[1].items)
    assert (allowed.output, denied.error_kind, unasked.error_kind) == ("fine", "denied", "denied")


async def test_an_agent_that_only_reads_is_offered_what_says_that_it_only_reads(
    frontend: Frontend, workspace: Path
) -> None:
    session_id = await frontend.session(workspace, always("hello"), agent="plan")
    await frontend.say(session_id)
    await frontend.turn_ended(session_id)
    offered = {tool.name for tool in frontend.requests(session_id)[0].tools}
    assert {"mcp__tiny__echo", "mcp__bench__look"} <= offered
    assert not {"mcp__tiny__grow", "mcp__bench__change"} & offered


async def test_tools_of_servers_are_chosen_by_patterns_and_one_that_is_not_there_is_no_error(
    frontend: Frontend, workspace: Path
) -> None:
    session_id = await frontend.session(workspace, always("hello"))
    chosen = TurnOverrides(tools=("read", "mcp__tiny__p*", "mcp__bad__*", "mcp__nowhere__x"))
    await frontend.say(session_id, overrides=chosen)
    await frontend.turn_ended(session_id)
    offered = [tool.name for tool in frontend.requests(session_id)[0].tools]
    assert offered == ["read", "mcp__tiny__pid"]


async def test_progress_is_live_output(frontend: Frontend, workspace: Path) -> None:
    session_id = await frontend.session(workspace, calls(bench("count", steps=4)), text("done"))
    await frontend.say(session_id)
    await frontend.turn_ended(session_id)
    lines = live_output(frontend, session_id).splitlines()
    assert lines == [f"[{step}/4] step {step}" for step in range(1, 5)]
    assert frontend.completed_calls(session_id)[0].output == "counted"


@pytest.mark.promise("B23")
async def test_an_interrupt_of_a_call_is_told_to_the_server_which_stays_usable(
    frontend: Frontend, workspace: Path
) -> None:
    note = workspace / "note"
    session_id = await frontend.session(
        workspace, calls(bench("hang", note=str(note))), calls(bench("pid")), text("done")
    )
    await frontend.say(session_id)
    await _noted(note, "began")
    with trio.fail_after(AT_ONCE_S):
        await frontend.must(Interrupt(session_id))
        assert (await frontend.turn_ended(session_id)).outcome == "interrupted"
    await _noted(note, "cancelled")
    await frontend.say(session_id)
    await frontend.turn_ended(session_id, 2)
    aborted, pid = frontend.completed_calls(session_id)
    assert (aborted.error_kind, pid.state) == ("aborted", "completed")


@pytest.mark.promise("G13")
async def test_a_server_gets_no_keys_but_those_it_was_given_and_they_are_not_told(
    frontend: Frontend, workspace: Path
) -> None:
    session_id = await frontend.session(workspace, calls(bench("environment")), text("done"))
    await frontend.say(session_id)
    await frontend.turn_ended(session_id)
    (call,) = frontend.completed_calls(session_id)
    names = {line.partition("=")[0] for line in call.output.splitlines()}
    assert {"PATH", "HOME", "TILLER_DAEMON", "PASSED_TOKEN"} <= names
    assert not {"OPENAI_API_KEY", "TILLER_CALL", "TILLER_HOME", "NOTIFY_SOCKET"} & names
    assert "PASSED_TOKEN=[secret]" in call.output
    everything = "".join(map(str, await frontend.log(session_id))) + frontend.daemon.said
    assert "token-of-mine" not in everything
    assert "sk-of-a-provider" not in everything


async def test_a_server_asks_the_user_field_by_field(frontend: Frontend, workspace: Path) -> None:
    session_id = await frontend.session(workspace, calls(bench("order")), text("done"))
    await frontend.say(session_id)
    for number, (label, choices, said) in enumerate(
        (
            ("Size", ("small", "large"), "large"),
            ("Amount", (), "4"),
            ("Gift", ("yes", "no"), "no"),
            ("Note (empty for )", (), "quick"),
        ),
        start=1,
    ):
        request = await frontend.request_opened(session_id, number)
        assert (request.kind, request.choices) == ("question", choices)
        assert request.detail == f"The MCP server bench asks: What shall it be?\n{label}"
        await frontend.must(Answer(request.id, "answer", said))
    await frontend.turn_ended(session_id)
    (call,) = frontend.completed_calls(session_id)
    assert call.output == "accept: size='large' amount=4 gift=False note='quick'"


@pytest.mark.parametrize("approve", ["never", "always"])
async def test_a_question_that_nobody_answers_is_declined(
    frontend: Frontend, workspace: Path, approve: str
) -> None:
    session_id = await frontend.session(
        workspace,
        calls(bench("sign_in")),
        text("done"),
        approve=approve,
        permissions=(Rule("mcp", "*", "allow"),),
    )
    await frontend.say(session_id)
    if approve == "always":
        request = await frontend.request_opened(session_id)
        assert "https://example.invalid/sign-in" in request.detail
        await frontend.must(Answer(request.id, "reject", "not now"))
    assert (await frontend.turn_ended(session_id)).outcome == "completed"
    (call,) = frontend.completed_calls(session_id)
    assert call.output == "decline"


async def test_a_question_is_taken_back_when_its_server_dies(
    frontend: Frontend, workspace: Path
) -> None:
    session_id = await frontend.session(
        workspace, calls(bench("pid"), bench("order")), text("done")
    )
    await frontend.say(session_id)
    request = await frontend.request_opened(session_id)
    await frontend.until(session_id, lambda _: bool(frontend.completed_calls(session_id)))
    pid = int(frontend.completed_calls(session_id)[0].output)
    os.kill(pid, signal.SIGKILL)
    ended = await frontend.turn_ended(session_id)
    assert (ended.outcome, ended.last_message) == ("completed", "done")
    resolved = (await frontend.until_body(session_id, RequestResolved)).body
    assert isinstance(resolved, RequestResolved)
    assert (resolved.request_id, resolved.resolution) == (request.id, "cancelled")
    late = await frontend.refused(Answer(request.id, "answer", "large"))
    assert late.code == "already_resolved"


async def test_an_interrupt_takes_a_servers_question_back(
    frontend: Frontend, workspace: Path
) -> None:
    session_id = await frontend.session(
        workspace, calls(bench("order")), calls(bench("pid")), text("done")
    )
    await frontend.say(session_id)
    await frontend.request_opened(session_id)
    await frontend.must(Interrupt(session_id))
    assert (await frontend.turn_ended(session_id)).outcome == "interrupted"
    resolved = (await frontend.until_body(session_id, RequestResolved)).body
    assert isinstance(resolved, RequestResolved)
    assert resolved.resolution == "cancelled"
    await frontend.say(session_id)
    assert (await frontend.turn_ended(session_id, 2)).outcome == "completed"


@pytest.mark.parametrize("how", ["SIGTERM", "kill -9"])
async def test_no_process_of_a_server_outlives_the_daemon(
    new_daemon: Callable[..., Daemon], nursery: trio.Nursery, workspace: Path, how: str
) -> None:
    """Nor do its children, even stubborn ones; a call that was running is closed."""
    daemon = new_daemon(CONFIG + TINY + BENCH.replace("env_vars", "env = {} #"))
    daemon.start()
    frontend = await Frontend.connect(daemon, nursery)
    note = workspace / "note"
    session_id = await frontend.session(
        workspace, calls(bench("fork"), bench("stall", note=str(note))), always("I see")
    )
    await frontend.say(session_id)
    await _noted(note, "began")
    await frontend.until(session_id, lambda _: bool(frontend.completed_calls(session_id)))
    pids = [int(pid) for pid in frontend.completed_calls(session_id)[0].output.split()]
    assert len(pids) == 3
    if how == "SIGTERM":
        assert await daemon.terminate() == 0
        assert [pid for pid in pids if not gone(pid)] == []
    else:
        daemon.kill9()
        assert [pid for pid in pids if not gone(pid, timeout_s=10)] == []
    daemon.start()
    await frontend.reconnect()
    await frontend.say(session_id, "and?")
    assert (await frontend.turn_ended(session_id, 2)).outcome == "completed"
    stalled = frontend.completed_calls(session_id)[-1]
    assert stalled.error_kind == ("aborted" if how == "SIGTERM" else "lost")
    await frontend.close()


async def test_a_slow_server_does_not_keep_a_turn_for_longer_than_it_may(
    new_daemon: Callable[..., Daemon], nursery: trio.Nursery, workspace: Path
) -> None:
    mute = server("mute", tiny_mcp.__file__, "mute", more="start_timeout_s = 0.5")
    daemon = new_daemon(CONFIG + mute + TINY)
    daemon.start()
    frontend = await Frontend.connect(daemon, nursery)
    session_id = await frontend.session(workspace, calls(tiny("echo", text="hi")), text("done"))
    await frontend.say(session_id)
    assert (await frontend.turn_ended(session_id)).outcome == "completed"
    (warning,) = warnings(frontend, session_id)
    assert "It was not ready after 0.5 s" in warning
    assert frontend.completed_calls(session_id)[0].output == "hi"
    catalog = await frontend.must(Catalog(start_servers=True))
    assert isinstance(catalog, CatalogResult)
    assert catalog.servers[1] == ServerSummary("tiny", "up", 11)
    await frontend.close()


async def _noted(note: Path, words: str) -> None:
    with trio.fail_after(30):
        while not (note.exists() and note.read_text() == words):  # noqa: ASYNC110, ASYNC240
            await trio.sleep(0.01)


async def test_an_image_of_a_server_reaches_the_model(frontend: Frontend, workspace: Path) -> None:
    session_id = await frontend.session(workspace, calls(bench("picture")), text("done"))
    await frontend.say(session_id)
    await frontend.turn_ended(session_id)
    (call,) = calls_in(frontend.requests(session_id)[1].items)
    assert call.output.startswith("a red one")
    (image,) = call.images
    assert (image.media_type, image.data[1:4]) == ("image/png", b"PNG")


async def test_the_command_line_says_which_tools_there_are_and_how_each_server_is(
    daemon: Daemon, frontend: Frontend
) -> None:
    status, said = await tiller(daemon, "tools")
    assert status == 0
    assert re.search(r"^mcp__tiny__echo +read", said, re.MULTILINE), said
    assert re.search(r"^mcp__bench__change +write", said, re.MULTILINE), said
    assert re.search(r"^tiny .*up", said, re.MULTILINE), said
    assert re.search(r"^bad .*failed", said, re.MULTILINE), said
    status, said = await tiller(daemon, "tools", "--json")
    listed = [json.loads(line) for line in said.splitlines()]
    assert {"name": "tiny", "state": "up"}.items() <= listed[-3].items()
    status, said = await tiller(daemon, "doctor")
    assert status == 1
    assert re.search(r"^ok    mcp +tiny: \d+ tools$", said, re.MULTILINE), said
    assert re.search(r"^ok    mcp +bench: \d+ tools$", said, re.MULTILINE), said
    assert re.search(r"^fail  mcp +bad can't be used\. \S+", said, re.MULTILINE), said


async def tiller(daemon: Daemon, *arguments: str) -> tuple[int, str]:
    """Run a verb; return its exit status and its output."""
    done = await trio.run_process(
        [sys.executable, "-m", "tiller_client", *arguments],
        capture_stdout=True,
        check=False,
        env=daemon.variables,
    )
    return done.returncode, done.stdout.decode()
