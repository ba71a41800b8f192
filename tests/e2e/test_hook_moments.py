"""Hooks that rewrite arguments, continue turns, or run at compactions and at the ends of turns."""

import json
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
import trio

from e2e.gates import Gate
from e2e.words import always, bash, calls, calls_in, read, said_in, text
from support.daemon import CONFIG, Daemon
from support.frontend import Frontend
from tiller_daemon.models.scripted import CallPart, ScriptedUsage, ScriptStep, TextPart
from tiller_protocol.events import ToolCallUpdated, WarningRaised
from tiller_protocol.items import Notice, ToolCall
from tiller_protocol.ops import Answer, Compact, Project, SessionArchive, SessionDelete
from tiller_protocol.settings import Rule

HOOKS = """
[[permissions]]
permission = "bash"
pattern = "touch secret*"
action = "deny"

[[hooks]]
on = "tool_before"
tool = "bash"
name = "rewrite"
command = '''
told=$(cat)
case "$told" in
*into-denied*) echo '{"arguments": {"command": "touch secret.txt"}}';;
*into-invalid*) echo '{"arguments": {"cmd": "ls"}}';;
*into-writing*) echo '{"arguments": {"command": "touch written.txt"}}';;
*into-echo*) echo '{"arguments": {"command": "echo rewritten"}}';;
esac
'''

[[hooks]]
on = "tool_before"
tool = "bash"
name = "guard"
command = 'grep -q "echo rewritten" && { echo "guarded" >&2; exit 2; }; true'

[[hooks]]
on = "turn_done"
name = "again"
command = '''
told=$(cat); printf "%s\\n" "$told" >>done.jsonl
[ -e stubborn ] && { echo "never enough" >&2; exit 2; }
[ -e silent ] && exit 2
[ -e slow ] && cat slow >/dev/null
[ -e once ] && { rm once; echo "the tests have not run" >&2; exit 2; }
true
'''

[[hooks]]
on = "compaction_before"
name = "keep"
command = "cat >before.json; echo keep the port number"

[[hooks]]
on = "compaction_after"
name = "remind"
command = "cat >after.json; echo the port is 4711"

[[hooks]]
on = "session_start"
name = "hello"
command = '[ -e greet ] && { cat >>started.jsonl; echo "welcome"; }; true'

[[hooks]]
on = "session_end"
command = 'told=$(cat); printf "%s\\n" "$told" >>TRACES/ended'

[[hooks]]
on = "sub_agent_end"
command = 'told=$(cat); printf "%s\\n" "$told" >>TRACES/helped'
"""

FULL = ScriptedUsage(input_tokens=120_000)


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("t")


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory, traces: Path) -> Generator[Daemon]:
    config = CONFIG + HOOKS.replace("TRACES", str(traces))
    with Daemon(tmp_path_factory.mktemp("d"), config) as daemon:
        yield daemon


async def told(path: Path, **fields: str) -> dict[str, Any]:
    """Wait until a hook that runs unawaited has written its input, and return the input."""
    with trio.fail_after(20):
        while True:
            for one in _lines(path):
                if fields.items() <= one.items():
                    return one
            await trio.sleep(0.01)


def _lines(path: Path) -> list[dict[str, Any]]:
    lines = path.read_text().splitlines() if path.exists() else []
    return [json.loads(line) for line in lines if line]


async def made(frontend: Frontend, session_id: str) -> list[ToolCall]:
    await frontend.say(session_id)
    await frontend.turn_ended(session_id)
    return frontend.completed_calls(session_id)


def notices(frontend: Frontend, session_id: str) -> list[str]:
    items = frontend.requests(session_id)[-1].items
    return [item.text for item in items if isinstance(item, Notice)]


def warnings(frontend: Frontend, session_id: str) -> list[WarningRaised]:
    bodies = [event.body for event in frontend.events(session_id)]
    return [body for body in bodies if isinstance(body, WarningRaised)]


