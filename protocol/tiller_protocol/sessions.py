"""Ops on sessions: list and search, create, change, delete, and read their events and changes."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from tiller_protocol.doc import doc
from tiller_protocol.events import Event
from tiller_protocol.ids import IdText
from tiller_protocol.items import FileChange
from tiller_protocol.op import Op, Result, SessionRef
from tiller_protocol.settings import Positive, Settings
from tiller_protocol.snapshot import SessionSummary, Snapshot
from tiller_protocol.worktrees import WorktreeChoice

LIST_LIMIT_MAX = 1_000
"""Maximum number of sessions in one answer to `session_list`."""

QUERY_CHARS_MAX = 1_000
"""Maximum number of characters in a query; people type about ten words."""

SEARCH_LIMIT_MAX = 100
"""Maximum number of sessions in one answer to `session_search`."""

INPUTS_LIMIT_MAX = 1_000
"""Maximum number of inputs in one answer to `input_history`."""

REPLAY_LIMIT_MAX = 100_000
"""Maximum number of events that one `replay` may ask for; the answer's size is limited, too."""

FOLLOW_LEASE_S = 20.0
"""How long a frontend counts as a follower of a session after a `replay` of the session."""

Seq = Annotated[int, Meta(ge=0, le=2**62)]

TextKind = Literal["title", "input", "answer", "files"]

OfWorkspace = Annotated[str | None, doc("Only sessions in this directory. Default: all.")]

AfterPage = Annotated[str | None, doc("`next` of the previous page. Default: the first page.")]

NextPage = Annotated[str | None, doc("`after` for the next page; absent on the last page.")]

NotIndexed = Annotated[
    int,
    doc(
        "Number of sessions that are not indexed yet, for example after an upgrade; their texts "
        "may be missing."
    ),
]


class SessionList(Op, frozen=True, tag="session_list"):
    """Lists sessions, most recently active first. Answered by `SessionListResult`.

    Sessions of sub-agents are listed only if `owner_id` or `sub_agents` asks for them.
    """

    workspace: OfWorkspace = None
    archived: Annotated[
        bool, doc("List archived sessions instead of sessions that are not archived.")
    ] = False
    limit: Annotated[
        int, Meta(ge=1, le=LIST_LIMIT_MAX), doc("Maximum number of sessions in the answer.")
    ] = 100
    after: AfterPage = None
    owner_id: Annotated[
        IdText | None, doc("List only the sub-agents that work for this session.")
    ] = None
    sub_agents: Annotated[bool, doc("Include the sessions of all sub-agents.")] = False
    sessions: Annotated[
        tuple[IdText, ...],
        Meta(max_length=LIST_LIMIT_MAX),
        doc("List only these sessions, whether they are archived or not. Default: all."),
    ] = ()
    focus: Annotated[
        bool,
        doc(
            "Whether a person looks at a list that the frontend keeps up to date. This counts as "
            "if they had done something now, so a frontend should ask at least every 5 s."
        ),
    ] = False


class SessionListResult(Result, frozen=True, tag="session_list"):
    """A page of sessions."""

    sessions: Annotated[tuple[SessionSummary, ...], doc("Sessions, most recently active first.")]
    next: NextPage = None
    problems: Annotated[
        tuple[str, ...], doc("Reasons, in whole sentences, why sessions may be missing.")
    ] = ()


class SessionSearch(Op, frozen=True, tag="session_search"):
    """Finds sessions by words in their texts. Answered by `SessionSearchResult`.

    The search covers titles, inputs, the model's answers and names of changed files. It leaves out
    the sessions of sub-agents. Reverted text is still found. Case and accents are ignored. Rejected
    as `empty_input` if the query contains no word.
    """

    query: Annotated[
        str,
        Meta(max_length=QUERY_CHARS_MAX),
        doc(
            "Words that must all occur in the same text. Words in quotes are a phrase; `*` at the "
            "end of a word stands for any ending. No other character is special."
        ),
    ]
    workspace: OfWorkspace = None
    archived: Annotated[bool, doc("Include archived sessions.")] = False
    limit: Annotated[
        int, Meta(ge=1, le=SEARCH_LIMIT_MAX), doc("Maximum number of sessions in the answer.")
    ] = 20
    after: AfterPage = None


