"""A server that crashes, hangs or sends garbage costs a turn a bounded time and nothing else."""

import os

import pytest
import trio
from trio.testing import MockClock

from lsp_servers.conftest import LanguageServerTestbed
from support.daemon import gone
from tiller_daemon.lsp.diagnostics import SHOWN_MAX
from tiller_daemon.lsp.documents import OPEN_MAX
from tiller_daemon.lsp.server_process import IDLE_S
from tiller_daemon.lsp.servers import CHANGE_WAIT_S, CRASH_FORGOTTEN_S, CRASHES_MAX, SERVERS_MAX


async def test_only_new_errors_are_reported(testbed: LanguageServerTestbed) -> None:
    await testbed.start_faulty("polite")
    (testbed.workspace / "a.txt").write_text("one bad\n")
    assert await testbed.edit("a.txt", "new\none bad\n") == ""
    report = await testbed.edit("a.txt", "new\none bad\ntwo bad\nwarn bad\n")
    assert report == "New errors in a.txt (rude):\n  3:3 error: two bad is bad (7)"
    assert await testbed.edit("other.unknown", "(") == ""


@pytest.mark.parametrize("how", ["pull", "later", "unversioned", "stale"])
async def test_every_way_to_send_diagnostics_is_supported(
    testbed: LanguageServerTestbed, how: str
) -> None:
    await testbed.start_faulty(how)
    assert "1:3 error" in await testbed.edit("a.txt", "bad\n")
    assert await testbed.edit("a.txt", "good\n") == ""
    assert "2:3 error" in await testbed.edit("a.txt", "good\nbad\n")


async def test_requests_of_a_server_get_responses(testbed: LanguageServerTestbed) -> None:
    await testbed.start_faulty("ask", settings={"rude": {"deep": [1]}})
    await testbed.edit("a.txt", "bad\n")
    await testbed.wait_until(lambda: sum("answer" in note for note in testbed.notes()) == 6)
    by_id = {note["id"]: note for note in testbed.notes() if "answer" in note}
    assert by_id["q0"]["result"] == [[1], None, {"rude": {"deep": [1]}}]
    assert by_id["q1"]["result"] is by_id["q2"]["result"] is None
    assert by_id["q3"]["result"][0]["uri"] == testbed.workspace.as_uri()
    assert by_id["q4"]["result"] == {"applied": False}
    assert by_id["q5"]["error"]["code"] == -32601


@pytest.mark.parametrize(
    ("how", "problem"),
    [
        ("crash", "It ended with status 3."),
        ("die", "It ended with status 1."),
        ("refuse", "It could not be initialized: not today."),
        ("garbage", "without a valid Content-Length"),
        ("endless", "end of a header"),
        ("huge", "larger than"),
        ("no-json", "can't be understood"),
        ("wrong-types", "can't be understood"),
    ],
)
async def test_a_server_that_keeps_failing_is_given_up_after_some_starts(
    testbed: LanguageServerTestbed, clock: MockClock, how: str, problem: str
) -> None:
    await testbed.start_faulty(how)
    for number in range(CRASHES_MAX + 2):
        report = await testbed.edit("a.txt", f"bad {number}\n")
        assert report.startswith("(No diagnostics for a.txt from rude. "), "each change says so"
        assert problem in report
        await testbed.wait_until_ended()
    assert problem in testbed.problem
    started = len(testbed.pids())
    assert started == (0 if how == "die" else CRASHES_MAX)
    assert all(map(gone, testbed.pids()))
    assert problem in await testbed.request_diagnostics("a.txt")
    clock.jump(CRASH_FORGOTTEN_S + 1)
    await testbed.edit("a.txt", "bad again\n")
    assert len(testbed.pids()) == started + (how != "die")


async def test_a_killed_server_is_started_again(testbed: LanguageServerTestbed) -> None:
    await testbed.start_faulty("polite")
    assert "error" in await testbed.edit("a.txt", "bad\n")
    testbed.kill()
    await testbed.wait_until_ended()
    report = await testbed.edit("a.txt", "bad\nbad again\n")
    assert report == "New errors in a.txt (rude):\n  2:3 error: bad again is bad (7)"
    assert len(testbed.pids()) == 2


@pytest.mark.parametrize("how", ["hang", "deaf", "silent"])
async def test_a_silent_server_is_waited_for_once_and_its_changes_are_never_shown_as_clean(
    testbed: LanguageServerTestbed, clock: MockClock, how: str
) -> None:
    await testbed.start_faulty(how)
    began = trio.current_time()
    report = await testbed.edit("a.txt", "bad\n")
    assert report == "(No diagnostics for a.txt yet: rude has not answered within 3 s.)"
    assert CHANGE_WAIT_S <= trio.current_time() - began < CHANGE_WAIT_S + 2
    began = trio.current_time()
    report = await testbed.edit("a.txt", "bad again\n")
    assert report == "(No diagnostics for a.txt yet: rude has not answered within 0.3 s.)"
    assert trio.current_time() - began < 2


