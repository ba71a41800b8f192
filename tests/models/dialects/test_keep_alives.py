"""Frames that are no part of an answer are skipped in every dialect."""

from support.each import each
from support.streams import STREAMS, WHOLE, decode

FRAMES = [
    b"data:\n\n",
    b"data: null\n\n",
    b"data: ping\n\n",
    b"event: ping\ndata: \n\n",
    b"event: ping\ndata: pong\n\n",
    b"event: heartbeat\ndata: 2026-11-28T21:00:00Z\n\n",
    b": PROCESSING\n\n",
    b'data: "keep-alive"\n\n',
    b"data: 7\n\n",
    b"data: true\n\n",
]

ONE_OF_EACH = {name.partition("-")[0]: name for name in WHOLE}


@each("frame", FRAMES)
@each("name", ONE_OF_EACH.values())
def test_a_keep_alive_between_any_two_frames_changes_nothing(name: str, frame: bytes) -> None:
    parts = STREAMS[name].replace(b"\r\n", b"\n").split(b"\n\n")
    for cut in range(len(parts)):
        before, after = b"\n\n".join([*parts[:cut], b""]), b"\n\n".join(parts[cut:])
        assert decode(name, [before, frame, after]) == decode(name, [STREAMS[name]])


def test_what_was_skipped_is_said_when_the_answer_is_not_whole() -> None:
    problem = decode("chat-x", [b"data: upstream is gone\n\n"])
    assert "It had sent upstream is gone" in str(problem)
