"""The union of all ops: everything that a frontend can ask the daemon to do.

Each op is in the module of its subject, together with its result.

A frontend sends a `Submission`; the daemon answers `Accepted` or `Rejected` (see `answers`). An op
with an unknown field is rejected, so that a misspelt field can't change the meaning of an op.
"""

from typing import Annotated

from msgspec import Struct

from tiller_protocol.catalog import Accounts, Catalog, McpLogin, Project
from tiller_protocol.daemon import Backup, DaemonStatus, Hello, Shutdown
from tiller_protocol.doc import doc
from tiller_protocol.ids import IdText
from tiller_protocol.lending import LentFile, SessionLend
from tiller_protocol.sessions import (
    InputHistory,
    Replay,
    SessionArchive,
    SessionConfigure,
    SessionCreate,
    SessionDelete,
    SessionDiff,
    SessionFork,
    SessionGet,
    SessionList,
    SessionMarkSeen,
    SessionSearch,
)
from tiller_protocol.settings import RuleRevoke, RulesList
from tiller_protocol.turns import (
    Answer,
    Compact,
    Interrupt,
    QueueEdit,
    Revert,
    Shell,
    TurnContinue,
    Unrevert,
    UserInput,
)
from tiller_protocol.worktrees import (
    WorktreeLand,
    WorktreeList,
    WorktreeRemove,
    WorktreeRestore,
)

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
    | SessionMarkSeen
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
    | Accounts
    | RulesList
    | RuleRevoke
    | WorktreeList
    | WorktreeLand
    | WorktreeRemove
    | WorktreeRestore
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
