"""Ops: everything a frontend can ask of the daemon, and the results of those that answer more.

A frontend sends a `Submission`; the daemon answers `Accepted` or `Rejected` (`answers`). An op
refuses fields that it does not know, so that a misspelt one can't change its meaning.
"""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from tiller_protocol.ids import IdText
from tiller_protocol.items import Decision, Image
from tiller_protocol.settings import Settings, TurnOverrides

Seq = Annotated[int, Meta(ge=0, le=2**62)]

LIST_LIMIT_MAX = 1_000
"""Most sessions in one answer to `session_list`."""

REPLAY_LIMIT_MAX = 100_000
"""Most events that one `replay` may ask for; the answer's size is limited as well."""


class Op(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, tag_field="type"):
    """Base of all ops; the tag is the field `type`."""


class Hello(Op, frozen=True, tag="hello"):
    """Introduces a frontend. Answered by `HelloResult`, or rejected `unsupported_protocol`."""

    protocol_version: int
    name: str


class SessionCreate(Op, frozen=True, tag="session_create"):
    """Makes a session bound to the directory `workspace` (absolute). Answered by `Created`."""

    workspace: str
    agent: str | None = None
    model: str | None = None
    settings: Settings = Settings()


class SessionList(Op, frozen=True, tag="session_list"):
    """Sessions, newest activity first. `after` is `next` of the page before.

    Those that no other session owns; with `owner_id` the sub-agents of that session instead, with
    `sub_agents` all.
    """

    workspace: str | None = None
    archived: bool = False
    limit: Annotated[int, Meta(ge=1, le=LIST_LIMIT_MAX)] = 100
    after: str | None = None
    owner_id: IdText | None = None
    sub_agents: bool = False


class SessionGet(Op, frozen=True, tag="session_get"):
    """One session as a snapshot at a `seq`. Answered by `SessionResult`."""

    session_id: IdText


class SessionDiff(Op, frozen=True, tag="session_diff"):
    """What a session changed in files, all of it or in one turn or step.

    Answered by `SessionDiffResult`.
    """

    session_id: IdText
    turn_id: IdText | None = None
    step: Annotated[int, Meta(ge=1)] | None = None


class SessionConfigure(Op, frozen=True, tag="session_configure"):
    """Changes settings from the next turn on; fields that are `None` stay as they are."""

    session_id: IdText
    settings: Settings


class SessionFork(Op, frozen=True, tag="session_fork"):
    """A new session that shares this one's log up to `at` (default: now)."""

    session_id: IdText
    at: Seq | None = None


class SessionArchive(Op, frozen=True, tag="session_archive"):
    """Puts a session away, or with `archived` false takes it back."""

    session_id: IdText
    archived: bool = True


class SessionDelete(Op, frozen=True, tag="session_delete"):
    """Removes a session, its log and its files for good. Rejected `busy` while a turn runs."""

    session_id: IdText


class Replay(Op, frozen=True, tag="replay"):
    """Events with a `seq` above `after`, oldest first. Answered by `ReplayResult`."""

    session_id: IdText
    after: Seq = 0
    limit: Annotated[int, Meta(ge=1, le=REPLAY_LIMIT_MAX)] = REPLAY_LIMIT_MAX


class UserInput(Op, frozen=True, tag="user_input"):
    """What the user says. `delivery` decides between a new turn, steering and the queue.

    `images` are judged by their content, whatever their `media_type` says, and made as small as
    providers take. `files` are paths, relative to the workspace or absolute: the model is told them
    as they are found, and reads what it needs. Input with one that can't be used is rejected whole.

    Answered by `Started`, `Steered` or `Queued`. `no_active_turn` and `overloaded` hand the input
    back in `data`. With `no_reply` the message enters history and starts no turn, answered without
    a result; `overrides` then have no effect. It steers a turn that runs, and can't be queued.
    """

    session_id: IdText
    text: str = ""
    images: tuple[Image, ...] = ()
    files: tuple[str, ...] = ()
    delivery: Literal["auto", "start", "steer", "queue"] = "auto"
    expected_turn_id: IdText | None = None
    overrides: TurnOverrides = TurnOverrides()
    no_reply: bool = False


class QueueEdit(Op, frozen=True, tag="queue_edit"):
    """Changes one queued input. `move` puts it at `position` (0 is next); `promote` steers it."""

    session_id: IdText
    input_id: IdText
    action: Literal["edit", "remove", "promote", "move"]
    text: str = ""
    position: Annotated[int, Meta(ge=0)] = 0


class Interrupt(Op, frozen=True, tag="interrupt"):
    """Cancels the active turn at once; with `turn_id` only if it is that one.

    With `background_id` it ends that background command instead, and leaves the turn alone.
    """

    session_id: IdText
    turn_id: IdText | None = None
    background_id: IdText | None = None


class Answer(Op, frozen=True, tag="answer"):
    """Resolves a request. `text` is feedback to the model, or with `answer` what was asked for."""

    request_id: IdText
    decision: Decision
    text: str = ""


class Compact(Op, frozen=True, tag="compact"):
    """Summarises history now."""

    session_id: IdText


class Revert(Op, frozen=True, tag="revert"):
    """Puts files and history back to before a turn, or before a step of it.

    A file that somebody else has changed since is left as it is. Answered by `RevertResult`.
    """

    session_id: IdText
    turn_id: IdText
    step: Annotated[int, Meta(ge=1)] | None = None


class Unrevert(Op, frozen=True, tag="unrevert"):
    """Undoes the last revert, as long as no turn has begun since. Answered by `RevertResult`."""

    session_id: IdText


class Shell(Op, frozen=True, tag="shell"):
    """Runs the user's own command in the workspace; its output enters history.

    It is a turn without a step, whose one item is a call of `bash` made `by_user`. No rule is
    asked; it can be interrupted and not be steered. Answered by `Started`, or rejected `busy`.
    """

    session_id: IdText
    command: str


class Catalog(Op, frozen=True, tag="catalog"):
    """What there is: models, agents, tools, commands, servers. Answered by `CatalogResult`.

    With `start_servers` every MCP server that is not up is started, and waited for. With `ask` the
    providers are asked which models they have, which may take some seconds.
    """

    workspace: str | None = None
    start_servers: bool = False
    ask: bool = False


class Project(Op, frozen=True, tag="project"):
    """What a workspace's `.tiller` brings. Answered by `ProjectResult`.

    With `trust` true what has this `digest` counts from the next turn on, with false nothing does.
    """

    workspace: str
    trust: bool | None = None
    digest: str = ""


class DaemonStatus(Op, frozen=True, tag="daemon_status"):
    """Figures about the process. Answered by `DaemonStatusResult`."""


class Shutdown(Op, frozen=True, tag="shutdown"):
    """Ends the daemon: `drain` lets turns finish, `now` interrupts them."""

    mode: Literal["drain", "now"] = "now"


AnyOp = (
    Hello
    | SessionCreate
    | SessionList
    | SessionGet
    | SessionDiff
    | SessionConfigure
    | SessionFork
    | SessionArchive
    | SessionDelete
    | Replay
    | UserInput
    | QueueEdit
    | Interrupt
    | Answer
    | Compact
    | Revert
    | Unrevert
    | Shell
    | Catalog
    | Project
    | DaemonStatus
    | Shutdown
)


class Submission(Struct, frozen=True, omit_defaults=True):
    """What a frontend sends. `id` is its choice and makes the send idempotent."""

    id: IdText
    op: AnyOp
    client: str = ""
    token: str = ""