class FoundText(Struct, frozen=True, omit_defaults=True):
    """A text of a session that matches a query."""

    kind: Annotated[
        TextKind,
        doc("Kind of text. `files`: names of files that a step changed, separated by spaces."),
    ]
    pieces: Annotated[
        tuple[str, ...],
        doc(
            "An excerpt in one line, in pieces that alternate: text outside a match, then a "
            "match, and so on. The first piece may be empty."
        ),
    ]
    time: Annotated[
        float,
        doc("Time of the text in Unix seconds. A title has the session's time of creation."),
    ]
    seq: Annotated[int, doc("`seq` of the event that has the text; 0 if the text is a title.")] = 0
    turn_id: Annotated[
        str, doc("Id of the turn that the text belongs to; empty if there is none.")
    ] = ""
    item_id: Annotated[
        str, doc("Id of the item that has the text; empty if the text is a title.")
    ] = ""


class FoundSession(Struct, frozen=True, omit_defaults=True):
    """A session with texts that match a query."""

    session: Annotated[SessionSummary, doc("The session, as in `session_list`.")]
    texts: Annotated[
        tuple[FoundText, ...],
        doc("Up to three matching texts: the title first, then the newest texts."),
    ]


class SessionSearchResult(Result, frozen=True, tag="session_search"):
    """A page of the sessions that match a query."""

    found: Annotated[tuple[FoundSession, ...], doc("Sessions, most recently active first.")]
    next: NextPage = None
    not_indexed: NotIndexed = 0


class InputHistory(Op, frozen=True, tag="input_history"):
    """Lists the user's inputs in all sessions, newest first. Answered by `InputHistoryResult`.

    A repeated input is listed once. The prompts of sub-agents are left out.
    """

    workspace: OfWorkspace = None
    limit: Annotated[
        int, Meta(ge=1, le=INPUTS_LIMIT_MAX), doc("Maximum number of inputs in the answer.")
    ] = 100
    after: AfterPage = None


class PastInput(Struct, frozen=True, omit_defaults=True):
    """An earlier input of the user."""

    text: Annotated[str, doc("Text of the input.")]
    time: Annotated[float, doc("Time of the input in Unix seconds.")]
    session_id: Annotated[str, doc("The session.")]


class InputHistoryResult(Result, frozen=True, tag="input_history"):
    """A page of the user's inputs."""

    inputs: Annotated[tuple[PastInput, ...], doc("The inputs, newest first.")]
    next: NextPage = None
    not_indexed: NotIndexed = 0


class SessionCreate(Op, frozen=True, tag="session_create"):
    """Creates a session in a directory. Answered by `Created`."""

    workspace: Annotated[str, doc("Absolute path of an existing, readable directory.")]
    agent: Annotated[str | None, doc("The agent; overrides `settings.agent`.")] = None
    model: Annotated[str | None, doc("The model; overrides `settings.model`.")] = None
    settings: Annotated[Settings, doc("The initial settings.")] = Settings()
    worktree: Annotated[
        WorktreeChoice | None,
        doc(
            "Work in a worktree of the repository around `workspace`, in the same subdirectory. It "
            "is made if it does not exist. Rejected as `worktree` if that is not possible."
        ),
    ] = None


class SessionFork(Op, frozen=True, tag="session_fork"):
    """Creates a session that shares another session's log up to an event. Answered by `Created`."""

    session_id: SessionRef
    at: Annotated[Seq | None, doc("`seq` of the last shared event. Default: the latest.")] = None


class Created(Result, frozen=True, tag="created"):
    """The session that `session_create` or `session_fork` has created."""

    session_id: Annotated[str, doc("Id of the new session.")]


class SessionGet(Op, frozen=True, tag="session_get"):
    """Returns a snapshot of a session. Answered by `SessionResult`."""

    session_id: SessionRef


class SessionResult(Result, frozen=True, tag="session"):
    """The current state of a session."""

    snapshot: Annotated[Snapshot, doc("The state at `snapshot.seq`; `replay` has later events.")]


