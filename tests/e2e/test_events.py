"""Events are self-contained: kinds of items, a turn's files, whether a call may write."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import trio

from e2e.gates import Gate
from e2e.words import always, bash, calls, read, text, write
from support.daemon import Daemon
from support.frontend import Frontend
from tiller_daemon.models.scripted import ReasoningPart, ScriptStep, TextPart
from tiller_protocol.events import Event, ItemDelta, ItemStarted, ToolCallUpdated
from tiller_protocol.items import FileChange
from tiller_protocol.ops import Interrupt


def tiller(daemon: Daemon, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tiller_client", *arguments]
    return subprocess.run(
        command, env=daemon.variables, capture_output=True, text=True, check=False
    )


async def test_each_delta_says_what_kind_of_item_it_belongs_to(
    frontend: Frontend, workspace: Path
) -> None:
    """A frontend that joined late knows without the item's beginning what a delta is."""
    thinks = ScriptStep(parts=(ReasoningPart("Hm."), TextPart("I look."), bash("echo out")))
    session_id = await frontend.session(workspace, thinks, text("done"))
    await frontend.say(session_id)
    await frontend.turn_ended(session_id)
    started: dict[str, str] = {}
    seen: Counter[tuple[str, str | None]] = Counter()
    for event in frontend.events(session_id):
        match event.body:
            case ItemStarted(item=item):
                started[item.id] = str(item.__struct_config__.tag)
            case ItemDelta() as delta:
                assert delta.item_type == started[delta.item_id]
                seen[delta.channel, delta.item_type] += 1
            case _:
                pass
    assert set(seen) == {
        ("text", "reasoning"),
        ("text", "assistant_message"),
        ("arguments", "tool_call"),
        ("output", "tool_call"),
    }


async def test_the_end_of_a_turn_names_the_files_that_it_changed(
    frontend: Frontend, workspace: Path, daemon: Daemon
) -> None:
    """Over all its steps, without files that came and went, or changes by an earlier turn."""
    session_id = await frontend.session(
        workspace,
        calls(write("earlier", "1\n")),
        text("first"),
        calls(write("one", "1\n"), bash("echo x > gone; echo more >> greeting.txt")),
        calls(bash("rm gone; echo 2 >> one")),
        always("done"),
    )
    await frontend.say(session_id)
    first = await frontend.turn_ended(session_id)
    assert (first.files, first.more_files) == ((FileChange("earlier", "added", 1, 0),), False)
    await frontend.say(session_id)
    second = await frontend.turn_ended(session_id, 2)
    assert second.files == (
        FileChange("greeting.txt", "modified", 1, 0),
        FileChange("one", "added", 2, 0),
    )
    assert not second.more_files
    await frontend.say(session_id)
    third = await frontend.turn_ended(session_id, 3)
    assert (third.files, third.more_files) == ((), False)
    shown = await trio.to_thread.run_sync(tiller, daemon, "log", session_id)
    endings = [line for line in shown.stdout.splitlines() if line.startswith("■")]
    assert ["changed" in line for line in endings] == [True, True, False]
    assert " · 1 file changed · " in endings[0]
    assert " · 2 files changed · " in endings[1]


async def test_the_end_of_an_interrupted_turn_has_the_changes_of_its_last_step(
    frontend: Frontend, workspace: Path
) -> None:
    gate = Gate(workspace)
    session_id = await frontend.session(
        workspace, calls(write("one", "1\n")), calls(bash(f"touch two; {gate.command}"))
    )
    await frontend.say(session_id)
    await gate.reached()
    await frontend.must(Interrupt(session_id))
    ended = await frontend.turn_ended(session_id)
    assert (ended.outcome, ended.more_files) == ("interrupted", False)
    assert {"one", "two"} <= {change.path for change in ended.files}


@pytest.mark.parametrize(("command", "effect"), [("cat", "read"), ("touch", "write")])
async def test_a_call_that_died_with_the_daemon_says_whether_it_could_have_written(
    frontend: Frontend, workspace: Path, daemon: Daemon, command: str, effect: str
) -> None:
    """Nobody has to look for changes behind a call that could only read."""
    gate = Gate(workspace)
    line = f"cat {gate.path}" if command == "cat" else f"touch new; {gate.command}"
    session_id = await frontend.session(workspace, calls(read("greeting.txt"), bash(line)))
    await frontend.say(session_id)

    def begun(event: Event) -> bool:
        body = event.body
        return isinstance(body, ToolCallUpdated) and body.state == "running"

    event = await frontend.until(session_id, begun, 2)
    assert isinstance(event.body, ToolCallUpdated)
    assert event.body.effect == effect
    daemon.kill9()
    daemon.start()
    await frontend.reconnect()
    ended = await frontend.turn_ended(session_id)
    lost = next(c for c in frontend.completed_calls(session_id) if c.error_kind == "lost")
    assert lost.effect == effect
    assert lost.allowed, "and why it could run"
    assert ended.more_files == (effect == "write")
