"""The interface of a transport: it receives submissions, returns answers and publishes events."""

from collections.abc import Awaitable, Callable
from typing import Protocol

Handler = Callable[[bytes], Awaitable[bytes]]
"""Turns an encoded submission into its encoded answer; never raises."""

Admission = Callable[[memoryview], bytes | None]
"""Checks a submission before it is copied: None, or the answer that rejects it."""


class Transport(Protocol):
    """How frontends reach the daemon."""

    async def serve(self, handler: Handler) -> None:
        """Answer submissions until cancelled, several at the same time."""
        ...

    def publish(self, topic: str, event: bytes) -> None:
        """Send an encoded event to the subscribers of `topic`; never blocks, may drop events."""
        ...
