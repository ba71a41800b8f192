"""A log that is damaged, or taken away from a running daemon: users hear of it at once (B51)."""

import subprocess
import sys
from pathlib import Path

import trio

from e2e.words import always
from support.daemon import Daemon
from support.frontend import Frontend
from tiller_daemon.store.wal import kept_copies, wal_of
from tiller_protocol.answers import Rejected
from tiller_protocol.ops import UserInput
from tiller_protocol.places import LOG_FILE


def tiller(daemon: Daemon, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tiller_client", *arguments]
    return subprocess.run(
        command, env=daemon.variables, capture_output=True, text=True, check=False
    )


async def test_b51_a_bit_that_flips_in_the_write_ahead_log_is_no_secret(
    daemon: Daemon, nursery: trio.Nursery, workspace: Path
) -> None:
    """After `kill -9` whole sessions may be in there; `ls` and `doctor` say that they are not."""
    frontend = await Frontend.connect(daemon, nursery)
    for number in range(3):
        session_id = await frontend.session(workspace, always(f"answer {number}"))
        await frontend.say(session_id)
        await frontend.turn_ended(session_id)
    await frontend.disconnect()
    daemon.kill9()
    path = daemon.places.state / LOG_FILE
    data = bytearray(wal_of(path).read_bytes())
    data[len(data) // 4] ^= 1
    wal_of(path).write_bytes(data)

    daemon.start()
    listed, doctor = tiller(daemon, "ls"), tiller(daemon, "doctor")
    (copy,) = kept_copies(path)
    assert copy.read_bytes() == data
    assert listed.returncode == 0
    assert f"The damaged part is kept as {copy}." in listed.stderr
    assert doctor.returncode == 1
    assert "fail  log" in doctor.stdout
    copy.unlink()
    assert tiller(daemon, "ls").stderr == ""
    assert "fail  log" not in tiller(daemon, "doctor").stdout


async def test_b51_a_log_that_is_deleted_under_the_daemon_takes_nothing_more(
    daemon: Daemon, nursery: trio.Nursery, workspace: Path
) -> None:
    """No turn runs that a restart would not know."""
    frontend = await Frontend.connect(daemon, nursery)
    session_id = await frontend.session(workspace, always("answer"))
    await frontend.say(session_id)
    await frontend.turn_ended(session_id)
    for file in (daemon.places.state).glob(f"{LOG_FILE}*"):
        file.unlink()
    answer = await frontend.ask(UserInput(session_id, "more"))
    assert isinstance(answer, Rejected)
    assert answer.code == "unavailable"
    assert f"{LOG_FILE} was removed or replaced while tillerd was using it" in answer.message
    assert "restart tillerd" in answer.message
    await frontend.disconnect()
