"""A full disk is reported and survived without damage; with room, work continues (B51).

Tested with a real full file system that holds only the log, and with a limit on the size of every
file that the daemon writes, its own output included.
"""

import signal
import subprocess
import sys
from collections.abc import Callable, Generator
from pathlib import Path

import pytest
import trio

from e2e.clients import Tillers
from e2e.gates import Gate
from e2e.words import always, bash, calls
from support.daemon import Daemon, gone, marked
from support.frontend import Frontend, new_id
from tiller_protocol.answers import Accepted, AnyAnswer, Rejected, SessionListResult
from tiller_protocol.items import Notice
from tiller_protocol.ops import (
    Compact,
    DaemonStatus,
    Revert,
    SessionConfigure,
    SessionCreate,
    SessionDelete,
    SessionFork,
    SessionList,
    UserInput,
)

DISK = "size=16m"
INPUT = "x" * 1_000_000
"""More than the spare room in SQLite's files."""


class Disk:
    """A small file system in memory that can be filled up."""

    def __init__(self, path: Path) -> None:
        self._ballast = path / "ballast"

    def fill(self) -> None:
        """Fill the disk."""
        with self._ballast.open("wb", buffering=0) as file:
            size = 1024 * 1024
            while size:
                try:
                    file.write(b"\0" * size)
                except OSError:
                    size //= 2

    def free(self) -> None:
        """Free the room again."""
        self._ballast.unlink()


@pytest.fixture
def disk(tmp_path: Path) -> Generator[Disk]:
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", DISK, "none", place], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"a small file system can't be mounted here: {mounted.stderr.decode()}")
    yield Disk(place)
    subprocess.run(["umount", "--lazy", place], check=True)


@pytest.fixture
def daemon(new_daemon: Callable[[], Daemon], disk: Disk, tmp_path: Path) -> Daemon:
    """Make a daemon that has its state, and nothing else, on the disk."""
    daemon = new_daemon()
    daemon.places.state.symlink_to(tmp_path / "disk")
    daemon.start()
    return daemon


@pytest.mark.promise("B51")
async def test_a_full_disk_is_said_and_passes(
    frontend: Frontend, workspace: Path, daemon: Daemon, disk: Disk
) -> None:
    """No room → `unavailable` with what to do; reading goes on; with room everything does."""
    daemon.play("roomy", always("fine"))
    session_id = await frontend.session(workspace, model="scripted/roomy")
    other_id = await frontend.session(workspace, always("other"))
    for one in (session_id, other_id):
        await frontend.say(one)
        await frontend.turn_ended(one)
    before = await frontend.log(session_id)
    disk.fill()
    op, submission_id = UserInput(session_id, INPUT), new_id()
    _check_full(await frontend.ask(op, submission_id))
    _check_full(await frontend.ask(UserInput(other_id, INPUT)))
    assert await frontend.log(session_id) == before
    assert (await frontend.snapshot(other_id)).turn is None
    await frontend.must(SessionList(str(workspace)))
    disk.free()
    assert isinstance(await frontend.ask(op, submission_id), Accepted)
    assert (await frontend.turn_ended(session_id, 2)).outcome == "completed"
    await frontend.say(other_id)
    assert (await frontend.turn_ended(other_id, 2)).outcome == "completed"
    await _restart_and_compare(frontend, daemon, session_id)


@pytest.mark.promise("B51")
async def test_every_op_that_is_refused_by_a_full_disk_says_so(
    frontend: Frontend, workspace: Path, disk: Disk
) -> None:
    session_id = await frontend.session(workspace, always("fine"))
    await frontend.say(session_id)
    await frontend.turn_ended(session_id)
    turn_id = next(e.turn_id for e in frontend.events(session_id) if e.turn_id)
    disk.fill()
    for op in (
        UserInput(session_id, "go"),
        UserInput(session_id, "go", delivery="queue"),
        UserInput(session_id, "go", delivery="start"),
        SessionConfigure(session_id, title="new"),
        Compact(session_id),
        Revert(session_id, turn_id),
        SessionCreate(str(workspace)),
        SessionFork(session_id),
        SessionDelete(session_id),
    ):
        for _ in range(2):  # the session is loaded again in between
            answer = await frontend.ask(op)
            assert isinstance(answer, Rejected), op
            _check_full(answer)
    disk.free()
    await frontend.say(session_id, "again")
    assert (await frontend.turn_ended(session_id, 2)).last_message == "fine"


