"""Ops: everything that a frontend can ask the daemon to do.

A frontend sends a `Submission`; the daemon answers `Accepted` or `Rejected` (see `answers`). An op
with an unknown field is rejected, so that a misspelt field can't change the meaning of an op.
"""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from tiller_protocol.daemon import Backup, DaemonStatus
from tiller_protocol.doc import doc
from tiller_protocol.ids import IdText
from tiller_protocol.items import Decision, Image
from tiller_protocol.lending import LentFile, SessionLend
from tiller_protocol.op import Op, SessionRef
from tiller_protocol.searching import InputHistory, SessionList, SessionSearch
from tiller_protocol.settings import Positive, Settings, TurnOverrides

Seq = Annotated[int, Meta(ge=0, le=2**62)]

REPLAY_LIMIT_MAX = 100_000
"""Maximum number of events that one `replay` may ask for; the answer's size is limited, too."""

FOLLOW_LEASE_S = 20.0
"""How long a frontend counts as a follower of a session after a `replay` of the session."""


class Hello(Op, frozen=True, tag="hello"):
    """Introduces a frontend. Answered by `HelloResult`, or rejected as `unsupported_protocol`."""

    protocol_version: Annotated[int, doc("Version of the protocol that the frontend speaks.")]
    name: Annotated[str, doc("Name of the frontend, for display.")]


class SessionCreate(Op, frozen=True, tag="session_create"):
    """Creates a session in a directory. Answered by `Created`."""

    workspace: Annotated[str, doc("Absolute path of an existing, readable directory.")]
    agent: Annotated[str | None, doc("The agent; overrides `settings.agent`.")] = None
    model: Annotated[str | None, doc("The model; overrides `settings.model`.")] = None
    settings: Annotated[Settings, doc("The initial settings.")] = Settings()


class SessionGet(Op, frozen=True, tag="session_get"):
    """Returns a snapshot of a session. Answered by `SessionResult`."""

    session_id: SessionRef


class SessionDiff(Op, frozen=True, tag="session_diff"):
    """Returns a session's changes to files. Answered by `SessionDiffResult`."""

    session_id: SessionRef
    turn_id: Annotated[IdText | None, doc("Show only this turn. Default: all turns.")] = None
    step: Annotated[
        Positive | None, doc("Show only this step, counted from 1. Default: all steps.")
    ] = None


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


class SessionFork(Op, frozen=True, tag="session_fork"):
    """Creates a session that shares another session's log up to an event. Answered by `Created`."""

    session_id: SessionRef
    at: Annotated[Seq | None, doc("`seq` of the last shared event. Default: the latest.")] = None


class SessionArchive(Op, frozen=True, tag="session_archive"):
    """Archives a session, or takes it out of the archive."""

    session_id: SessionRef
    archived: Annotated[bool, doc("Whether to archive the session; false unarchives it.")] = True


class SessionDelete(Op, frozen=True, tag="session_delete"):
    """Deletes a session for good, with its log and its sub-agents.

    Rejected as `busy` while a turn runs, or while a fork shares the log.
    """

    session_id: SessionRef


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


class UserInput(Op, frozen=True, tag="user_input"):
    """Sends the user's input: text, images, files, or several of these.

    Answered by `Started`, `Steered` or `Queued`. If an image or file can't be used, the whole input
    is rejected.
    """

    session_id: SessionRef
    text: Annotated[str, doc("The user's text; may be empty if something is attached.")] = ""
    images: Annotated[
        tuple[Image, ...],
        doc("Images and PDFs. The content determines the format; large images are scaled down."),
    ] = ()
    files: Annotated[
        tuple[str, ...],
        doc(
            "Paths of files, absolute or relative to the workspace. The model gets the paths, not "
            "the content, and reads the files that it needs."
        ),
    ] = ()
    delivery: Annotated[
        Literal["auto", "start", "steer", "queue"],
        doc(
            "`start` begins a turn with this input. `steer` adds the input to the running turn. "
            "`queue` lets the running turn take the input after the turn's other work. `auto` "
            "steers the running turn. If no turn is running, `auto` and `queue` start one. If "
            "older inputs wait, that turn begins with the first of them, and this input is queued."
        ),
    ] = "auto"
    expected_turn_id: Annotated[
        IdText | None, doc("Accept the input only if this turn is running. Default: no check.")
    ] = None
    overrides: Annotated[
        TurnOverrides, doc("Choices for the turn that this input starts, if it starts one.")
    ] = TurnOverrides()
    no_reply: Annotated[
        bool,
        doc(
            "If no turn is running, only add the input to history; the answer has no result. If a "
            "turn is running, the input steers it. Can't be combined with the delivery `queue`."
        ),
    ] = False
    system: Annotated[
        str, doc("Text to add to the system prompt of the turn that this input starts.")
    ] = ""
    context: Annotated[
        str,
        doc(
            "Context for the input, such as a program's output. The model gets it after `text`, "
            "marked as context. Commands and sub-agents named in the context are not called."
        ),
    ] = ""


