"""Types and formats of identifiers, and the generator of ULIDs.

Nothing here reads a clock or a random source; callers pass in times and random bytes.
"""

from typing import Annotated, NewType

from msgspec import Meta

ItemId = NewType("ItemId", str)
CallId = NewType("CallId", str)

ID_CHARS_MAX = 128
"""Longest identifier accepted from a frontend; a ULID has 26 characters."""

IdText = Annotated[str, Meta(min_length=1, max_length=ID_CHARS_MAX)]

ULID_CHARS = 26
ULID_RANDOM_BYTES = 10
_RANDOM_BITS = 8 * ULID_RANDOM_BYTES
_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def ulid(time_ms: int, randomness: bytes) -> str:
    """Return the 26-character ULID for Unix milliseconds and 10 random bytes.

    ULIDs sort by time as text. Format: https://github.com/ulid/spec.
    """
    return _text_of(_number_of(time_ms, randomness))


def made_at(identifier: str) -> float | None:
    """The Unix time in a ULID, to the millisecond; `None` for another identifier."""
    if len(identifier) != ULID_CHARS or set(identifier) - set(_CROCKFORD):
        return None
    number = 0
    for digit in identifier:
        number = number * len(_CROCKFORD) + _CROCKFORD.index(digit)
    return (number >> _RANDOM_BITS) / 1000


class Ulids:
    """Makes ULIDs that sort in the order in which they are made. For one thread only."""

    def __init__(self) -> None:
        self._last = -1

    def make(self, time_ms: int, randomness: bytes) -> str:
        """Return a ULID that sorts after all earlier ones.

        Within a millisecond, and if the clock has gone back, the new ULID is the last one plus 1,
        as the specification requires.
        """
        number = _number_of(time_ms, randomness)
        if number >> _RANDOM_BITS <= self._last >> _RANDOM_BITS:
            number = self._last + 1
        self._last = number
        return _text_of(number)


def _number_of(time_ms: int, randomness: bytes) -> int:
    if len(randomness) != ULID_RANDOM_BYTES:
        raise ValueError(f"a ULID needs {ULID_RANDOM_BYTES} random bytes, got {len(randomness)}")
    return (time_ms & (1 << 48) - 1) << _RANDOM_BITS | int.from_bytes(randomness, "big")


def _text_of(number: int) -> str:
    return "".join(_CROCKFORD[number >> shift & 31] for shift in range(125, -1, -5))
