"""The transport in memory, for frontends in the daemon's process, such as simulations.

It uses no threads and no sockets, so that runs are reproducible from a seed. Frontends call `ask`
and `subscribe`.
"""

import trio

from tiller_daemon.transport.base import Admission, Handler

SUBSCRIPTION_MESSAGES_MAX = 128
"""Publications queued for a slow subscriber before it loses some; nng's default for SUB."""

SUBMISSIONS_QUEUED_MAX = 1024
"""Submissions queued for `serve`; further senders wait."""


class MemoryTransport:
    """Carries submissions and publications within one process."""

    def __init__(self) -> None:
        self._queue_send, self._queue_receive = trio.open_memory_channel[_PendingSubmission](
            SUBMISSIONS_QUEUED_MAX
        )
        self._subscribers: list[tuple[bytes, trio.MemorySendChannel[bytes]]] = []

    async def serve(self, handler: Handler, admit: Admission | None = None) -> None:
        """Answer submissions until cancelled, each in its own task."""
        async with trio.open_nursery() as nursery:
            async for pending in self._queue_receive:
                if admit and (rejection := admit(memoryview(pending.submission))):
                    pending.finish(rejection)
                else:
                    nursery.start_soon(_answer, handler, pending)

    def publish(self, topic: str, event: bytes) -> None:
        """Send to each subscriber of the topic; one with a full queue loses the event."""
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

        Cancellation stops waiting; the submission takes effect anyway.
        """
        pending = _PendingSubmission(submission)
        await self._queue_send.send(pending)
        await pending.answered.wait()
        return pending.answer

    def subscribe(
        self, topic: str = "", messages_max: float = SUBSCRIPTION_MESSAGES_MAX
    ) -> trio.MemoryReceiveChannel[bytes]:
        """A channel of publications (topic, NUL, event) of `topic`, or of all topics for "".

        At most `messages_max` are queued (`math.inf` for a test that must not lose any); further
        ones are lost, as with PUB. Close the channel to unsubscribe.
        """
        send, receive = trio.open_memory_channel[bytes](messages_max)
        self._subscribers.append((topic.encode() + b"\0" if topic else b"", send))
        return receive


class _PendingSubmission:
    def __init__(self, submission: bytes) -> None:
        self.submission = submission
        self.answer = b""
        self.answered = trio.Event()

    def finish(self, answer: bytes) -> None:
        self.answer = answer
        self.answered.set()


async def _answer(handler: Handler, pending: _PendingSubmission) -> None:
    pending.finish(await handler(pending.submission))
