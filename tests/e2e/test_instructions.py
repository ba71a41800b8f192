"""The model gets an `AGENTS.md` below the workspace with the first call that uses a file there."""

from pathlib import Path

import pytest

from e2e.words import always, bash, calls, calls_in, read, text, write
from support.daemon import Daemon
from support.frontend import Frontend
from support.narrowing import of_kind
from tiller_daemon.models.scripted import CallPart, ScriptedUsage, ScriptStep, TextPart
from tiller_protocol.answers import Started
from tiller_protocol.events import WarningRaised
from tiller_protocol.ops import Compact, Revert
from tiller_protocol.settings import Rule

HIDDEN = "hidden-0123456789"
"""The content of protected files."""


def put(workspace: Path, path: str, content: str) -> Path:
    file = workspace / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(content)
    return file


def told(frontend: Frontend, session_id: str) -> list[list[str]]:
    """Return, for each call, the files whose instructions came with its result."""
    return [
        [line.split('"')[1] for line in call.output.split("\n") if line.startswith("<instructions")]
        for call in frontend.completed_calls(session_id)
    ]


async def test_a_file_below_brings_the_instructions_of_its_directories_once(
    frontend: Frontend, workspace: Path
) -> None:
    """`read` of api/v2/a.py → its result has api/AGENTS.md, then that of v2; the next has none."""
    put(workspace, "AGENTS.md", "at the top")
    above = put(workspace, "api/AGENTS.md", "Use tabs.")
    near = put(workspace, "api/v2/CLAUDE.md", "Use blanks.")
    put(workspace, "api/v2/a.py", "a\n")
    session_id = await frontend.session(
        workspace,
        calls(read("api/v2/a.py")),
        calls(read("api/v2/a.py"), read("api/AGENTS.md")),
        text("done"),
    )
    await frontend.say(session_id)
    await frontend.turn_ended(session_id)
    first, _, last = frontend.requests(session_id)
    assert "at the top" in first.system
    assert "Use tabs." not in first.system
    whole, again, itself = [call.output for call in calls_in(last.items)]
    assert again == "     1\ta\n(End of file, 1 line.)"
    assert itself == "     1\tUse tabs.\n(End of file, 1 line, no newline at the end.)"
    assert whole.startswith("     1\ta\n(End of file, 1 line.)\n\nThe project has instructions")
    assert whole.endswith(
        f'<instructions file="{above}">\nUse tabs.\n</instructions>\n'
        f'<instructions file="{near}">\nUse blanks.\n</instructions>'
    )


async def test_a_change_below_brings_instructions_and_looking_through_brings_none(
    frontend: Frontend, workspace: Path
) -> None:
    """`ls`, `glob`, `grep` and `bash` → nothing; `edit` and `write` → the instructions there."""
    a, b = (str(put(workspace, f"{name}/AGENTS.md", f"for {name}")) for name in "ab")
    put(workspace, "a/x.txt", "one\n")
    look = [CallPart(name, arguments={"path": "a"}) for name in ("ls",)]
    look += [CallPart(n, arguments={"pattern": "x.*", "path": "a"}) for n in ("glob", "grep")]
    edit = CallPart("edit", arguments={"path": "a/x.txt", "old": "one", "new": "two"})
    session_id = await frontend.session(
        workspace,
        calls(*look, bash("cat a/x.txt")),
        calls(read("a/x.txt")),
        calls(edit, write("b/new.txt", "x")),
        text("done"),
    )
    await frontend.say(session_id)
    await frontend.turn_ended(session_id)
    assert told(frontend, session_id) == [[], [], [], [], [a], [], [b]]


async def test_a_call_that_fails_tells_nothing_and_a_change_is_told_again(
    frontend: Frontend, workspace: Path
) -> None:
    """A missing file → no instructions; changed instructions in the same file → they come again."""
    file = put(workspace, "a/AGENTS.md", "for a")
    put(workspace, "a/x.txt", "one\n")
    rewrite = bash(f"echo other > {file}")
    steps = (read("a/none"), read("a/x.txt"), rewrite, read("a/x.txt"), read("a/x.txt"))
    session_id = await frontend.session(workspace, *map(calls, steps), text("done"))
    await frontend.say(session_id)
    await frontend.turn_ended(session_id)
    assert told(frontend, session_id) == [[], [str(file)], [], [str(file)], []]


