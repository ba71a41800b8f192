"""Backing up and restoring, as docs/backup.md says and as users do it; what `rm` leaves."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from e2e.words import always
from support.daemon import CONFIG, Daemon
from support.frontend import Frontend
from tiller_protocol.ops import SessionDelete
from tiller_protocol.places import LOG_FILE


def tiller(daemon: Daemon, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tiller_client", *arguments]
    variables = {**daemon.variables, "COLUMNS": "1000"}
    return subprocess.run(command, env=variables, capture_output=True, text=True, check=False)


@pytest.mark.promise("B51")
async def test_a_backup_is_made_while_the_daemon_runs_and_restored_beside_what_was_left(
    new_daemon: Callable[[], Daemon], nursery: trio.Nursery, workspace: Path, tmp_path: Path
) -> None:
    daemon = new_daemon()
    daemon.start()
    frontend = await Frontend.connect(daemon, nursery)
    session_id = await frontend.session(workspace, always("first"))
    await frontend.say(session_id)
    await frontend.turn_ended(session_id)
    backup = tmp_path / "backup.db"
    made = await trio.to_thread.run_sync(tiller, daemon, "daemon", "backup", str(backup), "--json")
    assert made.returncode == 0, made.stderr
    told = json.loads(made.stdout)
    assert (told["path"], told["size_bytes"]) == (str(backup), backup.stat().st_size)
    again = await trio.to_thread.run_sync(tiller, daemon, "daemon", "backup", str(backup))
    assert (again.returncode, again.stdout) == (1, "")
    assert f"{backup} exists: choose another name" in again.stderr
    await frontend.session(workspace, always("second"))
    log_id = frontend.log_id
    await frontend.disconnect()
    daemon.kill9()
    shutil.copyfile(backup, daemon.places.state / LOG_FILE)

    daemon.start()
    restored = await Frontend.connect(daemon, nursery)
    assert restored.log_id != log_id
    listed = await trio.to_thread.run_sync(tiller, daemon, "ls", "--json")
    assert [json.loads(line)["session_id"] for line in listed.stdout.splitlines()] == [session_id]
    assert "does not belong to" in listed.stderr
    done = await trio.to_thread.run_sync(tiller, daemon, "exec", "--session", session_id, "more")
    assert (done.returncode, done.stdout) == (0, "first\n"), done.stderr
    await restored.disconnect()


async def test_a_deleted_session_leaves_no_recording(
    new_daemon: Callable[..., Daemon], nursery: trio.Nursery, workspace: Path
) -> None:
    daemon = new_daemon(f'record = "recordings"\n{CONFIG}')
    daemon.start()
    frontend = await Frontend.connect(daemon, nursery)
    deleted, kept = [await frontend.session(workspace, always("fine")) for _ in range(2)]
    for session_id in (deleted, kept):
        await frontend.say(session_id)
        await frontend.turn_ended(session_id)
    await frontend.must(SessionDelete(deleted))
    recordings = [path.name for path in daemon.home.rglob("recordings/*")]
    assert recordings == [f"{kept}.jsonl"]
    await frontend.disconnect()
