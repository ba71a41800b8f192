"""`tiller board` and `ls --watch` on a real terminal, with a real daemon."""

import json
import subprocess
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from e2e.gates import Gate
from e2e.test_worktrees import git, in_worktree
from e2e.words import always, bash, calls, said_in
from support.chat import ChatTerminal
from support.daemon import Daemon
from support.frontend import TIMEOUT_S, Frontend
from tiller_protocol.answers import SessionListResult
from tiller_protocol.events import SessionSeen
from tiller_protocol.ops import Answer, SessionArchive, SessionConfigure, SessionList

ANSWERABLE = "a letter chooses, Enter answers"
GUARDED = bash("touch made")
HINTS = "? keys · q leaves"

Opens = Callable[..., ChatTerminal]


@pytest.fixture
def opens(daemon: Daemon) -> Generator[Opens]:
    """Yield a function that opens a board, which ends with the test."""
    opened: list[ChatTerminal] = []

    def start(*arguments: str, **more: object) -> ChatTerminal:
        board = ChatTerminal.start(daemon, "board", *arguments, size=(110, 30), **more)  # type: ignore[arg-type]
        opened.append(board)
        return board

    yield start
    for board in opened:
        board.close()


async def test_a_session_needs_the_user_is_answered_works_ends_and_is_seen(
    opens: Opens, frontend: Frontend, workspace: Path
) -> None:
    gate = Gate(workspace)
    guarded = bash(f"touch made; {gate.command}")
    session = await frontend.session(
        workspace, calls(guarded), always("All of it is done."), approve="ask"
    )
    await frontend.must(SessionConfigure(session, title="Make it"))
    board = opens("-C", str(workspace))
    await board.sees("idle · 1", "Make it", "repository", HINTS)
    await frontend.say(session)
    await board.sees("needs you · 1", "? Make it", "touch made")
    board.press("a")
    await board.sees("y  yes, once", ANSWERABLE)
    board.press("y\r")
    await board.sees("working · 1", "● Make it", f"bash touch made; {gate.command}", "answered")
    await gate.pass_one()
    await board.sees("done, not seen · 1", "✓ Make it", "All of it is done.")
    board.press("m")
    await board.sees("idle · 1", "seen: Make it")
    assert not (await frontend.snapshot(session)).requests
    board.press("q")
    assert await board.end() == 0


async def test_a_chat_returns_to_the_board_which_has_then_seen_the_session(
    opens: Opens, frontend: Frontend, workspace: Path
) -> None:
    session = await frontend.session(workspace, always("It is cached."))
    await frontend.say(session)
    await frontend.turn_ended(session)
    board = opens("-C", str(workspace))
    await board.sees("done, not seen · 1", HINTS)
    board.press("\r")
    await board.sees("write a message", "Ctrl-D leaves")
    await frontend.until_body(session, SessionSeen)
    board.press("\x04")
    await board.sees("idle · 1", "It is cached.", HINTS)
    board.press("\x03")
    assert await board.end() == 0


async def test_messages_an_interrupt_and_a_new_session_are_sent_from_the_board(
    opens: Opens, daemon: Daemon, frontend: Frontend, workspace: Path
) -> None:
    gate = Gate(workspace)
    session = await frontend.session(workspace, calls(bash(gate.command)), always("Done."))
    board = opens("-C", str(workspace))
    await board.sees("idle · 1", HINTS)
    board.press("s")
    await board.sees("Enter starts a turn")
    board.press("begin\r")
    await board.sees("working · 1", "sent: begin")
    await gate.reached()
    board.press("s")
    await board.sees("Enter steers, Tab queues")
    board.press("and then this\t")
    await board.sees("queued: and then this")
    board.press("i")
    await board.sees("i again interrupts")
    board.press("i")
    await board.sees("waiting · 1", "1 message waiting, after a turn that was interrupted")
    gate.close()
    assert [one.text for one in (await frontend.snapshot(session)).queue] == ["and then this"]
    board.press("x")
    await board.sees("there are no sessions", "archived")
    board.press("u")
    await board.sees("waiting · 1", "is back")
    board.press("chello\r")
    await board.sees("2 sessions", "started")
    board.press("q")
    assert await board.end() == 0


async def test_a_session_from_an_empty_board_goes_if_the_user_says_nothing_in_it(
    opens: Opens, frontend: Frontend, workspace: Path
) -> None:
    board = opens("-C", str(workspace))
    await board.sees("there are no sessions; c starts one here")
    board.press("w")
    await board.sees("new session in a worktree")
    board.press("\r")
    await board.sees("write a message", "Ctrl-D leaves")
    board.press("\x04")
    await board.sees("there are no sessions; c starts one here")
    board.press("c")
    await board.sees("new session: Enter starts it")
    board.press("\r")
    await board.sees("write a message", "Ctrl-D leaves")
    board.press("!true\r")
    await board.sees("completed")
    board.press("\x04")
    await board.sees("1 session", "repository", HINTS)
    assert not workspace.with_name("repository.worktrees").exists()
    listed = await frontend.must(SessionList(str(workspace)))
    assert isinstance(listed, SessionListResult)
    assert [one.turns for one in listed.sessions] == [1]


