"""What waits in a session tells a running turn whether to leave out the rest of its calls."""

from support.each import each
from tiller_daemon.session.inputs.input_queue import CLIENT, InputQueue
from tiller_protocol.items import Delivery, QueuedInput


@each("client", ["", "tiller chat", CLIENT])
@each("delivery", ["steer", "queue"])
def test_only_a_user_who_steers_stops_the_calls_of_a_response(
    delivery: Delivery, client: str
) -> None:
    queue = InputQueue((QueuedInput("q", "wait", delivery, client=client),))
    assert queue.has_steering == (delivery == "steer")
    assert queue.user_steers == (delivery == "steer" and client != CLIENT)
    assert not InputQueue(()).user_steers
