"""A stranger at the socket, who sends submissions with a wrong token as fast as possible.

It uses plain sockets, and connects again whenever it is cut off. It blocks, so run it in a thread.
"""

import socket
import struct
import threading
from dataclasses import dataclass
from pathlib import Path

from tiller_protocol.codec import Encoding, encode_submission
from tiller_protocol.ops import Submission, UserInput
from tiller_protocol.places import OPS_SOCKET

BATCH_BYTES = 1 << 20
"""Most bytes to write at once, unless one submission is larger."""

READ_BYTES = 1 << 20
DEAF_S = 30.0
"""The longest time that a daemon may keep a stranger from writing."""

_GREETING = b"\0SP\0" + struct.pack(">HH", 0x30, 0)
_REQUEST_ID = b"\x80\0\0\1"


@dataclass
class Flood:
    """The result of a flood: submissions written, connections made, answers read."""

    sent: int = 0
    connections: int = 0
    answers: int = 0


def flood(
    runtime: Path,
    count: int,
    size: int,
    encoding: Encoding = "msgpack",
    *,
    reads: bool = True,
    token: str = "wrong",
) -> Flood:
    """Write so many submissions with so much text; without `reads`, read no answer."""
    submission = Submission("01HZZZZZZZZZZZZZZZZZZZZZZZ", UserInput("s", "x" * size), "c", token)
    body = _REQUEST_ID + encode_submission(submission, encoding)
    frame = b"\x01" + struct.pack(">Q", len(body)) + body
    batch = memoryview(frame * max(1, BATCH_BYTES // len(frame)))
    done, sent_bytes = Flood(), 0
    while sent_bytes < count * len(frame):
        with socket.socket(socket.AF_UNIX) as stream:
            stream.settimeout(DEAF_S)
            stream.connect(str(runtime / OPS_SOCKET))
            done.connections += 1
            reader = threading.Thread(target=_read, args=(stream, done))
            if reads:
                reader.start()
            try:
                stream.sendall(_GREETING)
                offset = 0
                while sent_bytes < count * len(frame):
                    written = stream.send(batch[offset:])
                    offset = (offset + written) % len(frame)
                    sent_bytes += written
                stream.shutdown(socket.SHUT_WR)
            except (BrokenPipeError, ConnectionResetError):
                pass  # the daemon has cut the connection
            if reads:
                reader.join()
    done.sent = sent_bytes // len(frame)
    return done


def _read(stream: socket.socket, done: Flood) -> None:
    """Count the answers until the connection ends."""
    data = bytearray()
    skip = len(_GREETING)
    try:
        while piece := stream.recv(READ_BYTES):
            data += piece
            while len(data) >= skip + 9:
                end = skip + 9 + int.from_bytes(data[skip + 1 : skip + 9], "big")
                if len(data) < end:
                    break
                done.answers += b"unauthorized" in data[skip:end]
                del data[:end]
                skip = 0
    except (ConnectionResetError, TimeoutError):
        pass
