"""A server that crashes, hangs or talks nonsense costs a turn a bounded time and nothing else."""

import os

import pytest
import trio
from trio.testing import MockClock

from lsp_servers.conftest import Room
from support.daemon import gone
from tiller_daemon.lsp.diagnostics import SHOWN_MAX
from tiller_daemon.lsp.documents import OPEN_MAX
from tiller_daemon.lsp.server_process import IDLE_S
from tiller_daemon.lsp.servers import CHANGE_WAIT_S, CRASH_FORGOTTEN_S, CRASHES_MAX, SERVERS_MAX


async def test_new_errors_are_told_and_old_ones_are_not(room: Room) -> None:
    await room.start_rude("polite")
    (room.workspace / "a.txt").write_text("one bad\n")
    assert await room.edit("a.txt", "new\none bad\n") == ""
    told = await room.edit("a.txt", "new\none bad\ntwo bad\nwarn bad\n")
    assert told == "New errors in a.txt (rude):\n  3:3 error: two bad is bad (7)"
    assert await room.edit("other.py", "(") == ""


@pytest.mark.parametrize("how", ["pull", "later", "unversioned", "stale"])
async def test_every_way_to_say_it_is_understood(room: Room, how: str) -> None:
    await room.start_rude(how)
    assert "1:3 error" in await room.edit("a.txt", "bad\n")
    assert await room.edit("a.txt", "good\n") == ""
    assert "2:3 error" in await room.edit("a.txt", "good\nbad\n")


async def test_what_a_server_asks_is_answered(room: Room) -> None:
    await room.start_rude("ask", settings={"rude": {"deep": [1]}})
    await room.edit("a.txt", "bad\n")
    await room.until(lambda: sum("answer" in note for note in room.notes()) == 6)
    by_id = {note["id"]: note for note in room.notes() if "answer" in note}
    assert by_id["q0"]["result"] == [[1], None, {"rude": {"deep": [1]}}]
    assert by_id["q1"]["result"] is by_id["q2"]["result"] is None
    assert by_id["q3"]["result"][0]["uri"] == room.workspace.as_uri()
    assert by_id["q4"]["result"] == {"applied": False}
    assert by_id["q5"]["error"]["code"] == -32601


@pytest.mark.parametrize(
    ("how", "problem"),
    [
        ("crash", "it ended with status 3"),
        ("die", "it ended with status 1"),
        ("refuse", "it could not be initialized: not today"),
        ("garbage", "without a valid Content-Length"),
        ("endless", "end of a header"),
        ("huge", "larger than"),
        ("no-json", "can't be understood"),
        ("wrong-types", "can't be understood"),
    ],
)
async def test_one_that_ends_or_talks_nonsense_is_given_up_after_some_starts(
    room: Room, clock: MockClock, how: str, problem: str
) -> None:
    await room.start_rude(how)
    for number in range(CRASHES_MAX + 2):
        assert await room.edit("a.txt", f"bad {number}\n") == ""
        await room.until_gone()
    assert problem in room.problem
    started = len(room.pids())
    assert started == (0 if how == "die" else CRASHES_MAX)
    assert all(map(gone, room.pids()))
    assert problem in await room.look("a.txt") or "no language server" in await room.look("a.txt")
    clock.jump(CRASH_FORGOTTEN_S + 1)
    await room.edit("a.txt", "bad again\n")
    assert len(room.pids()) == started + (how != "die")


async def test_one_that_was_killed_is_started_again(room: Room) -> None:
    await room.start_rude("polite")
    assert "error" in await room.edit("a.txt", "bad\n")
    room.kill()
    await room.until_gone()
    told = await room.edit("a.txt", "bad\nbad again\n")
    assert told == "New errors in a.txt (rude):\n  2:3 error: bad again is bad (7)"
    assert len(room.pids()) == 2


@pytest.mark.parametrize("how", ["hang", "deaf", "silent"])
async def test_one_that_does_not_answer_is_waited_for_once(
    room: Room, clock: MockClock, how: str
) -> None:
    await room.start_rude(how)
    began = trio.current_time()
    told = await room.edit("a.txt", "bad\n")
    assert told == "(No diagnostics of a.txt yet: rude has not answered within 3 s.)"
    assert CHANGE_WAIT_S <= trio.current_time() - began < CHANGE_WAIT_S + 2
    began = trio.current_time()
    assert await room.edit("a.txt", "bad again\n") == ""
    assert trio.current_time() - began < 2


