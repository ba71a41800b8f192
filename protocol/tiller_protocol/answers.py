"""Answers: what the daemon says to a submission, at once and exactly once per submission id."""

from typing import Any

from msgspec import Struct

from tiller_protocol.catalog import (
    AgentSummary,
    CommandSummary,
    HookSummary,
    LanguageServerSummary,
    ModelSummary,
    SandboxSummary,
    ServerSummary,
    ToolSummary,
)
from tiller_protocol.errors import RejectionCode
from tiller_protocol.events import Event, StatusName
from tiller_protocol.items import FileChange, Request
from tiller_protocol.snapshot import Snapshot


class Result(Struct, frozen=True, omit_defaults=True, tag_field="type"):
    """Base of the results; the tag is the field `type`."""


class Limits(Struct, frozen=True):
    """Bounds of this daemon, in bytes unless the name says otherwise."""

    message_bytes_max: int
    replay_bytes_max: int
    input_bytes_max: int


class HelloResult(Result, frozen=True, tag="hello"):
    """Who answers. `log_id` changes when the log is a new one: known `seq` are then void."""

    daemon_version: str
    protocol_version: int
    log_id: str
    limits: Limits


class Created(Result, frozen=True, tag="created"):
    """The new session, by `session_create` or `session_fork`."""

    session_id: str


class SessionSummary(Struct, frozen=True, omit_defaults=True):
    """One line of a list of sessions; `head` is the `seq` of its last event."""

    session_id: str
    workspace: str
    created_at: float
    updated_at: float
    head: int
    status: StatusName = "idle"
    title: str = ""
    archived: bool = False
    turns: int = 0
    cost: float | None = None
    requests: tuple[Request, ...] = ()


class SessionListResult(Result, frozen=True, tag="session_list"):
    """A page of sessions; `next` is given when there are more."""

    sessions: tuple[SessionSummary, ...]
    next: str | None = None


class SessionResult(Result, frozen=True, tag="session"):
    """The session at `snapshot.seq`; later events come by `replay`."""

    snapshot: Snapshot


class ReplayResult(Result, frozen=True, tag="replay"):
    """Events `after` + 1 … `upto` without a gap; `head` is the last one there is."""

    events: tuple[Event, ...]
    upto: int
    head: int


class SessionDiffResult(Result, frozen=True, tag="session_diff"):
    """The files that differ, and `diff`, a unified diff of them; with `cut` its end is missing.

    With `partial` more was changed, of which no snapshot tells.
    """

    files: tuple[FileChange, ...]
    diff: str
    cut: bool = False
    partial: bool = False


class RevertResult(Result, frozen=True, tag="revert"):
    """What became of files, relative to the workspace: those put back, and those left as they are.

    With `partial` there may be more that are left, as no snapshot tells of them.
    """

    files: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()
    partial: bool = False


class Started(Result, frozen=True, tag="started"):
    """The input began this turn."""

    turn_id: str


class Steered(Result, frozen=True, tag="steered"):
    """The input goes to the running turn before its next model request, or is handed back."""

    turn_id: str
    input_id: str


class Queued(Result, frozen=True, tag="queued"):
    """The input waits until the turn would rest; `position` 0 is next."""

    input_id: str
    position: int


class CatalogResult(Result, frozen=True, tag="catalog"):
    """What there is to choose from."""

    models: tuple[ModelSummary, ...]
    tools: tuple[ToolSummary, ...]
    agents: tuple[AgentSummary, ...]
    commands: tuple[CommandSummary, ...] = ()
    servers: tuple[ServerSummary, ...] = ()
    language_servers: tuple[LanguageServerSummary, ...] = ()
    sandbox: SandboxSummary | None = None


class ProjectResult(Result, frozen=True, tag="project"):
    """What a workspace brings: `files`, relative to it, that count only if it is `trusted`.

    `digest` is of their content; it is empty when there are none. With a `problem` they can't be
    trusted. `hooks` are in these files.
    """

    workspace: str
    digest: str
    files: tuple[str, ...]
    trusted: bool
    problem: str = ""
    hooks: tuple[HookSummary, ...] = ()


class DaemonStatusResult(Result, frozen=True, tag="daemon_status"):
    """Figures about the process. `rss_bytes` is 0 where the system does not tell."""

    daemon_version: str
    pid: int
    uptime_s: float
    log_path: str
    sessions: int
    sessions_loaded: int
    turns_running: int
    rss_bytes: int = 0
    draining: bool = False


AnyResult = (
    HelloResult
    | Created
    | SessionListResult
    | SessionResult
    | ReplayResult
    | SessionDiffResult
    | RevertResult
    | Started
    | Steered
    | Queued
    | CatalogResult
    | ProjectResult
    | DaemonStatusResult
)


class Accepted(Struct, frozen=True, omit_defaults=True, tag_field="type", tag="accepted"):
    """The op took effect and is in the log. `result` is there for the ops that answer more."""

    submission_id: str
    result: AnyResult | None = None


class Rejected(Struct, frozen=True, omit_defaults=True, tag_field="type", tag="rejected"):
    """The op had no effect. `message` is for a person, `data` holds what the code needs."""

    submission_id: str
    code: RejectionCode
    message: str
    data: dict[str, Any] = {}


AnyAnswer = Accepted | Rejected
