"""Splits content that is larger than one message of NATS, and puts it together again.

A part may get lost with a connection, and parts of two messages to one subject may alternate.
"""

import os
from collections.abc import Iterator, Mapping

from tiller_protocol.codec import MESSAGE_BYTES_MAX

PART_HEADER = "Tiller-Part"
"""In each part of a message: an id of the message, the part's number from 1, how many there are."""

PENDING_MAX = 64
"""How many incomplete messages are kept; the oldest one is dropped."""

_FIELDS = 3


def split(data: bytes, size: int) -> Iterator[tuple[bytes, Mapping[str, str]]]:
    """Yield the parts of at most `size` bytes, and the headers of each; there is at least one."""
    count = -(-len(data) // size) or 1
    message_id = os.urandom(8).hex()
    for number in range(1, count + 1):
        headers = {PART_HEADER: f"{message_id} {number} {count}"} if count > 1 else {}
        yield data[(number - 1) * size : number * size], headers


class Parts:
    """The incomplete messages."""

    def __init__(self) -> None:
        self._by_message: dict[tuple[str, ...], list[bytes]] = {}

    def clear(self) -> None:
        """Drop them: their other parts are lost."""
        self._by_message.clear()

    def add(self, place: tuple[str, ...], headers: Mapping[str, str], data: bytes) -> bytes | None:
        """Return the whole message once its last part has come; drop it if a part is missing.

        The parts of a message come in order, to one `place`.
        """
        words = headers.get(PART_HEADER, "").split()
        if len(words) != _FIELDS:
            return data
        message_id, number, count = words
        key = (*place, message_id)
        parts = self._by_message.pop(key, [])
        parts.append(data)
        if str(len(parts)) != number or sum(map(len, parts)) > 2 * MESSAGE_BYTES_MAX:
            return None
        if number == count:
            return b"".join(parts)
        self._by_message[key] = parts
        while len(self._by_message) > PENDING_MAX:
            del self._by_message[next(iter(self._by_message))]
        return None