class SessionDiff(Op, frozen=True, tag="session_diff"):
    """Returns a session's changes to files. Answered by `SessionDiffResult`."""

    session_id: SessionRef
    turn_id: Annotated[IdText | None, doc("Show only this turn. Default: all turns.")] = None
    step: Annotated[
        Positive | None, doc("Show only this step, counted from 1. Default: all steps.")
    ] = None


class SessionDiffResult(Result, frozen=True, tag="session_diff"):
    """A session's changes to files."""

    files: Annotated[tuple[FileChange, ...], doc("The changed files.")]
    diff: Annotated[str, doc("Unified diff, without the content of protected files.")]
    cut: Annotated[bool, doc("Whether the list or the diff was too long and has been cut.")] = False
    partial: Annotated[bool, doc("Whether some changes may be unknown and thus missing.")] = False


class SessionConfigure(Op, frozen=True, tag="session_configure"):
    """Changes a session's title, settings or workspace; settings apply from the next turn on."""

    session_id: SessionRef
    settings: Annotated[Settings, doc("New settings; absent fields stay as they are.")] = Settings()
    title: Annotated[str | None, doc("The new title, in one line. Default: no change.")] = None
    clear: Annotated[
        tuple[str, ...], doc("Settings to reset to their defaults before `settings` takes effect.")
    ] = ()
    workspace: Annotated[
        str | None, doc("Absolute path to which the workspace has moved. `busy` during a turn.")
    ] = None


class SessionArchive(Op, frozen=True, tag="session_archive"):
    """Archives a session, or takes it out of the archive."""

    session_id: SessionRef
    archived: Annotated[bool, doc("Whether to archive the session; false unarchives it.")] = True


class SessionMarkSeen(Op, frozen=True, tag="session_mark_seen"):
    """Says that a user has seen a session, so that no frontend lists it as unseen."""

    session_id: SessionRef
    until: Annotated[Seq, doc("`seq` of the last event that the user has seen.")]


class SessionDelete(Op, frozen=True, tag="session_delete"):
    """Deletes a session for good, with its log and its sub-agents.

    Rejected as `busy` while a turn runs, or while a fork shares the log.
    """

    session_id: SessionRef
    if_empty: Annotated[
        bool,
        doc(
            "Do nothing unless the session is without any input or turn; then its new worktree "
            "goes, too."
        ),
    ] = False


class Replay(Op, frozen=True, tag="replay"):
    """Returns a session's events from the log, oldest first. Answered by `ReplayResult`."""

    session_id: SessionRef
    after: Annotated[Seq, doc("Return events with a higher `seq` than this.")] = 0
    limit: Annotated[
        int,
        Meta(ge=1, le=REPLAY_LIMIT_MAX),
        doc("Maximum number of events. `replay_bytes_max` limits the answer, too."),
    ] = REPLAY_LIMIT_MAX
    follower: Annotated[
        IdText | None,
        doc(
            "An id that the frontend chooses when it opens the session, and sends with each "
            "`replay`. After each `replay`, the frontend counts as a follower for 20 s, so it "
            "should submit the next one within 10 s. Other frontends see the name from the "
            "submission's `client`."
        ),
    ] = None
    leaves: Annotated[bool, doc("Whether `follower` has closed the session.")] = False
    focus: Annotated[
        bool,
        doc(
            "Whether a person looks at the frontend `follower` now. While anybody looks, "
            "`[[notify]]` sends nothing. A frontend that can't tell says nothing; then only its "
            "ops show that a person is there."
        ),
    ] = False


class ReplayResult(Result, frozen=True, tag="replay"):
    """A session's events from `after` + 1 to `upto`."""

    events: Annotated[
        tuple[Event, ...],
        doc("The events, in order. Deltas of items completed long ago may be missing."),
    ]
    upto: Annotated[int, doc("The answer covers all events up to this `seq`.")]
    head: Annotated[int, doc("`seq` of the last event in the log.")]
    followers: Annotated[
        tuple[str, ...], doc("Names of the other frontends that have the session open now.")
    ] = ()