async def test_the_board_outlives_its_daemon(
    opens: Opens, new_daemon: Callable[..., Daemon], workspace: Path, nursery: object
) -> None:
    daemon = new_daemon()
    daemon.start()
    frontend = await Frontend.connect(daemon, nursery)  # type: ignore[arg-type]
    session = await frontend.session(workspace, always("Done."))
    await frontend.must(SessionConfigure(session, title="Make it"))
    await frontend.close()
    board = ChatTerminal.start(daemon, "board", size=(110, 30))
    await board.sees("Make it", HINTS)
    await daemon.terminate()
    await board.sees("! this machine has said nothing", "Make it")
    daemon.start()
    await board.until(lambda: "said nothing" not in board.screen and "Make it" in board.screen)
    board.close()


async def test_without_a_window_the_plain_form_is_named(opens: Opens, daemon: Daemon) -> None:
    board = opens(term="dumb")
    await board.shows("TERM is 'dumb'", "for lines of text: tille")
    assert await board.end() != 0
    command = [sys.executable, "-m", "tiller_client", "board"]
    piped = await trio.run_process(
        command, stdin=b"", capture_stderr=True, check=False, env=daemon.variables
    )
    assert piped.returncode != 0
    assert b"tiller board needs a terminal; for lines of text: tiller ls --watch" in piped.stderr


async def test_a_group_that_does_not_exist_is_wrong_usage(daemon: Daemon) -> None:
    done = await trio.run_process(
        [sys.executable, "-m", "tiller_client", "board", "--json", "group:asking"],
        stdin=b"", capture_stderr=True, check=False, env=daemon.variables,
    )  # fmt: skip
    assert done.returncode == 2
    assert b"there is no group asking; groups: needs_you, working" in done.stderr


@asynccontextmanager
async def lines_of(daemon: Daemon, *arguments: str) -> AsyncGenerator[Callable[[], Awaitable[str]]]:
    """Run `tiller` and yield a function that returns its next line."""
    process = await trio.lowlevel.open_process(
        [sys.executable, "-m", "tiller_client", *arguments],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=daemon.variables,
    )  # fmt: skip
    rest = b""

    async def next_line() -> str:
        nonlocal rest
        assert process.stdout is not None
        with trio.fail_after(TIMEOUT_S):
            while b"\n" not in rest:
                piece = await process.stdout.receive_some()
                assert piece, "it ended"
                rest += piece
        line, _, rest = rest.partition(b"\n")
        return line.decode()

    try:
        yield next_line
    finally:
        process.kill()
        await process.wait()


async def test_the_plain_form_prints_a_line_when_a_session_needs_something_else(
    daemon: Daemon, frontend: Frontend, workspace: Path
) -> None:
    session = await frontend.session(workspace, calls(GUARDED), always("All done."), approve="ask")
    await frontend.must(SessionConfigure(session, title="Make it"))
    async with lines_of(daemon, "ls", "--watch", "-C", str(workspace)) as line:
        assert "idle            Make it" in await line()
        await frontend.say(session)
        # What happens within a tenth of a second may share a line.
        while "needs you       Make it · " not in (said := await line()):
            assert "working         Make it" in said
        request = await frontend.request_opened(session)
        await frontend.must(Answer(request.id, "reject", "no"))
        while "done, not seen  Make it · All done." not in (said := await line()):
            assert "working         Make it" in said


async def test_programs_get_the_sessions_and_then_each_change_as_json(
    daemon: Daemon, frontend: Frontend, workspace: Path
) -> None:
    session = await frontend.session(workspace, always("All done."))
    arguments = ("board", "--json", "--follow", "-C", str(workspace))
    async with lines_of(daemon, *arguments) as line:
        assert json.loads(await line()) == {
            "type": "host", "host": "", "state": "connected", "message": ""
        }  # fmt: skip
        first = json.loads(await line())
        assert (first["type"], first["host"], first["group"]) == ("session", "", "idle")
        assert first["session"]["session_id"] == session
        await frontend.say(session)
        while (changed := json.loads(await line()))["group"] != "done":
            assert changed["group"] == "working"
        assert changed["session"]["last_line"] == "All done."
        await frontend.must(SessionArchive(session))
        while (gone := json.loads(await line()))["type"] != "gone":
            pass
        assert gone == {"type": "gone", "host": "", "session_id": session}


async def test_l_twice_lands_a_worktree_and_conflicts_become_a_message(
    opens: Opens, frontend: Frontend, workspace: Path
) -> None:
    git(workspace, "config", "user.name", "t")
    git(workspace, "config", "user.email", "t@example.invalid")
    commit = "git add -A && git commit -qm Work"
    work = calls(bash(f"echo a >>greeting.txt; {commit}"))
    session = await in_worktree(frontend, workspace, "one", work, always("done"))
    await frontend.say(session)
    await frontend.turn_ended(session)
    place = Path((await frontend.snapshot(session)).workspace)
    board = opens("-C", str(workspace))  # its worktrees belong to a directory
    await board.sees("done, not seen · 1", HINTS)
    board.press("l")
    await board.sees("l again lands the worktree")
    board.press("l")
    await board.sees("landed: master is at", "landed · done")
    assert (workspace / "greeting.txt").read_text() == "hello\na\n"
    git(workspace, "commit", "-q", "--amend", "-m", "Other")
    (workspace / "greeting.txt").write_text("else\n")
    git(workspace, "commit", "-qam", "Else")
    (place / "greeting.txt").write_text("more\n")
    git(place, "commit", "-qam", "More")
    board.press("ll")
    await board.sees("There are conflicts with `master` in greeting.txt. Nothing has changed.")
    await board.sees("Merge the branch `master` into `one`", "Resolve the conflicts")
    board.press("\r")
    await frontend.turn_ended(session, 2)
    assert "git merge master" in said_in(frontend.requests(session)[-1].items)[-1]
