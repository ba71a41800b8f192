"""Records rejections, so that a retried submission gets the same rejection again.

An unknown name may be defined in a configuration file that can't be used. If there is such a file,
the rejection mentions it.
"""

import structlog

from tiller_daemon.errors import RejectionError
from tiller_daemon.session.services import Services
from tiller_daemon.session.state import PendingSubmission
from tiller_daemon.store.base import LogError
from tiller_protocol.answers import Rejected

log = structlog.get_logger()

TRANSIENT = frozenset({"overloaded", "shutting_down", "unavailable", "internal"})
"""Codes that do not depend on the op, so that the same submission may succeed later."""


async def record_rejection(
    services: Services, pending: PendingSubmission, rejection: RejectionError
) -> Rejected:
    """Return the answer to a rejected submission, and record it in the log unless it is transient.

    If the log can't be written, the answer is returned all the same.
    """
    problem = services.user.problem()
    if problem and rejection.code == "invalid_settings":
        rejection = RejectionError(rejection.code, f"{rejection.message} {problem}", rejection.data)
    answer = rejection.answer(pending.submission_id)
    if rejection.code not in TRANSIENT:
        try:
            await services.log.record(pending.row(answer))
        except LogError as error:
            # The op had no effect, so a retry is rejected for the same reason.
            log.warning("rejection_not_recorded", reason=error.message)
    return answer