@pytest.mark.promise("B51")
async def test_a_disk_that_fills_up_in_mid_turn_ends_it_cleanly(
    frontend: Frontend, workspace: Path, daemon: Daemon, disk: Disk, tillers: Tillers
) -> None:
    """No room in mid-turn → its processes end; with room the session opens, the turn is closed.

    Without room it can be read, as far as it is stored; then it says what really ended the turn.
    """
    gate = Gate(workspace)
    command = f"{gate.command}; head -c 3000000 /dev/zero | tr '\\0' x; sleep 100; touch never"
    session_id = await frontend.session(workspace, calls(bash(command)), always("I see"))
    await frontend.say(session_id)
    await gate.reached()
    pids = marked(f"TILLER_DAEMON={frontend.log_id}")
    disk.fill()
    gate.open()
    assert {gone(pid, timeout_s=10) for pid in pids} == {True}
    await frontend.must(DaemonStatus())
    for verb in ("show", "log", "queue", "diff"):
        await _reads(daemon, verb, session_id)
    follower = await tillers(daemon, "attach", "--json", session_id)
    cut_off = await frontend.snapshot(session_id)
    assert cut_off.turn is not None
    assert [event.seq for event in await frontend.log(session_id)] == [*range(1, cut_off.seq + 1)]
    _check_full(await frontend.ask(UserInput(session_id, INPUT)))
    await follower.until(cut_off.seq)
    disk.free()
    await _opens(frontend, session_id)
    await follower.until((await frontend.snapshot(session_id)).seq)
    ended = await frontend.turn_ended(session_id)
    assert ended.error is not None
    assert (ended.outcome, ended.error.code) == ("interrupted", "store")
    assert "the disk is full" in ended.error.message
    await frontend.say(session_id, "go on")
    assert (await frontend.turn_ended(session_id, 2)).last_message == "I see"
    assert not (workspace / "never").exists()
    await _restart_and_compare(frontend, daemon, session_id)


@pytest.mark.parametrize("number", [None, signal.SIGTERM, signal.SIGINT])
@pytest.mark.promise("B51")
async def test_exec_ends_when_the_end_of_its_turn_can_not_be_stored(
    frontend: Frontend, workspace: Path, daemon: Daemon, disk: Disk, number: signal.Signals | None
) -> None:
    """It says why and what to do, by itself or at once after a signal; lists agree with it."""
    gate = Gate(workspace)
    command = f"{gate.command}; head -c 3000000 /dev/zero | tr '\\0' x; sleep 100"
    session_id = await frontend.session(workspace, calls(bash(command)), always("I see"))
    executing = await _start(daemon, "exec", "--session", session_id, "go")
    await gate.reached()
    following = await _start(daemon, "attach", "--until-idle", session_id)
    pids = marked(f"TILLER_DAEMON={frontend.log_id}")
    if number:
        executing.send_signal(signal.SIGSTOP)
    disk.fill()
    gate.open()
    assert {gone(pid, timeout_s=10) for pid in pids} == {True}
    if number:
        executing.send_signal(number)
        executing.send_signal(signal.SIGCONT)
    status, said = await _ended(executing)
    assert status == 1
    assert "its end could not be stored" in said
    assert "the disk is full: free some space" in said
    assert f"tiller resume {session_id}" in said
    status, said = await _ended(following)
    assert (status, said.count("its end could not be stored")) == (0, 1)
    listed = await frontend.must(SessionList(str(workspace)))
    assert isinstance(listed, SessionListResult)
    snapshot = await frontend.snapshot(session_id)
    assert [one.status for one in (snapshot, *listed.sessions)] == ["idle", "idle"]
    disk.free()
    await _opens(frontend, session_id)
    notice = next(
        item for item in (await frontend.snapshot(session_id)).items if isinstance(item, Notice)
    )
    assert notice.text.startswith("The daemon could not write its log during this turn")