async def test_a_hook_rewrites_arguments_and_everyone_is_told(
    frontend: Frontend, workspace: Path
) -> None:
    session_id = await frontend.session(workspace, calls(bash("true into-writing")), text("done"))
    (call,) = await made(frontend, session_id)
    assert (workspace / "written.txt").exists()
    assert call.state == "completed"
    assert json.loads(call.arguments) == {"command": "true into-writing"}
    assert json.loads(call.rewritten_arguments) == {"command": "touch written.txt"}
    assert call.title == "touch written.txt"
    assert call.effect == "write"
    (seen,) = calls_in(frontend.requests(session_id)[-1].items)
    assert (
        "The user's hook `rewrite` changed this call's arguments to "
        '{"command":"touch written.txt"}'
    ) in seen.output
    updates = [event.body for event in frontend.events(session_id)]
    running = [b for b in updates if isinstance(b, ToolCallUpdated) and b.state == "running"]
    assert [json.loads(one.rewritten_arguments)["command"] for one in running] == [
        "touch written.txt"
    ]


async def test_rewritten_arguments_are_judged_by_the_rules_and_asked_about(
    frontend: Frontend, workspace: Path
) -> None:
    session_id = await frontend.session(
        workspace, calls(bash("true into-denied")), calls(bash("true into-writing")), text("done"),
        approve="ask",
    )  # fmt: skip
    await frontend.say(session_id)
    request = await frontend.request_opened(session_id)
    assert request.subjects == ("touch written.txt",)
    (denied,) = frontend.completed_calls(session_id)
    assert denied.error_kind == "denied"
    assert not (workspace / "secret.txt").exists()
    assert "had changed this call's arguments" in denied.output
    await frontend.must(Answer(request.id, "reject"))
    assert (await frontend.turn_ended(session_id)).outcome == "blocked"
    assert not (workspace / "written.txt").exists()


async def test_a_call_that_a_hook_makes_write_is_skipped_if_a_call_beside_it_is_rejected(
    frontend: Frontend, workspace: Path
) -> None:
    (workspace / "a.txt").write_text("a")
    session_id = await frontend.session(
        workspace,
        calls(bash("true into-writing"), read("a.txt")),
        text("done"),
        approve="ask",
        permissions=(Rule("read", "*", "ask"),),
    )
    await frontend.say(session_id)
    opened = [await frontend.request_opened(session_id, number) for number in (1, 2)]
    opened.sort(key=lambda request: request.subjects != ("touch written.txt",))
    # A rejection also closes the other request, so it comes last.
    await frontend.must(Answer(opened[0].id, "once"))
    await frontend.must(Answer(opened[1].id, "reject"))
    assert (await frontend.turn_ended(session_id)).outcome == "blocked"
    ended = {call.name: call for call in frontend.completed_calls(session_id)}
    assert (ended["read"].error_kind, ended["bash"].error_kind) == ("denied", "skipped")
    assert ended["bash"].title == "touch written.txt"
    assert not (workspace / "written.txt").exists()


async def test_a_hook_makes_no_agent_write_that_only_reads(
    frontend: Frontend, workspace: Path
) -> None:
    session_id = await frontend.session(
        workspace, calls(bash("true into-writing")), text("done"), agent="plan"
    )
    (call,) = await made(frontend, session_id)
    assert call.error_kind == "denied"
    assert "the agent plan is read-only" in call.output


async def test_arguments_that_the_tool_does_not_accept_deny_the_call(
    frontend: Frontend, workspace: Path
) -> None:
    session_id = await frontend.session(workspace, calls(bash("true into-invalid")), text("done"))
    (call,) = await made(frontend, session_id)
    assert call.error_kind == "denied"
    assert "unknown field `cmd`" in call.output


async def test_a_later_hook_judges_what_an_earlier_one_has_made_of_a_call(
    frontend: Frontend, workspace: Path
) -> None:
    session_id = await frontend.session(workspace, calls(bash("true into-echo")), text("done"))
    (call,) = await made(frontend, session_id)
    assert call.error_kind == "denied"
    assert call.output.startswith("denied by the hook `guard`: guarded")


@pytest.mark.promise("G9")
async def test_a_call_that_a_hook_makes_write_runs_after_the_reads_beside_it(
    frontend: Frontend, workspace: Path
) -> None:
    session_id = await frontend.session(
        workspace,
        calls(bash("true into-writing"), bash("sleep 0.3"), read("greeting.txt")),
        text("done"),
    )
    rewritten, *others = sorted(
        await made(frontend, session_id), key=lambda call: "into" not in call.arguments
    )
    assert rewritten.state == "completed"
    assert rewritten.started_at is not None
    assert len(others) == 2
    assert all(
        one.started_at is not None
        and one.duration_s is not None
        and one.started_at + one.duration_s <= rewritten.started_at + 0.001
        for one in others
    )


