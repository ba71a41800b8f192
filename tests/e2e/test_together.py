"""Concurrent tool calls: calls that only read run together, and all others run alone."""

from pathlib import Path

import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from e2e.gates import Gate
from e2e.words import bash, calls, calls_in, read, text
from support.daemon import Daemon
from support.frontend import Frontend
from tiller_daemon.models.scripted import Failure, HangPart, ScriptStep, TextPart, WaitPart
from tiller_protocol.events import ItemCompleted, ItemStarted, ToolCallUpdated
from tiller_protocol.items import AssistantMessage, ToolCall
from tiller_protocol.ops import Interrupt

EIGHT = 8

ALONE = """\
import os
from pathlib import Path

mine = os.environ["TILLER_CALL"].encode()
daemon = b"TILLER_DAEMON=" + os.environ["TILLER_DAEMON"].encode()
calls = set()
for entry in Path("/proc").iterdir():
    try:
        variables = (entry / "environ").read_bytes().split(b"\\0")
    except OSError:
        continue
    if daemon in variables:
        calls.update(v for v in variables if v.startswith(b"TILLER_CALL="))
print("alone" if calls == {b"TILLER_CALL=" + mine} else f"not alone: {calls}")
"""
"""A program for a call that may write; it looks for processes of the daemon's other calls."""


@pytest.mark.promise("B31")
async def test_eight_reads_run_at_once_and_answer_in_call_order(
    frontend: Frontend, workspace: Path
) -> None:
    """Eight calls that only read run at the same time: each waits at a gate until all have begun.

    Results go to the model in call order, completions to frontends in completion order.
    """
    gates = [Gate(workspace, f"gate{number}") for number in range(EIGHT)]
    session_id = await frontend.session(
        workspace, calls(*(bash(gate.command) for gate in gates)), text("done")
    )
    await frontend.say(session_id)
    for gate in gates:
        await gate.reached()
    for number, gate in reversed(list(enumerate(gates))):
        gate.open(f"answer {number}")
        await frontend.until_call(session_id, "completed", EIGHT - number)
    assert (await frontend.turn_ended(session_id)).outcome == "completed"
    told = [call.output for call in calls_in(frontend.requests(session_id)[1].items)]
    assert told == [f"answer {number}" for number in range(EIGHT)]
    shown = [call.output for call in frontend.completed_calls(session_id)]
    assert shown == told[::-1]


