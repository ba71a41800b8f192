"""Answers: the daemon's reply to a submission, exactly one per submission id.

Each result is in the module of its subject, together with its op.
"""

from typing import Annotated, Any

from msgspec import Struct

from tiller_protocol.catalog import AccountsResult, CatalogResult, McpLoginResult, ProjectResult
from tiller_protocol.daemon import BackupResult, DaemonStatusResult, HelloResult
from tiller_protocol.doc import doc
from tiller_protocol.errors import RejectionCode
from tiller_protocol.sessions import (
    Created,
    InputHistoryResult,
    ReplayResult,
    SessionDiffResult,
    SessionListResult,
    SessionResult,
    SessionSearchResult,
)
from tiller_protocol.settings import RulesResult
from tiller_protocol.turns import Queued, RevertResult, Started, Steered
from tiller_protocol.worktrees import WorktreeLanded, WorktreeListResult, WorktreeResult

AnyResult = (
    HelloResult
    | Created
    | SessionListResult
    | SessionSearchResult
    | InputHistoryResult
    | SessionResult
    | ReplayResult
    | SessionDiffResult
    | RevertResult
    | Started
    | Steered
    | Queued
    | CatalogResult
    | ProjectResult
    | McpLoginResult
    | AccountsResult
    | BackupResult
    | RulesResult
    | WorktreeListResult
    | WorktreeLanded
    | WorktreeResult
    | DaemonStatusResult
)


class Accepted(Struct, frozen=True, omit_defaults=True, tag_field="type", tag="accepted"):
    """The op has taken effect and is in the log."""

    submission_id: Annotated[str, doc("Id of the submission to which this is the answer.")]
    result: Annotated[AnyResult | None, doc("The op's result; absent if the op has none.")] = None


class Rejected(Struct, frozen=True, omit_defaults=True, tag_field="type", tag="rejected"):
    """The op had no effect."""

    submission_id: Annotated[str, doc("Id of the submission; empty if the id was unreadable.")]
    code: Annotated[RejectionCode, doc("The reason, for programs.")]
    message: Annotated[str, doc("The reason in whole sentences, for people.")]
    data: Annotated[dict[str, Any], doc("Details for `code`, such as the rejected input.")] = {}


AnyAnswer = Accepted | Rejected