@pytest.mark.promise("B60")
async def test_a_hook_of_a_project_can_not_rewrite(frontend: Frontend, workspace: Path) -> None:
    (workspace / ".tiller").mkdir()
    answer = '{"arguments": {"command": "touch written.txt"}}'
    hook = f"[[hooks]]\non = \"tool_before\"\ncommand = '''echo '{answer}' '''\nname = \"sly\"\n"
    (workspace / ".tiller" / "config.toml").write_text(hook)
    found: Any = await frontend.must(Project(str(workspace)))
    await frontend.must(Project(str(workspace), trust=True, digest=found.digest))
    session_id = await frontend.session(workspace, calls(bash("echo plain")), text("done"))
    (call,) = await made(frontend, session_id)
    assert call.output.startswith("plain")
    assert not call.rewritten_arguments
    message = warnings(frontend, session_id)[-1].message
    assert "it can't change `arguments`, because it is a project hook" in message


async def test_a_hook_makes_the_turn_go_on_and_the_model_hears_why(
    frontend: Frontend, workspace: Path
) -> None:
    (workspace / "once").touch()
    session_id = await frontend.session(workspace, text("all done"), text("now really"))
    await frontend.say(session_id)
    ended = await frontend.turn_ended(session_id)
    assert (ended.outcome, ended.last_message, ended.steps) == ("completed", "now really", 2)
    assert notices(frontend, session_id) == [
        "The user's hook `again` wants you to go on: the tests have not run"
    ]
    first, second = map(json.loads, (workspace / "done.jsonl").read_text().splitlines())
    assert first["last_message"] == "all done"
    assert "continued" not in first
    assert (second["last_message"], second["continued"]) == ("now really", 1)


@pytest.mark.promise("G12")
async def test_hooks_can_not_make_a_turn_go_on_for_ever(
    frontend: Frontend, workspace: Path
) -> None:
    (workspace / "stubborn").touch()
    session_id = await frontend.session(workspace, always("done"))
    await frontend.say(session_id)
    ended = await frontend.turn_ended(session_id)
    assert (ended.outcome, ended.steps) == ("completed", 1 + 8)  # as docs/hooks.md says
    (warning,) = warnings(frontend, session_id)
    assert warning.code == "hook_limit"
    assert "never enough" in warning.message


async def test_a_hook_without_a_reason_does_not_make_the_turn_go_on(
    frontend: Frontend, workspace: Path
) -> None:
    (workspace / "silent").touch()
    session_id = await frontend.session(workspace, text("done"))
    await frontend.say(session_id)
    assert (await frontend.turn_ended(session_id)).steps == 1
    (warning,) = warnings(frontend, session_id)
    assert "gives the model no reason" in warning.message


async def test_hooks_are_asked_when_no_input_waits_any_more(
    frontend: Frontend, workspace: Path
) -> None:
    (workspace / "once").touch()
    gate = Gate(workspace)
    session_id = await frontend.session(workspace, calls(bash(gate.command)), *map(text, "abc"))
    await frontend.say(session_id)
    await gate.reached()
    await frontend.say(session_id, "more", delivery="queue")
    gate.open()
    await frontend.turn_ended(session_id)
    lines = (workspace / "done.jsonl").read_text().splitlines()
    assert [json.loads(line)["last_message"] for line in lines] == ["b", "c"]


async def test_steering_that_comes_while_hooks_run_is_before_input_that_waits(
    frontend: Frontend, workspace: Path
) -> None:
    gate = Gate(workspace, "slow")
    session_id = await frontend.session(workspace, *map(text, "abc"))
    await frontend.say(session_id)
    await gate.reached()
    await frontend.say(session_id, "later", delivery="queue")
    await frontend.say(session_id, "now", delivery="steer")
    gate.path.unlink()
    gate.open()
    await frontend.turn_ended(session_id)
    assert said_in(frontend.requests(session_id)[-1].items) == ["go", "now", "later"]


