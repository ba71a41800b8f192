"""What a transport is: it brings submissions in, takes answers back, and publishes events."""

from collections.abc import Awaitable, Callable
from typing import Protocol

Handler = Callable[[bytes], Awaitable[bytes]]
"""Turns the bytes of one submission into the bytes of its answer; never raises."""

Admission = Callable[[memoryview], bytes | None]
"""Looks at a submission before anything is kept of it: None, or the answer that sends it away."""


class Transport(Protocol):
    """One way for frontends to reach the daemon."""

    async def serve(self, handler: Handler) -> None:
        """Answer submissions until cancelled; several are handled at the same time."""
        ...

    def publish(self, topic: str, event: bytes) -> None:
        """Send an encoded event to whoever listens to `topic`; never blocks, may drop."""
        ...
