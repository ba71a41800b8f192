"""Ops that describe the daemon, and back up its log."""

from typing import Annotated

from tiller_protocol.doc import doc
from tiller_protocol.op import Op, Result


class DaemonStatus(Op, frozen=True, tag="daemon_status"):
    """Returns the status of the daemon's process. Answered by `DaemonStatusResult`."""


class DaemonStatusResult(Result, frozen=True, tag="daemon_status"):
    """The status of the daemon's process."""

    daemon_version: Annotated[str, doc("Version of the daemon's program, such as `1.2.0`.")]
    pid: Annotated[int, doc("The daemon's process id.")]
    uptime_s: Annotated[float, doc("Seconds since the daemon started.")]
    log_path: Annotated[str, doc("Path of the database with all sessions.")]
    sessions: Annotated[int, doc("Number of sessions in the log.")]
    sessions_loaded: Annotated[int, doc("Number of sessions in memory.")]
    turns_running: Annotated[int, doc("Number of running turns.")]
    rss_bytes: Annotated[int, doc("Resident memory; 0 if the system does not report it.")] = 0
    draining: Annotated[bool, doc("Whether the daemon is about to end.")] = False
    problems: Annotated[tuple[str, ...], doc("Problems with the log, in whole sentences.")] = ()
    recordings_path: Annotated[
        str, doc("Directory of the recordings; empty if responses are not recorded.")
    ] = ""


class Backup(Op, frozen=True, tag="backup"):
    """Copies the log into a new file while the daemon runs. Answered by `BackupResult`."""

    path: Annotated[str, doc("The absolute path of the new file, on the daemon's machine.")]


class BackupResult(Result, frozen=True, tag="backup"):
    """The log was copied."""

    path: Annotated[str, doc("The path of the copy.")]
    size_bytes: Annotated[int, doc("The size of the copy.")]
