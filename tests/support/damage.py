"""Damage to recorded streams, chosen at random from a seed: bytes, frames, and values in frames."""

import itertools
import json
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

from support.streams import STREAMS, decode
from tiller_daemon.models.base import ModelError

DAMAGES_MAX = 4
CHUNKS_MAX = 6

VALUES: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    2**63,
    1e308,
    "",
    "x",
    "\ud83d",
    "\x00",
    [],
    [[]],
    [None],
    {},
    {"type": "message"},
)
"""Values that replace a value in a frame."""

BYTES = (b"\n", b"\r", b"\n\n", b"data:", b"data: {}\n\n", b":", b"\xff", b"{", b"}", b'"', b"\\")


def meet(name: str, random: Random) -> str:
    """Decode a stream after damage; return the kind of its error, or how it ended.

    Any exception shows a defect in the decoder or in its events.
    """
    stream = damaged(STREAMS[name], random)
    cuts = sorted(random.randrange(len(stream) + 1) for _ in range(random.randrange(CHUNKS_MAX)))
    places = [0, *cuts, len(stream)]
    got = decode(name, (stream[a:b] for a, b in itertools.pairwise(places)))
    return got.kind if isinstance(got, ModelError) else str(got["finish"])


def damaged(stream: bytes, random: Random) -> bytes:
    """Return the stream with damage in one to four places."""
    for _ in range(random.randint(1, DAMAGES_MAX)):
        stream = random.choice(DAMAGES)(stream, random)
    return stream


def _change_byte(stream: bytes, random: Random) -> bytes:
    at = random.randrange(len(stream) + 1)
    return stream[:at] + bytes([random.randrange(256)]) + stream[at + 1 :]


def _insert_bytes(stream: bytes, random: Random) -> bytes:
    at = random.randrange(len(stream) + 1)
    return stream[:at] + random.choice(BYTES) + stream[at:]


def _remove_bytes(stream: bytes, random: Random) -> bytes:
    at = random.randrange(len(stream) + 1)
    return stream[:at] + stream[at + random.choice((1, 2, 10, 200)) :]


def _repeat_bytes(stream: bytes, random: Random) -> bytes:
    at = random.randrange(len(stream) + 1)
    return stream[: at + random.choice((1, 10, 200))] + stream[at:]


def _lose_frame(stream: bytes, random: Random) -> bytes:
    frames = stream.split(b"\n\n")
    frames.pop(random.randrange(len(frames)))
    return b"\n\n".join(frames)


def _repeat_frame(stream: bytes, random: Random) -> bytes:
    frames = stream.split(b"\n\n")
    frames.insert(random.randrange(len(frames)), random.choice(frames))
    return b"\n\n".join(frames)


def _swap_frames(stream: bytes, random: Random) -> bytes:
    frames = stream.split(b"\n\n")
    a, b = random.randrange(len(frames)), random.randrange(len(frames))
    frames[a], frames[b] = frames[b], frames[a]
    return b"\n\n".join(frames)


def _mix_in_frame(stream: bytes, random: Random) -> bytes:
    frames = stream.split(b"\n\n")
    other = random.choice(list(STREAMS.values())).split(b"\n\n")
    frames.insert(random.randrange(len(frames)), random.choice(other))
    return b"\n\n".join(frames)


def _change_value(stream: bytes, random: Random) -> bytes:
    """Replace, remove or deeply nest a value, or replace a key, in one frame's JSON."""
    frames = stream.split(b"\n\n")
    at = random.randrange(len(frames))
    head, sign, data = frames[at].partition(b"data:")
    try:
        told = json.loads(data)
    except (ValueError, RecursionError):
        return stream
    places = list(_places(told))
    if not places:
        return stream
    holder, key = random.choice(places)
    match random.randrange(6):
        case 0 if isinstance(holder, dict):
            del holder[key]
        case 1:
            other, other_key = random.choice(places)
            holder[key] = json.loads(json.dumps(other[other_key]))
        case _:
            holder[key] = random.choice(VALUES)
    text = json.dumps(told)
    if random.randrange(20) == 0:
        text = text.replace("null", "[" * 3_000 + "]" * 3_000, 1)
    frames[at] = head + sign + b" " + text.encode()
    return b"\n\n".join(frames)


def _places(told: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(told, dict):
        for key, value in told.items():
            yield told, key
            yield from _places(value)
    elif isinstance(told, list):
        for key, value in enumerate(told):
            yield told, key
            yield from _places(value)


DAMAGES: tuple[Callable[[bytes, Random], bytes], ...] = (
    _change_byte,
    _insert_bytes,
    _remove_bytes,
    _repeat_bytes,
    _lose_frame,
    _repeat_frame,
    _swap_frames,
    _mix_in_frame,
    _change_value,
    _change_value,
    _change_value,
)