@settings(
    max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(batch=st.lists(st.sampled_from("rw"), min_size=2, max_size=6))
@pytest.mark.promise("B32")
@pytest.mark.nightly
def test_a_write_is_alone_whatever_stands_beside_it(
    daemon: Daemon, workspace: Path, batch: list[str]
) -> None:
    """Reads and writes in one response → each write runs alone (a property of random batches).

    It is checked by the events, and by each write, which looks for processes of other calls.
    """
    trio.run(_play_batch, daemon, workspace, batch)


async def _play_batch(daemon: Daemon, workspace: Path, batch: list[str]) -> None:
    (workspace / "alone.py").write_text(ALONE)
    parts = [bash("sleep 0.05" if effect == "r" else "python3 alone.py") for effect in batch]
    async with trio.open_nursery() as nursery:
        frontend = await Frontend.connect(daemon, nursery)
        session_id = await frontend.session(workspace, calls(*parts), text("done"))
        await frontend.say(session_id)
        await frontend.turn_ended(session_id)
        done = calls_in(frontend.requests(session_id)[1].items)
        assert ["rw"[call.effect == "write"] for call in done] == batch
        assert {call.output.strip() for call in done if call.effect == "write"} <= {"alone"}
        _check_spans(frontend, session_id, {c.id for c in done if c.effect == "write"})
        await frontend.close()


def _check_spans(frontend: Frontend, session_id: str, writes: set[str]) -> None:
    """Check by the events that no other call runs while a write runs."""
    running: set[str] = set()
    for event in frontend.events(session_id):
        match event.body:
            case ToolCallUpdated(item_id=item_id, state="running"):
                running.add(item_id)
                assert len(running) == 1 or not running & writes
            case ItemCompleted(item=ToolCall(id=item_id)):
                running.discard(item_id)
            case _:
                pass


@pytest.mark.promise("B33")
async def test_a_reading_call_runs_while_its_response_still_streams(
    frontend: Frontend, workspace: Path
) -> None:
    """The command reaches a gate before the response ends, and does not outlive the turn."""
    gate = Gate(workspace)
    session_id = await frontend.session(
        workspace, ScriptStep(parts=(bash(gate.command), HangPart()))
    )
    await frontend.say(session_id)
    await gate.reached()
    await frontend.must(Interrupt(session_id))
    assert (await frontend.turn_ended(session_id)).outcome == "interrupted"
    gate.close()
    (call,) = frontend.completed_calls(session_id)
    assert call.error_kind == "aborted"
    assert "aborted after" in call.output


@pytest.mark.promise("B33")
async def test_a_stream_that_fails_is_retried_and_nothing_is_doubled(
    frontend: Frontend, workspace: Path
) -> None:
    """The first attempt's call runs when its stream breaks; the model sees only the second call."""
    gate = Gate(workspace)
    broken = Failure("broken_stream", after_parts=3, retry_after_s=0)
    parts = (bash(gate.command), WaitPart(0.3), TextPart("That was it."))
    session_id = await frontend.session(
        workspace, ScriptStep(parts=parts, failures=(broken,)), text("done")
    )
    await frontend.say(session_id)
    await frontend.until(session_id, lambda event: getattr(event.body, "status", "") == "retry")
    await gate.pass_one("hello")
    assert (await frontend.turn_ended(session_id)).last_message == "done"
    dropped, kept = frontend.completed_calls(session_id)
    assert (dropped.discarded, dropped.state, dropped.output) == (True, "error", "")
    assert (kept.discarded, kept.state, kept.output) == (False, "completed", "hello")
    assert calls_in(frontend.requests(session_id)[-1].items) == [kept]
    assert len(frontend.requests(session_id)) == 3
    attempt = ["call begins", "words begin", "call ends"]
    assert _story(frontend, session_id) == [*attempt, *attempt, "words begin"]


@pytest.mark.promise("B33")
async def test_what_a_dropped_call_was_told_is_told_again(
    frontend: Frontend, workspace: Path
) -> None:
    """Instructions come with a directory's first file; the model never saw the dropped call."""
    (workspace / "part").mkdir()
    (workspace / "part" / "AGENTS.md").write_text("Mind the gap.\n")
    (workspace / "part" / "file.txt").write_text("text\n")
    broken = Failure("broken_stream", after_parts=2, retry_after_s=0)
    step = ScriptStep(parts=(read("part/file.txt"), WaitPart(0.3)), failures=(broken,))
    session_id = await frontend.session(workspace, step, text("done"))
    await frontend.say(session_id)
    await frontend.turn_ended(session_id)
    (call,) = calls_in(frontend.requests(session_id)[-1].items)
    assert "Mind the gap." in call.output


def _story(frontend: Frontend, session_id: str) -> list[str]:
    """Return how calls and messages began and ended, in the order of events."""
    story: list[str] = []
    for event in frontend.events(session_id):
        match event.body:
            case ToolCallUpdated(state="running"):
                story.append("call begins")
            case ItemStarted(item=AssistantMessage()):
                story.append("words begin")
            case ItemCompleted(item=ToolCall()):
                story.append("call ends")
            case _:
                pass
    return story


@pytest.mark.promise("B34")
async def test_one_failure_and_one_hang_leave_the_others_alone(
    frontend: Frontend, workspace: Path
) -> None:
    """One call fails, one exceeds its timeout → both get an error, and the others complete."""
    session_id = await frontend.session(
        workspace,
        calls(
            read("nowhere.txt"),
            bash("sleep 100", timeout_s=0.2),
            bash("cat greeting.txt nowhere"),
            bash("cat greeting.txt"),
        ),
        text("done"),
    )
    await frontend.say(session_id)
    assert (await frontend.turn_ended(session_id)).outcome == "completed"
    missing, hung, failed, fine = calls_in(frontend.requests(session_id)[1].items)
    assert (missing.error_kind, hung.error_kind, failed.error_kind) == ("failed",) * 3
    assert "nowhere.txt" in missing.output
    assert "0.2 s" in hung.output
    assert failed.exit_status == 1
    assert "hello" in failed.output
    assert (fine.state, fine.output) == ("completed", "hello\n")
