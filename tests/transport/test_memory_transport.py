"""The transport in memory: it answers concurrently and drops like PUB."""

import pytest
import trio
import trio.testing

from tiller_daemon.transport.memory import MemoryTransport


async def test_a_slow_answer_holds_up_no_other() -> None:
    transport = MemoryTransport()
    go_on = trio.Event()

    async def handler(submission: bytes) -> bytes:
        if submission == b"slow":
            await go_on.wait()
        return submission.upper()

    answers: list[bytes] = []

    async def ask(submission: bytes) -> None:
        answers.append(await transport.ask(submission))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(transport.serve, handler)
        nursery.start_soon(ask, b"slow")
        await trio.testing.wait_all_tasks_blocked()
        await ask(b"fast")
        go_on.set()
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert answers == [b"FAST", b"SLOW"]


async def test_a_subscriber_gets_its_topic_only_and_loses_what_it_has_no_room_for() -> None:
    transport = MemoryTransport()
    one, every = transport.subscribe("a", messages_max=2), transport.subscribe()
    for number in range(4):
        transport.publish("a", b"%d" % number)
    transport.publish("ab", b"other")
    assert [one.receive_nowait() for _ in range(2)] == [b"a\x000", b"a\x001"]
    with pytest.raises(trio.WouldBlock):
        one.receive_nowait()
    assert every.statistics().current_buffer_used == 5
    one.close()
    transport.publish("a", b"after")
    assert every.statistics().current_buffer_used == 6


async def test_a_submission_that_is_not_admitted_gets_the_rejection() -> None:
    transport = MemoryTransport()

    async def handler(submission: bytes) -> bytes:
        return submission.upper()

    def admit(submission: memoryview) -> bytes | None:
        return b"rejected" if submission == b"stranger" else None

    async with trio.open_nursery() as nursery:
        nursery.start_soon(transport.serve, handler, admit)
        assert await transport.ask(b"stranger") == b"rejected"
        assert await transport.ask(b"friend") == b"FRIEND"
        nursery.cancel_scope.cancel()
