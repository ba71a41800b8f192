"""Types and format of identifiers, and the making of ULIDs.

Nothing here reads a clock or a random source; callers pass both in.
"""

from typing import Annotated, NewType

from msgspec import Meta

SessionId = NewType("SessionId", str)
TurnId = NewType("TurnId", str)
ItemId = NewType("ItemId", str)
CallId = NewType("CallId", str)
RequestId = NewType("RequestId", str)
InputId = NewType("InputId", str)
SubmissionId = NewType("SubmissionId", str)

ID_CHARS_MAX = 128
"""Longest identifier accepted from a frontend; a ULID has 26."""

IdText = Annotated[str, Meta(min_length=1, max_length=ID_CHARS_MAX)]

ULID_CHARS = 26
ULID_RANDOM_BYTES = 10
_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def ulid(time_ms: int, randomness: bytes) -> str:
    """Return the 26-character ULID for Unix milliseconds and 10 random bytes.

    ULIDs sort by time as text. Format: https://github.com/ulid/spec.
    """
    if len(randomness) != ULID_RANDOM_BYTES:
        raise ValueError(f"a ULID needs {ULID_RANDOM_BYTES} random bytes, got {len(randomness)}")
    value = (time_ms & (1 << 48) - 1) << 80 | int.from_bytes(randomness, "big")
    return "".join(_CROCKFORD[value >> shift & 31] for shift in range(125, -1, -5))
