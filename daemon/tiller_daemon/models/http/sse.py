"""Splits a stream of server-sent events into the `data` of each event. Pure.

The names of events are dropped, because every provider repeats them in the data.
Format: https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream
"""

import re
from typing import Final

EVENT_BYTES_MAX = 16 * 1024 * 1024
"""The longest event that is accepted. The last event of a stream may repeat the whole response."""

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"

_START: Final = b"data: "
_BETWEEN: Final = b"\n\ndata: "
_NAMED: Final = re.compile(rb"^event:[^\n]*\ndata: ([^\n]*)(?:\n\n|\Z)", re.MULTILINE)
"""Matches an event that has a name and one line of data."""


class EventTooLong(ValueError):
    """An event has more than `EVENT_BYTES_MAX` bytes."""


class EventSplitter:
    """Splits a stream of bytes into events. Lines end with LF, CR LF or CR, in any mixture."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._pending_cr = False

    @property
    def pending_bytes(self) -> int:
        """The size of the event that has arrived only in part."""
        return len(self._rest)

    @property
    def has_data(self) -> bool:
        """Whether an event has arrived in part that is more than a comment."""
        return self._rest.startswith(b"data") or b"\ndata" in self._rest

    def feed(self, chunk: bytes) -> list[bytes]:
        """Add received bytes and return the data of each event that they complete.

        Raises `EventTooLong`.
        """
        if self._pending_cr or b"\r" in chunk:
            chunk = self._with_plain_line_ends(chunk)
        if not self._rest and chunk.endswith(b"\n\n"):
            return _data_of_each(chunk[:-2])
        # The rest has been searched before, but its last byte may be half of a blank line.
        searched = max(0, len(self._rest) - 1)
        self._rest += chunk
        if self._rest.find(b"\n\n", searched) < 0:
            if len(self._rest) > EVENT_BYTES_MAX:
                raise EventTooLong(f"a server-sent event of more than {EVENT_BYTES_MAX} bytes")
            return []
        end = self._rest.rfind(b"\n\n")
        whole = bytes(self._rest[:end])
        del self._rest[: end + 2]
        return _data_of_each(whole)

    def end(self) -> list[bytes]:
        """Return the data of a last event that lacks its blank line, as from many servers."""
        data = _data_of(bytes(self._rest))
        self._rest.clear()
        return [] if data is None else [data]

    def _with_plain_line_ends(self, chunk: bytes) -> bytes:
        if self._pending_cr:
            chunk = b"\r" + chunk
        # The LF of a CR LF may come with the next chunk.
        self._pending_cr = chunk.endswith(b"\r")
        if self._pending_cr:
            chunk = chunk[:-1]
        return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def _data_of_each(events: bytes) -> list[bytes]:
    """Return the data of complete events; the last one comes without its blank line.

    Nearly always, each event has one line of data, alone or after a name. One call splits all such
    events, because this runs for every delta of every stream. The number of lines proves that there
    was nothing else.
    """
    lines = events.count(b"\n")
    if events.startswith(_START):
        found = events.split(_BETWEEN)
        if lines == 2 * len(found) - 2:
            found[0] = found[0][len(_START) :]
            return found if all(found) else [*filter(None, found)]
    elif events.startswith(b"event:"):
        found: list[bytes] = _NAMED.findall(events)
        if lines == 3 * len(found) - 2:
            return found if all(found) else [*filter(None, found)]
    every = [_data_of(event) for event in events.split(b"\n\n")]
    return [data for data in every if data is not None]


def _data_of(event: bytes) -> bytes | None:
    lines = [
        line[5:].removeprefix(b" ")
        for line in event.removeprefix(_BYTE_ORDER_MARK).split(b"\n")
        if line.startswith(b"data:") or line == b"data"
    ]
    # By the standard, an event without data is none.
    return b"\n".join(lines) or None