@pytest.mark.parametrize("how", ["hang", "deaf"])
async def test_one_that_has_hung_is_ended(room: Room, clock: MockClock, how: str) -> None:
    await room.start_rude(how)
    await room.edit("a.txt", "bad\n")
    clock.jump(100)
    await room.until(lambda: bool(room.problem))
    assert "did not respond" in room.problem


async def test_whoever_waits_may_leave_at_any_time(room: Room) -> None:
    """An interrupt does not wait for a server."""
    await room.start_rude("deaf")
    (room.workspace / "a.txt").write_text("x")
    began = trio.current_time()
    for wait in (0.0, 0.05, 0.5):
        with trio.move_on_after(wait):
            await room.edit("a.txt", f"bad {wait}\n")
        with trio.move_on_after(wait):
            await room.look("a.txt")
    assert trio.current_time() - began < 2


async def test_what_was_not_told_in_time_is_told_after_the_next_change(
    room: Room, clock: MockClock
) -> None:
    await room.start_rude("later")
    (room.workspace / "a.txt").write_text("good\n")
    path = room.workspace / "a.txt"
    check = await room.servers.before_change(room.workspace, [path])
    assert check
    path.write_text("first bad\n")
    with trio.move_on_after(0):
        await check.new_errors()
    told = await room.edit("a.txt", "first bad\nsecond bad\n")
    assert "1:3 error: first bad" in told
    assert "2:3 error: second bad" in told


async def test_an_unused_one_is_ended_and_started_again(room: Room, clock: MockClock) -> None:
    await room.start_rude("polite")
    await room.edit("a.txt", "bad\n")
    assert room.running == 1
    clock.jump(IDLE_S + 1)
    await room.until_gone()
    assert room.problem == ""
    assert "error" in await room.edit("a.txt", "bad\nbad too\n")


async def test_servers_and_open_files_are_bounded(room: Room) -> None:
    await room.start_rude("pull", root_markers=("here",))
    for number in range(SERVERS_MAX + 2):
        directory = room.workspace / str(number)
        directory.mkdir()
        (directory / "here").touch()
        assert "error" in await room.edit(f"{number}/a.txt", "bad\n")
    await room.until(lambda: room.running <= SERVERS_MAX)
    for number in range(OPEN_MAX + 2):
        assert "error" in await room.edit(f"1/{number}.txt", "bad\n")
    closed = [note for note in room.notes() if note.get("method") == "textDocument/didClose"]
    assert len(closed) >= 2


async def test_more_than_can_be_told_is_counted(room: Room) -> None:
    await room.start_rude("many")
    told = (await room.edit("a.txt", "bad\n")).splitlines()
    assert len(told) == SHOWN_MAX + 2
    assert told[-1] == f"  … {1000 - SHOWN_MAX} more"


async def test_a_change_by_others_is_noticed(room: Room) -> None:
    await room.start_rude("polite")
    await room.edit("a.txt", "good\n")
    await room.edit("b.txt", "good\n")
    (room.workspace / "a.txt").write_text("bad, by a command\n")
    (room.workspace / "b.txt").unlink()
    found = await room.look()
    assert "a.txt (rude):\n  1:3 error: bad, by a command" in found
    assert "b.txt: there is no text file with this name." in found


async def test_files_that_are_none_are_left_alone(room: Room) -> None:
    await room.start_rude("polite")
    os.mkfifo(room.workspace / "fifo.txt")
    (room.workspace / "directory.txt").mkdir()
    (room.workspace / "large.txt").write_bytes(b"bad\n" * 2**20)
    (room.workspace / "binary.txt").write_bytes(b"bad\0")
    for name in ("fifo.txt", "directory.txt", "large.txt", "binary.txt", "missing.txt"):
        assert "no text file with this name" in await room.look(name)


async def test_nothing_is_left_when_the_daemon_ends(room: Room) -> None:
    await room.start_rude("deaf")
    with trio.move_on_after(1):
        await room.edit("a.txt", "bad\n")
    (pid,) = room.pids()
    await room.close()
    assert gone(pid)


async def test_without_a_server_nothing_is_said(room: Room) -> None:
    await room.start()
    assert await room.edit("a.unknown", "bad") == ""
    assert "no language server for .unknown" in await room.look("a.unknown")
    assert "Name one" in await room.look()
