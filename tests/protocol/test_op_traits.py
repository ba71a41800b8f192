"""The table of what is true of each op."""

from typing import get_args

from tiller_protocol.op_traits import OPS, traits_of
from tiller_protocol.ops import AnyOp, QueueEdit


def test_every_op_has_a_row() -> None:
    assert set(OPS) == set(get_args(AnyOp))


def test_an_op_that_starts_a_turn_waits_for_the_end_of_the_turn_before() -> None:
    assert all(traits.needs_rest for traits in OPS.values() if traits.starts == "turn")


def test_of_all_edits_of_a_queue_only_promote_starts_a_turn() -> None:
    assert traits_of(QueueEdit("s", "i", "promote")).starts == "turn"
    assert traits_of(QueueEdit("s", "i", "remove")).starts == "nothing"
    assert not traits_of(QueueEdit("s", "i", "move", position=1)).needs_rest
