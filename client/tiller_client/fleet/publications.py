"""What the daemon on this machine publishes, for an asyncio loop: all topics, on one connection."""

import asyncio
import select
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Self

from tiller_client.connecting.sockets import EventSocket
from tiller_client.errors import TillerError
from tiller_client.following.watch import TICK_IDLE_S, Wakeup
from tiller_protocol.codec import TOPIC_END
from tiller_protocol.events import LIFECYCLE_TOPIC
from tiller_protocol.places import Places

Take = Callable[[str, bytes], None]
"""Takes a topic and an encoded publication."""


class Publications:
    """Reads the publications in a thread while it is entered; an asynchronous context manager.

    The thread reads no more until the loop has taken what it has read, so a busy loop does not fill
    the memory: the daemon drops what is not read in time.
    """

    def __init__(self, places: Places) -> None:
        """Read from the daemon with these places, whenever it is running."""
        self._places = places
        self._subscribers: list[tuple[Take, Callable[[], None] | None]] = []
        self._wakeup = Wakeup()
        self._is_closed = False

    def subscribe(self, take: Take, missed: Callable[[], None] | None = None) -> None:
        """From now on, let the loop call `take` with each publication, in order.

        `missed` is called when the daemon is connected again, so publications may be missing. One
        that was dropped shows only by the numbers of later events.
        """
        self._subscribers.append((take, missed))

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._read, args=(loop,), daemon=True)
        self._thread.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._is_closed = True
        self._wakeup.wake()
        await asyncio.to_thread(self._thread.join)
        self._wakeup.close()

    def _read(self, loop: asyncio.AbstractEventLoop) -> None:
        with EventSocket(self._places, LIFECYCLE_TOPIC) as socket:
            while not self._is_closed:
                wait_s = min(TICK_IDLE_S, socket.wait_s_max)
                select.select([*socket.sources, self._wakeup.fd], [], [], wait_s)
                messages: Sequence[bytes] = ()
                with suppress(TillerError):  # too many open files, for example: try again
                    messages = socket.drain_all()
                has_joined = socket.take_joined()
                if messages or has_joined:
                    taken = threading.Event()
                    loop.call_soon_threadsafe(self._deliver, messages, has_joined, taken)
                    while not taken.wait(TICK_IDLE_S) and not self._is_closed:
                        pass

    def _deliver(self, messages: Sequence[bytes], has_joined: bool, taken: threading.Event) -> None:  # noqa: FBT001
        taken.set()
        for take, missed in self._subscribers:
            if has_joined and missed:
                missed()
            for message in messages:
                topic, _, body = message.partition(TOPIC_END)
                take(topic.decode(errors="replace"), body)