class QueueEdit(Op, frozen=True, tag="queue_edit"):
    """Changes one queued input. Answered by `Started` if `promote` begins a turn."""

    session_id: SessionRef
    input_id: Annotated[IdText, doc("Id of the queued input.")]
    action: Annotated[
        Literal["edit", "remove", "promote", "move"],
        doc(
            "`edit` replaces the text. `remove` drops the input. `move` changes the position. "
            "`promote` lets the input steer the running turn or, if no turn is running, start one."
        ),
    ]
    text: Annotated[str, doc("The new text, for `edit`.")] = ""
    position: Annotated[int, Meta(ge=0), doc("The new position, for `move`; 0 is next.")] = 0


class TurnContinue(Op, frozen=True, tag="turn_continue"):
    """Starts a turn without a new message. Answered by `Started`, or rejected as `busy`.

    If inputs are queued, the turn takes the first one. Otherwise, the turn continues the work that
    a failure, an interrupt, a limit, a revert or a fork has cut off. Rejected as `empty_input` if
    there is nothing to continue.
    """

    session_id: SessionRef
    overrides: Annotated[
        TurnOverrides,
        doc("Choices for the new turn, in addition to the choices of the continued turn."),
    ] = TurnOverrides()


class Interrupt(Op, frozen=True, tag="interrupt"):
    """Cancels the running turn at once, or ends a background command or sub-agent."""

    session_id: SessionRef
    turn_id: Annotated[IdText | None, doc("The turn to end. Default: the running turn.")] = None
    background_id: Annotated[
        IdText | None, doc("End this background command or sub-agent instead; the turn continues.")
    ] = None


class Answer(Op, frozen=True, tag="answer"):
    """Answers an open request."""

    request_id: Annotated[IdText, doc("Id of the request.")]
    decision: Annotated[
        Decision,
        doc(
            "`once`, `always` and `always_here` approve the call. `always` also allows the "
            "request's `always` patterns for the rest of the session. `always_here` also allows "
            "these patterns for every session in the request's `always_here` directory. `reject` "
            "with a reason in `text` refuses only this call. `reject` without a reason also ends "
            "the turn, unless the request is a question. `answer` replies to a question."
        ),
    ]
    text: Annotated[
        str, doc("For `answer`: the reply. For `reject`: a reason, which the model gets.")
    ] = ""


class Compact(Op, frozen=True, tag="compact"):
    """Replaces old history with a summary. Answered by `Started`, or rejected as `busy`.

    The compaction is a turn without steps. If history is too short, the turn completes with the
    warning `nothing_to_compact`. If no summary can be made, the turn fails.
    """

    session_id: SessionRef
    instructions: Annotated[str, doc("What the user wants the summary to keep.")] = ""


class Revert(Op, frozen=True, tag="revert"):
    """Restores files and history to the state before a turn, or before a step of a turn.

    A file that others have changed since that point stays as it is. Answered by `RevertResult`.
    """

    session_id: SessionRef
    turn_id: Annotated[IdText, doc("The turn to undo, with everything after it.")]
    step: Annotated[
        Positive | None,
        doc("The first step to undo; later steps are undone, too. Default: the whole turn."),
    ] = None


class Unrevert(Op, frozen=True, tag="unrevert"):
    """Undoes the last revert, if no turn has begun since. Answered by `RevertResult`."""

    session_id: SessionRef


