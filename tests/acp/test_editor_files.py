"""Files that are not saved in the editor: calls read them there, and never overwrite them."""

import json
import sys
from pathlib import Path

import pytest
import trio

from e2e.gates import Gate
from e2e.words import always, bash, calls, calls_in, read, text
from support.daemon import Daemon
from support.editor import NODE, Editor, Json, an_editor, needs_node, selected
from support.frontend import TIMEOUT_S, Frontend
from tiller_client.acp.editor_files import is_below
from tiller_daemon.models.scripted import CallPart
from tiller_protocol.items import ToolCall
from tiller_protocol.lending import SessionLend

ACP = (sys.executable, "-m", "tiller_client", "acp", "--approve", "ask")

PATCH = """\
*** Begin Patch
*** Update File: greeting.txt
@@
-hello
+mine
*** End Patch
"""

UNSAVED = "with changes that are not saved"

ASKED = "fs/read_text_file"


def edit(old: str, new: str) -> CallPart:
    return CallPart("edit", arguments={"path": "greeting.txt", "old": old, "new": new})


def made(daemon: Daemon, session_id: str) -> list[ToolCall]:
    return calls_in(daemon.requests(session_id)[-1].items)


async def begun(editor: Editor, workspace: Path, buffer: str | Json | None) -> str:
    """A session of an editor with a buffer: a text, a hostile answer, or None for silence."""
    editor.choose = lambda _params: selected("once")
    editor.buffer = lambda _params: {"content": buffer} if isinstance(buffer, str) else buffer
    await editor.start(fs={"readTextFile": True})
    return await editor.new(workspace)


def asked(editor: Editor) -> list[str]:
    return [one["params"]["path"] for one in editor.seen if one.get("method") == ASKED]


@pytest.mark.peer
async def test_the_client_of_the_typescript_sdk_lends_its_unsaved_buffer_for_a_whole_turn(
    daemon: Daemon, workspace: Path
) -> None:
    needs_node()
    model = daemon.script(
        calls(read("greeting.txt")),
        calls(edit("unsaved", "changed")),
        calls(bash("cat greeting.txt")),
        text("please save it"),
        calls(edit("unsaved", "changed")),
        text("done"),
    )
    command = ("node", NODE / "buffers.mjs", workspace, model, *ACP)
    with trio.fail_after(2 * TIMEOUT_S):
        done = await trio.run_process(
            [str(word) for word in command], env=daemon.variables, capture_stdout=True
        )
    report: Json = json.loads(done.stdout)
    assert set(report["asked"]) == {str(workspace / "greeting.txt")}
    first, refused, seen, edited = made(daemon, report["sessionId"])
    assert first.output.startswith("     1\tunsaved here\n")
    assert UNSAVED in first.output
    assert refused.state == "error"
    assert "greeting.txt was left as it is: it has changes in the user's editor" in refused.output
    assert "hello" in seen.output
    assert edited.state == "completed"
    assert (workspace / "greeting.txt").read_text() == "changed here\n"


async def test_what_is_saved_is_read_from_disk_and_edited_again_and_again(
    editor: Editor, daemon: Daemon, workspace: Path
) -> None:
    """The editor loads only what the first call wrote, and is not taken for one with changes."""
    daemon.play(
        "main",
        calls(read("greeting.txt")),
        calls(edit("hello", "hello you")),
        calls(bash("sed -i s/you/all/ greeting.txt")),
        calls(read("greeting.txt")),
        calls(edit("all", "everybody")),
        text("done"),
    )
    session_id = await begun(editor, workspace, None)
    greeting = workspace / "greeting.txt"

    def buffer(_params: Json) -> Json:
        return {"content": "hello" if greeting.read_text() == "hello\n" else "hello you"}

    editor.buffer = buffer
    await editor.prompt(session_id)
    assert [call.state for call in made(daemon, session_id)] == ["completed"] * 5
    assert (workspace / "greeting.txt").read_text() == "hello everybody\n"
    assert len(asked(editor)) >= 4


async def test_a_user_is_not_asked_about_a_change_that_would_be_refused(
    editor: Editor, daemon: Daemon, workspace: Path
) -> None:
    daemon.play("main", calls(read("greeting.txt")), calls(edit("hello", "mine")), text("done"))
    session_id = await begun(editor, workspace, None)
    buffers = iter(["hello", "theirs"])
    editor.buffer = lambda _params: {"content": next(buffers)}
    await editor.prompt(session_id)
    assert "are not saved" in made(daemon, session_id)[1].output
    assert not [one for one in editor.seen if one.get("method") == "session/request_permission"]
    assert (workspace / "greeting.txt").read_text() == "hello\n"


