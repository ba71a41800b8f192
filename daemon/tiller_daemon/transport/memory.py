"""A transport in memory: the twin of `NngTransport` for tests and simulation.

No threads and no bytes on a wire, so that a seed replays it. `ask` and `subscribe` are the
frontend's side; `serve` and `publish` the daemon's.
"""

import trio

from tiller_daemon.transport.base import Handler

SUBSCRIPTION_MESSAGES_MAX = 128
"""Publications a slow subscriber has waiting before it loses some; nng's default for SUB."""

ASKS_WAITING_MAX = 1024
"""Submissions that wait for `serve` to take them; further askers wait for room."""


class MemoryTransport:
    """Keeps `Transport` in one process."""

    def __init__(self) -> None:
        self._asks_in, self._asks_out = trio.open_memory_channel[_PendingSubmission](
            ASKS_WAITING_MAX
        )
        self._subscribers: list[tuple[bytes, trio.MemorySendChannel[bytes]]] = []

    async def serve(self, handler: Handler) -> None:
        """Answer asks until cancelled, each in its own task."""
        async with trio.open_nursery() as nursery:
            while True:
                ask = await self._asks_out.receive()
                nursery.start_soon(_answer, handler, ask)

    def publish(self, topic: str, event: bytes) -> None:
        """Hand a publication to each subscriber of its topic that has room; the others lose it."""
        message = topic.encode() + b"\0" + event
        for prefix, channel in list(self._subscribers):
            if not message.startswith(prefix):
                continue
            try:
                channel.send_nowait(message)
            except trio.WouldBlock:
                continue
            except trio.BrokenResourceError:
                self._subscribers.remove((prefix, channel))

    async def ask(self, submission: bytes) -> bytes:
        """Send a submission and wait for its answer.

        Cancellation gives up waiting; the submission takes effect all the same.
        """
        ask = _PendingSubmission(submission)
        await self._asks_in.send(ask)
        await ask.answered.wait()
        return ask.answer

    def subscribe(
        self, topic: str = "", messages_max: float = SUBSCRIPTION_MESSAGES_MAX
    ) -> trio.MemoryReceiveChannel[bytes]:
        """Publications of `topic`, NUL and event together; "" means of all topics.

        At most `messages_max` (`math.inf` for a test that may lose none) wait, later ones are
        lost, as with PUB. Close the channel to unsubscribe.
        """
        send, receive = trio.open_memory_channel[bytes](messages_max)
        self._subscribers.append((topic.encode() + b"\0" if topic else b"", send))
        return receive


class _PendingSubmission:
    def __init__(self, submission: bytes) -> None:
        self.submission = submission
        self.answer = b""
        self.answered = trio.Event()


async def _answer(handler: Handler, ask: _PendingSubmission) -> None:
    ask.answer = await handler(ask.submission)
    ask.answered.set()