class Shell(Op, frozen=True, tag="shell"):
    """Runs the user's own command in the workspace, and adds the output to history.

    No permission rule applies. The command is a turn without steps. The turn's only item is a
    `bash` call with `by_user`. The turn can be interrupted but not steered. Answered by `Started`,
    or rejected as `busy`.
    """

    session_id: SessionRef
    command: Annotated[str, doc("The command line, for the shell.")]


class Catalog(Op, frozen=True, tag="catalog"):
    """Lists models, agents, tools, commands and servers. Answered by `CatalogResult`."""

    workspace: Annotated[
        str | None, doc("Include the definitions in this directory. Default: only the user's.")
    ] = None
    start_servers: Annotated[bool, doc("Start the MCP servers that are not up, and wait.")] = False
    ask: Annotated[bool, doc("Ask the providers for their models; may take some seconds.")] = False
    offers: Annotated[bool, doc("Look for providers that could be configured.")] = False
    session_id: Annotated[
        IdText | None, doc("Include the MCP servers that frontends lend to this session.")
    ] = None


class Project(Op, frozen=True, tag="project"):
    """Returns the definitions in a workspace's `.tiller`. Answered by `ProjectResult`.

    With `trust`, the op also changes whether the definitions are trusted.
    """

    workspace: Annotated[str, doc("Absolute path of the directory.")]
    trust: Annotated[
        bool | None,
        doc(
            "True: trust the content that has this `digest`, from the next turn on. False: trust "
            "nothing. Absent: change nothing."
        ),
    ] = None
    digest: Annotated[str, doc("`digest` of the `ProjectResult` that the user agreed to.")] = ""


class McpLogin(Op, frozen=True, tag="mcp_login"):
    """Logs in to or out of an MCP server. Answered by `McpLoginResult`, or rejected on failure."""

    server: Annotated[str, doc("Name of the server in the configuration.")]
    action: Annotated[
        Literal["begin", "check", "finish", "cancel", "logout"],
        doc(
            "`begin` returns the address to open. `check` tells whether the login is complete. "
            "`finish` completes it with `redirect`, if the browser can't reach the daemon. "
            "`cancel` gives up. `logout` forgets the login."
        ),
    ] = "begin"
    redirect: Annotated[
        str, doc("For `finish`: the browser's last address, or the `code` in that address.")
    ] = ""


class RulesList(Op, frozen=True, tag="rules_list"):
    """Lists lasting rules, which the answer `always_here` makes. Answered by `RulesResult`."""

    workspace: Annotated[str | None, doc("Only rules for this directory. Default: all.")] = None
    session_id: Annotated[
        IdText | None, doc("Only this session's own rules and the lasting rules for its directory.")
    ] = None


class RuleRevoke(Op, frozen=True, tag="rule_revoke"):
    """Revokes one permission rule. Running turns lose the rule, too."""

    rule_id: Annotated[IdText, doc("Id of the rule, from a `RuleSummary`.")]
    session_id: Annotated[
        IdText | None, doc("Session that has the rule; absent for a lasting rule.")
    ] = None


class Shutdown(Op, frozen=True, tag="shutdown"):
    """Ends the daemon."""

    mode: Annotated[
        Literal["drain", "now"],
        doc("`drain` lets running turns finish first, `now` interrupts them."),
    ] = "now"


AnyOp = (
    Hello
    | SessionCreate
    | SessionList
    | SessionSearch
    | InputHistory
    | SessionGet
    | SessionDiff
    | SessionConfigure
    | SessionFork
    | SessionArchive
    | SessionDelete
    | SessionLend
    | LentFile
    | Replay
    | UserInput
    | QueueEdit
    | TurnContinue
    | Interrupt
    | Answer
    | Compact
    | Revert
    | Unrevert
    | Shell
    | Catalog
    | Project
    | McpLogin
    | RulesList
    | RuleRevoke
    | DaemonStatus
    | Backup
    | Shutdown
)


class Submission(Struct, frozen=True, omit_defaults=True):
    """An op, as sent by a frontend."""

    id: Annotated[
        IdText, doc("Id that the frontend chooses. A repeat with the same id gets the same answer.")
    ]
    op: Annotated[AnyOp, doc("The op to execute.")]
    client: Annotated[str, doc("Name of the frontend; shown with its inputs and answers.")] = ""
    token: Annotated[str, doc("Content of the token file in the runtime directory.")] = ""