async def test_a_change_that_needs_no_approval_is_refused_as_well(
    daemon: Daemon, workspace: Path, nursery: trio.Nursery
) -> None:
    change = CallPart("apply_patch", arguments={"patch": PATCH})
    daemon.play("main", calls(read("greeting.txt")), calls(change), text("done"))
    async with an_editor(daemon, nursery, "--approve", "always", greets=False) as editor:
        session_id = await begun(editor, workspace, None)
        buffers = iter(["hello", "theirs"])
        editor.buffer = lambda _params: {"content": next(buffers)}
        await editor.prompt(session_id)
    assert "are not saved" in made(daemon, session_id)[1].output
    assert (workspace / "greeting.txt").read_text() == "hello\n"


HOSTILE: dict[str, Json | None] = {
    "ten megabytes": {"content": "x" * 10_000_000},
    "a number": {"content": 7},
    "no content": {},
    "a list": {"content": ["unsaved"]},
    "a NUL": {"content": "a\0b"},
    "of another question": {"content": "unsaved"},
    "an error": None,
}


@pytest.mark.parametrize("kind", HOSTILE)
async def test_an_answer_that_is_none_leaves_the_file_on_disk(
    editor: Editor, daemon: Daemon, workspace: Path, kind: str
) -> None:
    daemon.play("main", calls(read("greeting.txt")), text("done"))
    session_id = await begun(editor, workspace, HOSTILE[kind])
    if kind == "of another question":
        editor.buffer = lambda _params: None
    running = await editor.request("session/prompt", sessionId=session_id, prompt=GO)
    question = await editor.asked(ASKED)
    if kind == "of another question":
        await editor.send({"id": question["id"] + 100, "result": {"content": "unsaved"}})
        await editor.send({"id": question["id"], "error": {"code": -32002, "message": "which?"}})
    if kind == "an error":
        await editor.send({"id": question["id"], "error": {"code": -32002, "message": "none"}})
    await editor.answer(running)
    [call] = made(daemon, session_id)
    assert "\thello\n" in call.output
    assert UNSAVED not in call.output


GO = [{"type": "text", "text": "go"}]


async def test_an_editor_that_does_not_answer_delays_a_turn_once(
    editor: Editor, daemon: Daemon, workspace: Path
) -> None:
    look = calls(read("greeting.txt"))
    daemon.play("main", look, look, text("done"), look, text("done"))
    session_id = await begun(editor, workspace, None)
    await editor.prompt(session_id)
    assert ["hello" in call.output for call in made(daemon, session_id)] == [True, True]
    assert len(asked(editor)) == 1
    editor.buffer = lambda _params: {"content": "awake"}
    await editor.prompt(session_id)
    assert "awake" in made(daemon, session_id)[-1].output, "a new input lends anew"


async def test_an_editor_that_is_killed_in_mid_question_stops_no_turn(
    daemon: Daemon, workspace: Path, frontend: Frontend, nursery: trio.Nursery
) -> None:
    daemon.play("main", calls(read("greeting.txt")), text("done"))
    async with an_editor(daemon, nursery, greets=False) as editor:
        session_id = await begun(editor, workspace, None)
        frontend.follow(session_id)
        await editor.request("session/prompt", sessionId=session_id, prompt=GO)
        await editor.asked(ASKED)
        editor.process.kill()
        await frontend.turn_ended(session_id)
    assert "hello" in made(daemon, session_id)[0].output


async def test_an_interrupt_waits_for_no_editor(
    editor: Editor, daemon: Daemon, workspace: Path
) -> None:
    daemon.play("main", calls(read("greeting.txt")), always("done"))
    session_id = await begun(editor, workspace, None)
    running = await editor.request("session/prompt", sessionId=session_id, prompt=GO)
    await editor.asked(ASKED)
    await editor.notify("session/cancel", sessionId=session_id)
    assert (await editor.answer(running))["stopReason"] == "cancelled"