async def test_the_last_step_of_a_turn_is_the_last_whatever_hooks_want(
    frontend: Frontend, workspace: Path
) -> None:
    (workspace / "stubborn").touch()
    session_id = await frontend.session(workspace, always("done"), max_steps=2)
    await frontend.say(session_id)
    assert (await frontend.turn_ended(session_id)).steps == 2


async def test_hooks_add_to_a_compaction_and_after_it(
    frontend: Frontend, workspace: Path, daemon: Daemon
) -> None:
    model = daemon.script(
        ScriptStep(parts=(TextPart("one"),), usage=FULL), text("two"), compaction=text("summary")
    )
    session_id = await frontend.session(workspace, model=model)
    await frontend.say(session_id, "first")
    await frontend.turn_ended(session_id)
    await frontend.say(session_id, "second")
    await frontend.turn_ended(session_id, 2)
    (asked,) = [one for one in daemon.asked(session_id) if one.purpose == "compaction"]
    last = asked.items[-1]
    assert isinstance(last, Notice)
    assert last.text.endswith("The user's hook `keep` says: keep the port number")
    assert notices(frontend, session_id) == ["The user's hook `remind` says: the port is 4711"]
    before = json.loads((workspace / "before.json").read_text())["compaction"]
    after = json.loads((workspace / "after.json").read_text())["compaction"]
    assert before["tokens"] > after["tokens"]
    assert after["summary"] == "summary"


async def test_hooks_run_for_a_compaction_that_the_user_asked_for(
    frontend: Frontend, workspace: Path, daemon: Daemon
) -> None:
    long = text("w" * 20_000)
    session_id = await frontend.session(
        workspace, model=daemon.script(long, compaction=text("summary"))
    )
    await frontend.say(session_id, "first")
    await frontend.turn_ended(session_id)
    await frontend.must(Compact(session_id))
    assert (await frontend.turn_ended(session_id, 2)).outcome == "completed"
    assert (workspace / "after.json").exists()


async def test_the_start_of_a_session_adds_to_its_first_turn_alone(
    frontend: Frontend, workspace: Path
) -> None:
    (workspace / "greet").touch()
    session_id = await frontend.session(workspace, always("done"))
    for number in (1, 2):
        await frontend.say(session_id)
        await frontend.turn_ended(session_id, number)
    assert notices(frontend, session_id) == ["The user's hook `hello` says: welcome"]
    (line,) = (workspace / "started.jsonl").read_text().splitlines()
    assert json.loads(line)["on"] == "session_start"


@pytest.mark.parametrize("how", ["archived", "deleted"])
async def test_the_end_of_a_session_is_notified_once(
    frontend: Frontend, workspace: Path, traces: Path, how: str
) -> None:
    session_id = await frontend.session(workspace, text("done"))
    await frontend.say(session_id)
    await frontend.turn_ended(session_id)
    if how == "archived":
        await frontend.must(SessionArchive(session_id))
        await frontend.must(SessionArchive(session_id))
    frontend.forget(session_id)
    await frontend.must(SessionDelete(session_id))
    ended = await told(traces / "ended", session_id=session_id)
    assert ended["outcome"] == how
    assert ended["workspace"] == str(workspace)
    lines = (traces / "ended").read_text().splitlines()
    assert sum(session_id in line for line in lines) == 1


async def test_the_end_of_a_sub_agent_is_notified_with_its_owner(
    frontend: Frontend, workspace: Path, daemon: Daemon, traces: Path
) -> None:
    agents = daemon.places.config / "agents"
    agents.mkdir()
    plays = daemon.script(text("helped"))
    (agents / "helper.md").write_text(f"---\ndescription: h\nmodel: {plays}\n---\nYou help.\n")
    task = CallPart("task", arguments={"prompt": "help", "agent": "helper"})
    session_id = await frontend.session(workspace, calls(task), text("done"))
    await frontend.say(session_id)
    await frontend.turn_ended(session_id)
    ended = await told(traces / "helped", owner=session_id)
    assert (ended["outcome"], ended["last_message"]) == ("completed", "helped")
    assert (ended["agent"], ended["session_id"] != session_id) == ("helper", True)
