"""Ops about the daemon itself: its greeting, its status, a backup of its log, and its end."""

from typing import Annotated, Literal

from msgspec import Struct

from tiller_protocol.doc import doc
from tiller_protocol.op import Op, Result


class Hello(Op, frozen=True, tag="hello"):
    """Introduces a frontend. Answered by `HelloResult`, or rejected as `unsupported_protocol`."""

    protocol_version: Annotated[int, doc("Version of the protocol that the frontend speaks.")]
    name: Annotated[str, doc("Name of the frontend, for display.")]


class Limits(Struct, frozen=True):
    """Limits of this daemon, in bytes."""

    message_bytes_max: Annotated[int, doc("Largest message in either direction.")]
    replay_bytes_max: Annotated[int, doc("Largest answer to `replay`, unless one event is larger.")]
    input_bytes_max: Annotated[int, doc("Largest input: text and images together.")]


class HelloResult(Result, frozen=True, tag="hello"):
    """Identifies the daemon and its log, and shows whether to restart the daemon."""

    daemon_version: Annotated[str, doc("Version of the daemon's program, such as `1.2.0`.")]
    protocol_version: Annotated[int, doc("Version of the protocol that the daemon speaks.")]
    log_id: Annotated[str, doc("Id of the log. If the id has changed, earlier `seq`s are invalid.")]
    limits: Annotated[Limits, doc("Sizes that the daemon accepts.")]
    missing_keys: Annotated[
        tuple[str, ...],
        doc(
            "Missing environment variables for providers' keys: those that the configuration names "
            "and, if no model is configured, the well-known ones."
        ),
    ] = ()
    replaced: Annotated[
        bool, doc("Whether the daemon's program has been replaced since the daemon was started.")
    ] = False
    searches_model: Annotated[
        bool,
        doc(
            "Whether no model is known. Then new sessions and turns first look for a model server "
            "on the daemon's machine."
        ),
    ] = False


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


class Shutdown(Op, frozen=True, tag="shutdown"):
    """Ends the daemon."""

    mode: Annotated[
        Literal["drain", "now"],
        doc("`drain` lets running turns finish first, `now` interrupts them."),
    ] = "now"