@pytest.mark.promise("B51")
async def test_a_daemon_on_a_full_disk_says_so_or_starts(
    frontend: Frontend, workspace: Path, daemon: Daemon, disk: Disk
) -> None:
    """Killed with a turn open, then started without room → a sentence; with room all is there."""
    session_id = await frontend.session(workspace, calls(bash("sleep 100")), always("I see"))
    await frontend.say(session_id)
    await frontend.until_call(session_id, "running")
    disk.fill()
    daemon.restart()
    await frontend.reconnect()
    assert daemon.process is not None
    disk.free()
    await _opens(frontend, session_id)
    assert (await frontend.turn_ended(session_id)).outcome == "interrupted"


@pytest.mark.promise("B51")
async def test_nothing_can_be_written_at_all(
    frontend: Frontend, workspace: Path, daemon: Daemon
) -> None:
    """Every write to a file fails, the daemon's own output too → `unavailable`, then as before."""
    session_id = await frontend.session(workspace, always("fine"))
    await frontend.say(session_id)
    await frontend.turn_ended(session_id)
    daemon.limit_files(0)
    for _ in range(3):
        answer = await frontend.ask(UserInput(session_id, "go"))
        assert isinstance(answer, Rejected)
        assert answer.code == "unavailable"
        assert (await frontend.refused(SessionCreate(str(workspace)))).code == "unavailable"
        await frontend.must(DaemonStatus())
    daemon.limit_files()
    await frontend.say(session_id)
    assert (await frontend.turn_ended(session_id, 2)).outcome == "completed"
    await _restart_and_compare(frontend, daemon, session_id)


async def _opens(frontend: Frontend, session_id: str) -> None:
    """Wait until a session that was closed by the log can be used again."""
    with trio.fail_after(10):
        while (await frontend.snapshot(session_id)).turn is not None:
            pass


async def _reads(daemon: Daemon, *words: str) -> None:
    """Check that `tiller` shows the session."""
    done = await trio.run_process(
        [sys.executable, "-m", "tiller_client", *words],
        capture_stdout=True,
        capture_stderr=True,
        check=False,
        env=daemon.variables,
    )
    assert done.returncode == 0, (words, done.stderr)


async def _start(daemon: Daemon, *words: str) -> trio.Process:
    """Start `tiller`, with its stderr in a pipe."""
    return await trio.lowlevel.open_process(
        [sys.executable, "-m", "tiller_client", *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=daemon.variables,
    )


async def _ended(process: trio.Process) -> tuple[int, str]:
    """Wait for the process to end; return its status and what it said on stderr."""
    assert process.stderr is not None
    with trio.fail_after(10):
        said = b"".join([piece async for piece in process.stderr])
        return await process.wait(), " ".join(said.decode().split())


def _check_full(answer: AnyAnswer) -> None:
    assert isinstance(answer, Rejected)
    assert answer.code == "unavailable"
    assert "the disk is full: free some space" in answer.message


async def _restart_and_compare(frontend: Frontend, daemon: Daemon, session_id: str) -> None:
    """Check that the stored events are the same after `kill -9`."""
    before = await frontend.log(session_id)
    daemon.restart()
    await frontend.reconnect()
    assert await frontend.log(session_id) == before


@pytest.mark.promise("B51")
@pytest.mark.nightly
async def test_doctor_sees_a_full_disk_and_one_that_can_not_be_written(
    daemon: Daemon, disk: Disk, tmp_path: Path
) -> None:
    def doctor() -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, "-m", "tiller_client", "doctor"],
            env=daemon.variables,
            capture_output=True,
            text=True,
            check=False,
        )
        (line,) = [line for line in done.stdout.splitlines() if "  state  " in line]
        return done.returncode, line

    (tmp_path / "disk").chmod(0o700)
    disk.fill()
    status, line = await trio.to_thread.run_sync(doctor)
    assert (status, line[:4]) == (1, "fail")
    assert "No space left on device" in line
    disk.free()
    assert "has only" in (await trio.to_thread.run_sync(doctor))[1]
    daemon.kill9()
    await trio.run_process(["mount", "-o", "remount,ro", tmp_path / "disk"])
    try:
        assert "Read-only file system" in (await trio.to_thread.run_sync(doctor))[1]
    finally:
        await trio.run_process(["mount", "-o", "remount,rw", tmp_path / "disk"])
