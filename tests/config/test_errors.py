"""The daemon-wide errors."""

from tiller_daemon.errors import RejectionError
from tiller_protocol.answers import Rejected


def test_a_rejection_becomes_the_answer_to_its_submission():
    error = RejectionError("busy", "A turn runs.", {"turn_id": "t"})
    assert error.answer("01J") == Rejected("01J", "busy", "A turn runs.", {"turn_id": "t"})
    assert str(error) == "A turn runs."
    assert RejectionError("internal", "x").data == {}
