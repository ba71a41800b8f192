"""What is true of each op. A new op needs a row in `OPS`."""

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct, structs

from tiller_protocol.daemon import Backup, DaemonStatus
from tiller_protocol.lending import LentFile, SessionLend
from tiller_protocol.op import Op
from tiller_protocol.ops import (
    Accounts,
    Answer,
    AnyOp,
    Catalog,
    Compact,
    Hello,
    Interrupt,
    McpLogin,
    Project,
    QueueEdit,
    Replay,
    Revert,
    RuleRevoke,
    RulesList,
    SessionArchive,
    SessionConfigure,
    SessionCreate,
    SessionDelete,
    SessionDiff,
    SessionFork,
    SessionGet,
    SessionMarkSeen,
    Shell,
    Shutdown,
    TurnContinue,
    Unrevert,
    UserInput,
)
from tiller_protocol.sessions import InputHistory, SessionList, SessionSearch
from tiller_protocol.worktrees import WorktreeLand, WorktreeList, WorktreeRemove, WorktreeRestore


class OpTraits(Struct, frozen=True):
    """What the daemon and its clients must know about an op before they handle it."""

    handled_by: Literal["daemon", "queries", "sessions"]
    """`daemon`: an op about the daemon itself. `queries`: an op that only reads sessions."""
    needs_configuration: bool = True
    """Whether the op must wait until a changed configuration file is read."""
    starts: Literal["nothing", "session", "turn", "other_work"] = "nothing"
    """What the op may start; a stopping daemon rejects an op that starts anything. `turn` is a turn
    of the model."""
    needs_rest: bool = False
    """Whether the op must wait until the task of a finished turn has ended."""
    is_repeatable: bool = False
    """Whether a repeat may take effect again. Answers to other ops of sessions are stored."""
    needs_model: bool = False
    """Whether the daemon searches for a model before it answers, if none is configured."""
    only_reads: bool = False
    """Whether the op only tells what is there; see `only_reads`."""


_ABOUT_DAEMON = OpTraits("daemon", is_repeatable=True)
_ABOUT_DAEMON_ONLY_READS = structs.replace(_ABOUT_DAEMON, only_reads=True)
_QUERY = OpTraits("queries", is_repeatable=True, only_reads=True)
_QUERY_OF_LOG = structs.replace(_QUERY, needs_configuration=False)
_OF_SESSION = OpTraits("sessions")

OPS: Mapping[type[Op], OpTraits] = {
    Hello: _ABOUT_DAEMON_ONLY_READS,
    Catalog: _ABOUT_DAEMON_ONLY_READS,
    Project: _ABOUT_DAEMON_ONLY_READS,
    McpLogin: _ABOUT_DAEMON,
    Accounts: _ABOUT_DAEMON,
    DaemonStatus: _ABOUT_DAEMON_ONLY_READS,
    LentFile: structs.replace(_ABOUT_DAEMON, needs_configuration=False),
    Shutdown: structs.replace(_ABOUT_DAEMON, needs_configuration=False),
    SessionList: _QUERY_OF_LOG,
    SessionSearch: _QUERY_OF_LOG,
    InputHistory: _QUERY_OF_LOG,
    SessionGet: _QUERY_OF_LOG,
    Replay: _QUERY_OF_LOG,
    SessionDiff: _QUERY,
    RulesList: _QUERY,
    SessionCreate: OpTraits("sessions", starts="session", needs_model=True),
    SessionFork: OpTraits("sessions", starts="session"),
    SessionConfigure: _OF_SESSION,
    SessionArchive: _OF_SESSION,
    SessionMarkSeen: OpTraits("sessions", needs_configuration=False),
    SessionDelete: _OF_SESSION,
    # Loans are not in the log, and renewing one twice does no harm.
    SessionLend: OpTraits("sessions", is_repeatable=True),
    UserInput: OpTraits("sessions", starts="turn", needs_rest=True, needs_model=True),
    TurnContinue: OpTraits("sessions", starts="turn", needs_rest=True, needs_model=True),
    # The row is for `promote`; see `traits_of`.
    QueueEdit: OpTraits("sessions", starts="turn", needs_rest=True),
    Interrupt: OpTraits("sessions", needs_configuration=False),
    Answer: OpTraits("sessions", needs_configuration=False),
    Compact: OpTraits("sessions", starts="other_work", needs_rest=True),
    Shell: OpTraits("sessions", starts="other_work", needs_rest=True),
    Revert: OpTraits("sessions", starts="other_work", needs_rest=True),
    Unrevert: OpTraits("sessions", needs_rest=True),
    RuleRevoke: _OF_SESSION,
    WorktreeList: OpTraits("sessions", is_repeatable=True, only_reads=True),
    WorktreeLand: _OF_SESSION,
    WorktreeRemove: _OF_SESSION,
    WorktreeRestore: _OF_SESSION,
    Backup: _OF_SESSION,
}


def traits_of(op: AnyOp) -> OpTraits:
    """Return what is true of an op: of all edits of a queue, only `promote` starts a turn."""
    if isinstance(op, QueueEdit) and op.action != "promote":
        return _OF_SESSION
    return OPS[type(op)]


def only_reads(op: AnyOp) -> bool:
    """Whether an op changes nothing, starts no program, and asks no other server.

    So it does no harm if it comes from somebody who may look at sessions, and nothing else.
    """
    match op:
        case Catalog():
            return not (op.start_servers or op.ask or op.offers)
        case Project():
            return op.trust is None
        case Replay():
            return not op.focus  # which keeps notifications from the user
        case _:
            return traits_of(op).only_reads
