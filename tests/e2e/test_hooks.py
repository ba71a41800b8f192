"""Hooks over the wire: they refuse calls, add text for the model, fail, and delay no interrupt."""

import json
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
import trio

from e2e.words import always, bash, calls, calls_in, read, text, write
from support.daemon import CONFIG, Daemon, gone
from support.frontend import Frontend
from tiller_daemon.models.scripted import CallPart, ScriptStep, TextPart
from tiller_protocol.events import WarningRaised
from tiller_protocol.items import Notice, ToolCall
from tiller_protocol.ops import Answer, Interrupt

AT_ONCE_S = 1.0
"""Seconds that an interrupt may take, whatever a hook does."""

HOOKS = """
[[hooks]]
on = "tool_before"
tool = "bash"
name = "guard"
command = '''
told=$(cat)
case "$told" in
*forbidden*) echo "not that" >&2; exit 2;;
*careful*) echo '{"context": "be careful"}';;
*broken*) echo "out of order" >&2; exit 1;;
*slow*) echo $$ >hook.pid; trap "" TERM; sleep 100 & echo $! >>hook.pid; touch slow; wait; wait;;
esac
'''
timeout_s = 20

[[hooks]]
on = "tool_before"
tool = "ls"
name = "strict"
on_failure = "deny"
timeout_s = 0.3
command = "sleep 100"

[[hooks]]
on = "tool_before"
tool = "gl?b"
name = "blind"
command = ["/bin/sh", "-c", "exit 2"]

[[hooks]]
on = "tool_after"
tool = "write"
name = "format"
command = 'cat >after.json; echo formatted'

[[hooks]]
on = "request"
command = 'told=$(cat); printf "%s\\n" "$told" >>TRACES/requests'

[[hooks]]
on = "turn_start"
name = "door"
command = 'grep -q "let me not" && { echo "closed" >&2; exit 2; }; [ -e told ] && cat told; true'

[[hooks]]
on = "turn_end"
command = 'told=$(cat); printf "%s\\n" "$told" >>TRACES/ends'
"""


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("t")


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory, traces: Path) -> Generator[Daemon]:
    config = CONFIG + HOOKS.replace("TRACES", str(traces))
    with Daemon(tmp_path_factory.mktemp("d"), config) as daemon:
        yield daemon


def told(path: Path, session_id: str) -> list[dict[str, Any]]:
    """Return what hooks have written about a session."""
    lines = path.read_text().splitlines() if path.exists() else []
    found = [json.loads(line) for line in lines if line.strip()]
    return [one for one in found if one["session_id"] == session_id]


async def until_told(path: Path, session_id: str, count: int = 1) -> list[dict[str, Any]]:
    """Wait until hooks that run unawaited have written `count` entries."""
    with trio.fail_after(20):
        while len(told(path, session_id)) < count:  # noqa: ASYNC110
            await trio.sleep(0.01)
    return told(path, session_id)


async def made(frontend: Frontend, session_id: str) -> list[ToolCall]:
    await frontend.say(session_id)
    assert (await frontend.turn_ended(session_id)).outcome == "completed"
    return calls_in(frontend.requests(session_id)[-1].items)


async def test_a_hook_says_no_and_the_model_is_told_who_and_why(
    frontend: Frontend, workspace: Path
) -> None:
    session_id = await frontend.session(
        workspace, calls(bash("touch forbidden"), bash("touch fine")), text("done")
    )
    denied, fine = await made(frontend, session_id)
    assert (denied.state, denied.error_kind) == ("error", "denied")
    assert denied.output == "denied by the hook `guard`: not that"
    assert fine.state == "completed"
    assert not (workspace / "forbidden").exists()
    assert (workspace / "fine").exists()


async def test_a_call_that_only_reads_does_not_begin_before_its_hook_was_asked(
    frontend: Frontend, workspace: Path
) -> None:
    call = CallPart("glob", arguments={"pattern": "*"})
    step = ScriptStep(parts=(call, TextPart("and more", pieces=5)))
    session_id = await frontend.session(workspace, step, text("done"))
    (denied,) = await made(frontend, session_id)
    assert denied.output == "denied by the hook `blind`, which gave no reason"