@pytest.mark.parametrize("how", ["hang", "deaf"])
async def test_a_hung_server_is_ended(
    testbed: LanguageServerTestbed, clock: MockClock, how: str
) -> None:
    await testbed.start_faulty(how)
    await testbed.edit("a.txt", "bad\n")
    clock.jump(100)
    await testbed.wait_until(lambda: bool(testbed.problem))
    assert "did not respond" in testbed.problem


async def test_waiting_can_be_cancelled_at_any_time(testbed: LanguageServerTestbed) -> None:
    """An interrupt does not wait for a server."""
    await testbed.start_faulty("deaf")
    (testbed.workspace / "a.txt").write_text("x")
    began = trio.current_time()
    for wait in (0.0, 0.05, 0.5):
        with trio.move_on_after(wait):
            await testbed.edit("a.txt", f"bad {wait}\n")
        with trio.move_on_after(wait):
            await testbed.request_diagnostics("a.txt")
    assert trio.current_time() - began < 2


async def test_late_errors_are_reported_after_the_next_change(
    testbed: LanguageServerTestbed, clock: MockClock
) -> None:
    await testbed.start_faulty("later")
    (testbed.workspace / "a.txt").write_text("good\n")
    path = testbed.workspace / "a.txt"
    check = await testbed.servers.before_change(testbed.workspace, [path])
    assert check
    path.write_text("first bad\n")
    with trio.move_on_after(0):
        await check.new_errors()
    report = await testbed.edit("a.txt", "first bad\nsecond bad\n")
    assert "1:3 error: first bad" in report
    assert "2:3 error: second bad" in report


async def test_a_server_that_is_always_late_is_not_waited_for_but_its_errors_are_reported(
    testbed: LanguageServerTestbed, clock: MockClock
) -> None:
    await testbed.start_faulty("held")
    for text in ("good\n", "good\nbad\n"):
        report = await testbed.edit_meanwhile("a.txt", text, lambda: clock.jump(CHANGE_WAIT_S))
        assert report.startswith("(No diagnostics for a.txt yet: ")
        assert "rror" not in report
        await testbed.release("a.txt", text)
    report = await testbed.edit("a.txt", "good\nbad\nmore\n")
    assert report.startswith("(No diagnostics for a.txt yet: rude has not answered within 0.3 s.)")
    assert report.endswith(
        "Errors before this change in a.txt (rude):\n  2:3 error: bad is bad (7)"
    )
    report = await testbed.edit("a.txt", "good\nbad\nmore\nand more\n")
    assert "not answered within 0.3 s" in report
    assert "rror" not in report, "they are reported once"


async def test_a_server_that_was_slow_to_start_is_waited_for_afterwards(
    testbed: LanguageServerTestbed, clock: MockClock
) -> None:
    await testbed.start_faulty("slow-start")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(testbed.edit, "a.txt", "good\n")
        await testbed.wait_until(lambda: {"method": "initialize"} in testbed.notes())
        clock.jump(CHANGE_WAIT_S)
    await testbed.release("a.txt", "good\n")
    assert "2:3 error: bad" in await testbed.edit("a.txt", "good\nbad\n")


async def test_after_an_answer_to_diagnostics_a_late_server_is_waited_for_again(
    testbed: LanguageServerTestbed, clock: MockClock
) -> None:
    await testbed.start_faulty("held")
    texts = ("good\n", "good\none bad\n", "good\none bad\ntwo bad\n")

    def answer() -> None:
        clock.jump(CHANGE_WAIT_S / 2)
        testbed.let_go(*texts)

    report = await testbed.edit_meanwhile("a.txt", texts[0], lambda: clock.jump(CHANGE_WAIT_S))
    assert "not answered within 3 s" in report
    assert "not answered within 0.3 s" in await testbed.edit("a.txt", texts[1])
    testbed.let_go(*texts[:2])
    assert "2:3 error: one bad" in await testbed.request_diagnostics("a.txt")
    report = await testbed.edit_meanwhile("a.txt", texts[2], answer)
    assert "3:3 error: two bad" in report