async def test_instructions_are_told_again_when_history_no_longer_has_them(
    frontend: Frontend, workspace: Path, daemon: Daemon
) -> None:
    """After a compaction, and after a revert → the next call there brings them again."""
    file = str(put(workspace, "a/AGENTS.md", "for a"))
    put(workspace, "a/x.txt", "one\n")
    usage = ScriptedUsage(input_tokens=50_000)
    summary = ScriptStep(parts=(TextPart("what was done"),))
    looking = calls(read("a/x.txt"))
    model = daemon.script(
        looking,
        ScriptStep(parts=(TextPart("w" * 200_000),), usage=usage),
        looking,
        text("again"),
        looking,
        always("done"),
        compaction=summary,
    )
    session_id = await frontend.session(workspace, model=model)
    await frontend.say(session_id)
    await frontend.turn_ended(session_id)
    await frontend.must(Compact(session_id))
    assert (await frontend.turn_ended(session_id, 2)).outcome == "completed"
    started = of_kind(Started, await frontend.say(session_id))
    await frontend.turn_ended(session_id, 3)
    await frontend.must(Revert(session_id, started.turn_id))
    await frontend.say(session_id)
    await frontend.turn_ended(session_id, 4)
    assert told(frontend, session_id) == [[file], [file], [file]]


@pytest.mark.promise("B60")
async def test_packages_and_links_bring_no_instructions(
    frontend: Frontend, workspace: Path, tmp_path: Path
) -> None:
    """A dependency's AGENTS.md, or a link out of the workspace → no instructions."""
    put(workspace, "node_modules/evil/AGENTS.md", "obey")
    put(workspace, "node_modules/evil/index.js", "x")
    put(tmp_path, "secret", "secret")
    put(workspace, "a/x.txt", "one\n")
    (workspace / "a" / "AGENTS.md").symlink_to(tmp_path / "secret")
    session_id = await frontend.session(
        workspace, calls(read("node_modules/evil/index.js"), read("a/x.txt")), text("done")
    )
    await frontend.say(session_id)
    await frontend.turn_ended(session_id)
    assert told(frontend, session_id) == [[], []]


@pytest.mark.promise("B60")
async def test_a_link_to_a_protected_file_brings_nothing_of_it_and_that_is_said(
    frontend: Frontend, workspace: Path, daemon: Daemon
) -> None:
    """`AGENTS.md` → `.env`, at the top and below → no word of it in a request or in the log."""
    put(workspace, ".env", f"KEY={HIDDEN}")
    put(workspace, "a/x.txt", "one\n")
    (workspace / "AGENTS.md").symlink_to(".env")
    (workspace / "a" / "AGENTS.md").symlink_to("../.env")
    grep = CallPart("grep", arguments={"pattern": "K", "include": ".e*"})
    steps = (read("a/x.txt"), grep, read("a/x.txt"))
    session_id = await frontend.session(workspace, *map(calls, steps), text("done"))
    await frontend.say(session_id)
    await frontend.turn_ended(session_id)
    first, found, again = [call.output for call in frontend.completed_calls(session_id)]
    told = f"({workspace}/a/AGENTS.md was not read: reading {workspace}/.env needs approval.)"
    assert first == f"     1\tone\n(End of file, 1 line.)\n\n{told}"
    assert "(1 protected file was not searched" in found
    assert told not in again
    log = await frontend.log(session_id)
    warnings = [event.body for event in log if isinstance(event.body, WarningRaised)]
    (refused,) = [one for one in warnings if one.code == "document_refused"]
    assert f"{workspace}/AGENTS.md: reading {workspace}/.env needs approval" in refused.message
    sent = "".join(map(repr, frontend.requests(session_id)))
    assert HIDDEN not in sent + "".join(map(repr, log))
    assert not daemon.said.count(HIDDEN)


async def test_the_rules_of_the_turn_say_what_is_searched_and_told(
    frontend: Frontend, workspace: Path
) -> None:
    """`read` of `.env` allowed, of `a/*` denied → `grep` finds the one, nothing the other."""
    put(workspace, ".env", "KEY=1")
    put(workspace, "a/AGENTS.md", f"KEY={HIDDEN}")
    rules = (Rule("read", "*.env", "allow"), Rule("read", "a/A*", "deny"))
    put(workspace, "a/x.txt", "one\n")
    steps = (CallPart("grep", arguments={"pattern": "KEY="}), read("a/x.txt"))
    session_id = await frontend.session(
        workspace, *map(calls, steps), text("done"), permissions=rules
    )
    await frontend.say(session_id)
    await frontend.turn_ended(session_id)
    found, whole = [call.output for call in frontend.completed_calls(session_id)]
    assert found.startswith(".env\n     1\tKEY=1\n(1 protected file was not searched")
    assert "a/AGENTS.md was not read" in whole
    assert HIDDEN not in found + whole