async def test_a_hook_adds_what_the_model_is_told(frontend: Frontend, workspace: Path) -> None:
    session_id = await frontend.session(
        workspace, calls(bash("echo careful"), write("a.txt", "x")), text("done")
    )
    careful, written = await made(frontend, session_id)
    assert careful.output.startswith("careful")
    assert careful.output.endswith("\n\nThe user's hook `guard` says: be careful")
    assert written.output == "Created a.txt: 1 bytes.\n\nThe user's hook `format` says: formatted"
    after = json.loads((workspace / "after.json").read_text())
    assert after["on"] == "tool_after"
    assert after["tool"]["arguments"] == {"path": "a.txt", "content": "x"}
    assert after["tool"]["output"] == "Created a.txt: 1 bytes."
    assert after["tool"]["failed"] is False
    assert after["workspace"] == str(workspace)


async def test_a_hook_hears_of_a_call_that_failed(frontend: Frontend, workspace: Path) -> None:
    session_id = await frontend.session(workspace, calls(write(".", "x")), text("done"))
    (failed,) = await made(frontend, session_id)
    assert failed.output.endswith("\n\nThe user's hook `format` says: formatted")
    after = json.loads((workspace / "after.json").read_text())
    assert after["tool"]["failed"] is True
    assert failed.output.startswith(after["tool"]["output"])


async def test_a_hook_that_fails_is_a_warning_or_a_no_as_it_is_configured(
    frontend: Frontend, workspace: Path
) -> None:
    session_id = await frontend.session(
        workspace,
        calls(bash("echo broken")),
        calls(read("greeting.txt")),
        calls(bash("true"), bash("false")),
        text("done"),
    )
    broken, *_ = await made(frontend, session_id)
    assert broken.output.startswith("broken")
    bodies = [event.body for event in frontend.events(session_id)]
    (warning,) = [body for body in bodies if isinstance(body, WarningRaised)]
    assert warning.code == "hook_failed"
    assert warning.message == (
        "The hook `guard` on tool_before failed: it ended with 1: out of order; "
        "its result is ignored."
    )


async def test_a_hook_that_takes_too_long_is_ended_and_may_count_as_a_no(
    frontend: Frontend, workspace: Path
) -> None:
    session_id = await frontend.session(workspace, calls(CallPart("ls")), text("done"))
    (listed,) = await made(frontend, session_id)
    assert listed.error_kind == "denied"
    assert "`strict`, which failed: it was stopped after its time limit of 0.3 s" in listed.output


@pytest.mark.promise("G8")
async def test_an_interrupt_ends_a_hook_at_once_with_all_that_it_started(
    frontend: Frontend, workspace: Path
) -> None:
    session_id = await frontend.session(workspace, calls(bash("echo slow")), always("done"))
    await frontend.say(session_id)
    with trio.fail_after(20):
        while not (workspace / "slow").exists():  # noqa: ASYNC110
            await trio.sleep(0.01)
    began = trio.current_time()
    await frontend.must(Interrupt(session_id))
    assert (await frontend.turn_ended(session_id)).outcome == "interrupted"
    assert trio.current_time() - began < AT_ONCE_S
    assert all(gone(int(pid)) for pid in (workspace / "hook.pid").read_text().split())
    (call,) = frontend.completed_calls(session_id)
    assert call.error_kind == "aborted"


async def test_a_hook_can_not_allow_what_the_policy_denies_or_asks(
    frontend: Frontend, workspace: Path, traces: Path
) -> None:
    """The hook runs before the question, which comes anyway and is announced once."""
    session_id = await frontend.session(
        workspace, calls(bash("touch careful")), text("done"), approve="ask"
    )
    await frontend.say(session_id)
    request = await frontend.request_opened(session_id)
    (asked,) = await until_told(traces / "requests", session_id)
    assert asked["request"]["id"] == request.id
    assert asked["request"]["permission"] == "bash"
    assert asked["request"]["subjects"] == ["touch careful"]
    await frontend.must(Answer(request.id, "once"))
    assert (await frontend.turn_ended(session_id)).outcome == "completed"
    (call,) = frontend.completed_calls(session_id)
    assert call.output.endswith("be careful")
    await until_told(traces / "ends", session_id)
    assert len(told(traces / "requests", session_id)) == 1
    never = await frontend.session(
        workspace, calls(bash("touch forbidden2")), text("done"), approve="never"
    )
    await frontend.say(never)
    await frontend.turn_ended(never)
    (call,) = frontend.completed_calls(never)
    assert call.error_kind == "denied"
    assert "hook" not in call.output