async def test_errors_that_follow_an_answer_are_reported_after_the_next_change(
    testbed: LanguageServerTestbed,
) -> None:
    """Some servers publish again after a deeper analysis."""
    await testbed.start_faulty("deeper")
    assert await testbed.edit("a.txt", "bad\n") == ""
    await testbed.release("a.txt", "bad\n", "bad\nmore\n")
    report = await testbed.edit("a.txt", "bad\nmore\n")
    assert "1:3 error: bad" in report


async def test_an_empty_first_list_without_a_version_is_not_no_problems(
    testbed: LanguageServerTestbed,
) -> None:
    await testbed.start_faulty("empty-first")
    assert "1:3 error: bad" in await testbed.edit("a.txt", "bad\n")
    assert "1:3 error: bad" in await testbed.request_diagnostics("a.txt")


async def test_a_server_that_ignores_unchanged_texts_checks_a_file_again(
    testbed: LanguageServerTestbed,
) -> None:
    await testbed.start_faulty("changes-only")
    assert await testbed.edit("a.txt", "good\n") == ""
    assert "no problems" in await testbed.request_diagnostics("a.txt")
    assert "1:3 error: bad" in await testbed.edit("a.txt", "bad\n")
    for _ in range(2):
        assert "1:3 error: bad" in await testbed.request_diagnostics("a.txt")
    assert "2:3 error: too bad" in await testbed.edit("a.txt", "bad\ntoo bad\n")


async def test_an_idle_server_is_ended_and_started_again(
    testbed: LanguageServerTestbed, clock: MockClock
) -> None:
    await testbed.start_faulty("polite")
    await testbed.edit("a.txt", "bad\n")
    assert testbed.running == 1
    clock.jump(IDLE_S + 1)
    await testbed.wait_until_ended()
    assert testbed.problem == ""
    assert "error" in await testbed.edit("a.txt", "bad\nbad too\n")


async def test_servers_and_open_files_are_bounded(testbed: LanguageServerTestbed) -> None:
    await testbed.start_faulty("pull", root_markers=("here",))
    for number in range(SERVERS_MAX + 2):
        directory = testbed.workspace / str(number)
        directory.mkdir()
        (directory / "here").touch()
        assert "error" in await testbed.edit(f"{number}/a.txt", "bad\n")
    await testbed.wait_until(lambda: testbed.running <= SERVERS_MAX)
    for number in range(OPEN_MAX + 2):
        assert "error" in await testbed.edit(f"1/{number}.txt", "bad\n")
    closed = [note for note in testbed.notes() if note.get("method") == "textDocument/didClose"]
    assert len(closed) >= 2


async def test_diagnostics_over_the_limit_are_counted(testbed: LanguageServerTestbed) -> None:
    await testbed.start_faulty("many")
    report = (await testbed.edit("a.txt", "bad\n")).splitlines()
    assert len(report) == SHOWN_MAX + 2
    assert report[-1] == f"  … {1000 - SHOWN_MAX} more"


async def test_changes_by_other_programs_are_noticed(testbed: LanguageServerTestbed) -> None:
    await testbed.start_faulty("polite")
    await testbed.edit("a.txt", "good\n")
    await testbed.edit("b.txt", "good\n")
    (testbed.workspace / "a.txt").write_text("bad, by a command\n")
    (testbed.workspace / "b.txt").unlink()
    report = await testbed.request_diagnostics()
    assert "a.txt (rude):\n  1:3 error: bad, by a command" in report
    assert "b.txt: there is no text file with this name." in report


async def test_files_that_are_not_text_are_ignored(testbed: LanguageServerTestbed) -> None:
    await testbed.start_faulty("polite")
    os.mkfifo(testbed.workspace / "fifo.txt")
    (testbed.workspace / "directory.txt").mkdir()
    (testbed.workspace / "large.txt").write_bytes(b"bad\n" * 2**20)
    (testbed.workspace / "binary.txt").write_bytes(b"bad\0")
    for name in ("fifo.txt", "directory.txt", "large.txt", "binary.txt", "missing.txt"):
        assert "no text file with this name" in await testbed.request_diagnostics(name)


async def test_nothing_is_left_when_the_daemon_ends(testbed: LanguageServerTestbed) -> None:
    await testbed.start_faulty("deaf")
    with trio.move_on_after(1):
        await testbed.edit("a.txt", "bad\n")
    (pid,) = testbed.pids()
    await testbed.close()
    assert gone(pid)


async def test_without_a_server_there_are_no_diagnostics(testbed: LanguageServerTestbed) -> None:
    await testbed.start()
    assert await testbed.edit("a.unknown", "bad") == ""
    assert "no language server for .unknown" in await testbed.request_diagnostics("a.unknown")
    assert "Name one" in await testbed.request_diagnostics()