async def test_only_what_the_rules_allow_to_be_read_in_the_workspace_is_asked_for(
    editor: Editor, daemon: Daemon, workspace: Path, tmp_path: Path
) -> None:
    (workspace / ".env").write_text("KEY=1\n")
    (tmp_path / "outside.txt").write_text("outside\n")
    daemon.play(
        "main",
        calls(read(".env"), read(str(tmp_path / "outside.txt")), read("greeting.txt")),
        text("done"),
    )
    session_id = await begun(editor, workspace, "unsaved")
    editor.choose = lambda _params: selected("reject")
    await editor.prompt(session_id)
    assert set(asked(editor)) <= {str(workspace / "greeting.txt")}


async def test_an_editor_that_does_not_offer_it_is_not_asked(
    editor: Editor, daemon: Daemon, workspace: Path
) -> None:
    gate = Gate(workspace)
    daemon.play("main", calls(read("greeting.txt")), calls(bash(gate.command)), text("done"))
    await editor.start(fs={"readTextFile": False, "writeTextFile": True})
    session_id = await editor.new(workspace)
    running = await editor.request("session/prompt", sessionId=session_id, prompt=GO)
    await gate.reached()
    assert asked(editor) == []
    gate.open()
    await editor.answer(running)


async def test_the_path_is_named_as_the_editor_has_named_the_workspace(
    editor: Editor, daemon: Daemon, workspace: Path, tmp_path: Path
) -> None:
    link = tmp_path / "link"
    link.symlink_to(workspace)
    daemon.play("main", calls(read("greeting.txt")), text("done"))
    session_id = await begun(editor, link, "unsaved")
    await editor.prompt(session_id)
    assert asked(editor) == [str(link / "greeting.txt")]
    assert "unsaved" in made(daemon, session_id)[0].output


async def test_one_editor_beyond_those_that_may_lend_opens_the_session_all_the_same(
    daemon: Daemon, workspace: Path, nursery: trio.Nursery, frontend: Frontend
) -> None:
    session_id = await frontend.session(workspace, always("done"))
    for number in range(8):
        await frontend.must(SessionLend(session_id, str(number), reads_files=True))
    async with an_editor(daemon, nursery, fs={"readTextFile": True}) as editor:
        opened = {"sessionId": session_id, "cwd": str(workspace), "mcpServers": []}
        await editor.ask("session/load", **opened)
        assert (await editor.prompt(session_id))["stopReason"] == "end_turn"


@pytest.mark.parametrize(
    ("directory", "is_asked"),
    [
        ("{workspace}", True),
        ("{workspace}/", True),
        ("{workspace}/.", True),
        ("", False),
        ("{parent}/link", False),
    ],
)
async def test_only_files_in_the_directory_that_the_editor_has_named_are_asked_for(
    editor: Editor,
    daemon: Daemon,
    frontend: Frontend,
    workspace: Path,
    directory: str,
    *,
    is_asked: bool,
) -> None:
    """The daemon asks for a file of the session's workspace, but the editor has named another."""
    (workspace.parent / "link").symlink_to(workspace)
    session_id = await frontend.session(workspace, calls(read("greeting.txt")), text("done"))
    editor.buffer = lambda _params: {"content": "unsaved"}
    await editor.start(fs={"readTextFile": True})
    named = directory.format(workspace=workspace, parent=workspace.parent)
    await editor.ask("session/load", sessionId=session_id, cwd=named, mcpServers=[])
    await editor.prompt(session_id)
    assert bool(asked(editor)) is is_asked
    assert ("unsaved" in made(daemon, session_id)[0].output) is is_asked


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("{w}/a", True),
        ("{w}/new/b", True),
        ("{w}/inside", True),
        ("{w}", False),
        ("{w}/", False),
        ("{w}/../secret", False),
        ("{w}/a/../../secret", False),
        ("{w}/..", False),
        ("{w}2/a", False),
        ("/etc/passwd", False),
        ("~/.ssh/id_rsa", False),
        ("a", False),
        ("", False),
        ("{w}/outside", False),
        ("{w}/directory/secret", False),
        ("{w}/chain", False),
        ("//{w}/../secret", False),
    ],
)
def test_a_path_out_of_the_directory_is_not_below_it(
    tmp_path: Path, path: str, *, expected: bool
) -> None:
    directory = tmp_path / "w"
    directory.mkdir()
    (tmp_path / "secret").write_text("secret")
    (directory / "a").write_text("a")
    (directory / "inside").symlink_to(directory / "a")
    (directory / "outside").symlink_to(tmp_path / "secret")
    (directory / "directory").symlink_to(tmp_path)
    (directory / "chain").symlink_to(directory / "outside")
    assert is_below(path.format(w=directory), str(directory)) is expected