async def test_a_request_of_a_sub_agent_is_notified_once_though_two_sessions_show_it(
    frontend: Frontend, workspace: Path, daemon: Daemon, traces: Path
) -> None:
    agents = daemon.places.config / "agents"
    agents.mkdir()
    plays = daemon.script(calls(bash("touch asked")), text("helped"))
    head = f"description: helps\nmodel: {plays}"
    (agents / "helper.md").write_text(f"---\n{head}\n---\nYou help.\n")
    task = CallPart("task", arguments={"prompt": "help", "agent": "helper"})
    parent = await frontend.session(workspace, calls(task), text("done"), approve="ask")
    await frontend.say(parent)
    request = await frontend.request_opened(parent)
    if request.permission != "bash":
        await frontend.must(Answer(request.id, "once"))
        request = await frontend.request_opened(parent, 2)
    await frontend.must(Answer(request.id, "once"))
    assert (await frontend.turn_ended(parent)).outcome == "completed"
    await until_told(traces / "ends", parent)
    lines = (traces / "requests").read_text().splitlines()
    notified = [
        one for one in map(json.loads, filter(None, lines)) if one["request"]["id"] == request.id
    ]
    (once,) = notified
    assert once["session_id"] != parent


async def test_the_start_of_a_turn_can_be_denied_and_added_to(
    frontend: Frontend, workspace: Path, traces: Path
) -> None:
    (workspace / "told").write_text("It is Sunday.")
    session_id = await frontend.session(workspace, always("done"))
    await frontend.say(session_id, "let me not in")
    ended = await frontend.turn_ended(session_id)
    assert ended.outcome == "blocked"
    assert ended.error
    assert ended.error.message == "denied by the hook `door`: closed"
    assert frontend.requests(session_id) == []
    await frontend.say(session_id, "let me in")
    assert (await frontend.turn_ended(session_id, 2)).outcome == "completed"
    (request,) = frontend.requests(session_id)
    notices = [item.text for item in request.items if isinstance(item, Notice)]
    assert notices == ["The user's hook `door` says: It is Sunday."]
    ends = await until_told(traces / "ends", session_id, 2)
    assert [one["outcome"] for one in ends] == ["blocked", "completed"]
    assert ends[1]["last_message"] == "done"


async def test_what_a_hook_adds_keeps_no_sub_agent_from_the_task_that_the_user_gave_it(
    frontend: Frontend, workspace: Path
) -> None:
    (workspace / "told").write_text("It is Sunday.")
    session_id = await frontend.session(workspace, always("done"))
    await frontend.say(session_id, "@explore let me in")
    assert (await frontend.turn_ended(session_id)).outcome == "completed"
    (task,) = frontend.completed_calls(session_id)
    assert (task.name, task.state) == ("task", "completed")
    (request,) = frontend.requests(session_id)
    task_of_user, hook = [item.text for item in request.items if isinstance(item, Notice)]
    assert "the sub-agent explore. Its result:\ndone\n" in task_of_user
    assert hook == "The user's hook `door` says: It is Sunday."


@pytest.mark.promise("B60")
async def test_a_repository_can_not_name_hooks(frontend: Frontend, workspace: Path) -> None:
    (workspace / ".tiller").mkdir()
    evil = '[[hooks]]\non = "turn_start"\ncommand = "touch evil"\n'
    (workspace / ".tiller" / "config.toml").write_text(evil)
    session_id = await frontend.session(workspace, always("done"))
    await frontend.say(session_id)
    await frontend.turn_ended(session_id)
    assert not (workspace / "evil").exists()
