"""What every transport does: it answers submissions and publishes events."""

from collections.abc import Awaitable, Callable
from typing import Protocol

Handler = Callable[[bytes], Awaitable[bytes]]
"""Returns the encoded answer to an encoded submission; never raises."""

Admission = Callable[[memoryview], bytes | None]
"""Checks a submission before it is copied; returns None, or the answer that rejects it."""


class Transport(Protocol):
    """Carries submissions and answers, and publications, between frontends and the daemon."""

    async def serve(self, handler: Handler, admit: Admission | None = None) -> None:
        """Answer submissions until cancelled, several at the same time.

        If `admit` rejects a submission, the sender gets the rejection, and `handler` never sees it.
        """
        ...

    def publish(self, topic: str, event: bytes) -> None:
        """Send an encoded event to the subscribers of `topic`; never blocks.

        A subscriber that does not keep up loses events. It notices the gap in the event numbers and
        asks for a replay.
        """
        ...
