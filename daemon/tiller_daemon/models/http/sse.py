"""Splits a stream of server-sent events into the `data` of each event. Pure.

The names of events are dropped, because every provider repeats them in the data. The HTTP library
has a parser too, but it takes two to three times as much CPU time per event.
Format: https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream
"""

EVENT_BYTES_MAX = 16 * 1024 * 1024
"""The longest event that is accepted. A provider's last event may repeat the whole response."""

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class EventTooLong(ValueError):
    """An event of more than `EVENT_BYTES_MAX` bytes."""


class EventSplitter:
    """Splits a stream of bytes into events. Lines end with LF, CR LF or CR, in any mixture."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._pending_cr = False

    def feed(self, chunk: bytes) -> list[bytes]:
        """Take the next bytes and return the data of each event that they complete.

        Raises `EventTooLong`.
        """
        if self._pending_cr or b"\r" in chunk:
            chunk = self._with_plain_line_ends(chunk)
        if not self._rest and chunk.endswith(b"\n\n"):
            return _data_of_each(chunk[:-2].split(b"\n\n"))
        # The rest has been searched before, but its last byte may be half of a blank line.
        searched = max(0, len(self._rest) - 1)
        self._rest += chunk
        if self._rest.find(b"\n\n", searched) < 0:
            if len(self._rest) > EVENT_BYTES_MAX:
                raise EventTooLong(f"a server-sent event of more than {EVENT_BYTES_MAX} bytes")
            return []
        *events, rest = bytes(self._rest).split(b"\n\n")
        self._rest = bytearray(rest)
        return _data_of_each(events)

    def end(self) -> list[bytes]:
        """Return the data of a last event without its blank line, which many servers leave out."""
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


def _data_of_each(events: list[bytes]) -> list[bytes]:
    """Return the data of complete events.

    Nearly all events have one line of data, alone or after the event's name. These are handled here
    without a function call, because this runs for every delta of every stream.
    """
    found: list[bytes] = []
    for event in events:
        at = event.find(b"data: ")
        if at == 0 or (event.find(b"\n") == at - 1 and event.startswith(b"event:")):
            is_one_line = event.find(b"\n", at) < 0
        else:
            is_one_line = False
        if is_one_line:
            found.append(event[at + 6 :])
        elif (data := _data_of(event)) is not None:
            found.append(data)
    return found


def _data_of(event: bytes) -> bytes | None:
    lines = [
        line[5:].removeprefix(b" ")
        for line in event.removeprefix(_BYTE_ORDER_MARK).split(b"\n")
        if line.startswith(b"data:") or line == b"data"
    ]
    return b"\n".join(lines) if lines else None
