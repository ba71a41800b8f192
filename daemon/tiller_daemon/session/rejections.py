"""A rejection is an answer like any other: kept in the log for the same submission, sent again."""

import structlog

from tiller_daemon.errors import RejectionError
from tiller_daemon.session.state import Pending
from tiller_daemon.store.base import Log, LogError, SubmissionRow
from tiller_protocol.answers import Rejected
from tiller_protocol.codec import encode_answer

log = structlog.get_logger()

PASSING = frozenset({"overloaded", "shutting_down", "unavailable", "internal"})
"""Rejections that say nothing about the op itself: the same submission may succeed later."""


async def record_rejection(store: Log, pending: Pending, rejection: RejectionError) -> Rejected:
    """Return the answer, in the log if it is to stay; a log that fails changes none."""
    answer = rejection.answer(pending.submission_id)
    if rejection.code not in PASSING:
        row = SubmissionRow(pending.submission_id, pending.digest, encode_answer(answer))
        try:
            await store.record(row)
        except LogError as error:
            log.warning("rejection_not_recorded", reason=error.message)
    return answer
