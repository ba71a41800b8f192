"""The inputs that wait in a session are together no larger than one input may be."""

import pytest
from msgspec import msgpack

from support.narrowing import of_kind
from tiller_daemon.errors import RejectionError
from tiller_daemon.models.scripted import CallPart, ScriptStep, TextPart
from tiller_daemon.session.inputs.attachments import check_image_sizes
from tiller_daemon.session.inputs.input_queue import QUEUED_BYTES_MAX
from tiller_protocol.answers import Accepted, Queued, Rejected
from tiller_protocol.codec import MESSAGE_BYTES_MAX, encode_event
from tiller_protocol.events import ToolCallUpdated
from tiller_protocol.items import Image
from tiller_protocol.ops import Interrupt, QueueEdit, UserInput

WORK = ScriptStep(parts=(CallPart("change", {"seconds": 1_000}),))
DONE = ScriptStep(parts=(TextPart("done"),), repeat=True)
HALF = QUEUED_BYTES_MAX // 2

SIZES: dict[str, tuple[int, ...]] = {
    "one as large as allowed": (QUEUED_BYTES_MAX,),
    "two halves": (HALF, HALF),
    "two halves and a letter": (HALF, HALF, 1),
    "two as large as allowed": (QUEUED_BYTES_MAX, QUEUED_BYTES_MAX),
    "a small one first": (1, QUEUED_BYTES_MAX),
    "a small one last": (QUEUED_BYTES_MAX, 1),
    "thirds": (QUEUED_BYTES_MAX // 3,) * 5,
    "twenty megabytes": (1_000_000,) * 20,
    "large between small ones": (10, 10, QUEUED_BYTES_MAX - 20, 10),
    "a hundred": (QUEUED_BYTES_MAX // 50,) * 100,
}


@pytest.mark.parametrize("delivery", ["queue", pytest.param("steer", marks=pytest.mark.nightly)])
@pytest.mark.parametrize("name", SIZES)
async def test_inputs_that_are_too_large_together_are_handed_back(
    autojump_clock, start, name, delivery
):
    world, session_id = await start(WORK, DONE)
    await world.say(session_id, "go")
    await world.until_body(session_id, ToolCallUpdated)
    used = 0
    for size in SIZES[name]:
        answer = await world.ask(UserInput(session_id, "x" * size, delivery=delivery))
        if used and used + size > QUEUED_BYTES_MAX:
            assert isinstance(answer, Rejected)
            assert answer.code == "overloaded"
            assert len(answer.data["input"]["text"]) == size
        else:
            assert isinstance(answer, Accepted)
            used += size
    events = await world.events(session_id)
    assert max(len(encode_event(event)) for event in events) < MESSAGE_BYTES_MAX


async def test_an_edit_or_an_input_after_an_interrupt_can_not_make_the_queue_larger(
    autojump_clock, start
):
    world, session_id = await start(WORK, DONE)
    await world.say(session_id, "go")
    first = of_kind(Queued, await world.say(session_id, "a", delivery="queue"))
    await world.say(session_id, "b" * HALF, delivery="queue")
    large = "c" * (HALF + 1)
    refused = await world.refused(QueueEdit(session_id, first.input_id, "edit", large))
    assert refused.code == "overloaded"
    await world.must(QueueEdit(session_id, first.input_id, "edit", "c" * (HALF - 1)))
    await world.must(Interrupt(session_id))
    await world.ended(session_id)
    refused = await world.refused(UserInput(session_id, "d" * HALF, delivery="auto"))
    assert refused.code == "overloaded"
    assert len(msgpack.encode(refused)) < MESSAGE_BYTES_MAX


def test_images_of_servers_count_like_the_users_own() -> None:
    op = UserInput("s", "look")
    check_image_sizes(op, (Image("image/png", bytes(QUEUED_BYTES_MAX)),))
    with pytest.raises(RejectionError, match="8,388,609 bytes"):
        check_image_sizes(op, (Image("image/png", bytes(QUEUED_BYTES_MAX)), Image("", b"x")))
