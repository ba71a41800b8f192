"""One connection to an nng socket, in nng's wire format over a unix socket; never blocks.

Each side first sends 8 bytes that name its protocol. Every message is a byte 1, its length in 8
bytes, and its body. The client does not use pynng, whose import would take a third of a verb's
time.
"""

import socket
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from tiller_client.errors import TillerError
from tiller_protocol.codec import MESSAGE_BYTES_MAX

REQ, REP = 0x30, 0x31
PUB, SUB = 0x20, 0x21
"""Numbers of nng's protocols; REQ sockets talk to REP sockets, SUB sockets to PUB sockets."""

GREETING_BYTES = 8
HEADER_BYTES = 9
MESSAGE: Final = b"\x01"
"""The only type of message."""

READ_BYTES = 128 * 1024
"""Maximum number of bytes to read at once, so that a burst of events can't delay the keyboard."""


class ConnectionLost(Exception):
    """The peer has closed the connection, or sent something that is not a message."""


class NngPipe:
    """A connection; `greeted` once the peer's greeting has arrived."""

    def __init__(self, path: Path, own: int, peer: int) -> None:
        """Connect and send the greeting; raises `OSError` if nothing listens at `path`."""
        self.greeted = False
        self._peer = peer
        self._received = bytearray()
        self._unsent = bytearray(greeting(own))
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.settimeout(0)
            self._socket.connect(str(path))
        except BaseException:
            self._socket.close()
            raise
        self.write()

    def fileno(self) -> int:
        """The descriptor, for `select`."""
        return self._socket.fileno()

    @property
    def has_unsent(self) -> bool:
        """Whether `write` has something to write once the descriptor is writable."""
        return bool(self._unsent)

    def send(self, parts: Iterable[bytes]) -> None:
        """Send a message, or as much of it as the system takes now; `write` sends the rest."""
        body = b"".join(parts)
        self._unsent += MESSAGE + len(body).to_bytes(8, "big") + body
        self.write()

    def write(self) -> None:
        """Write as much of the unsent bytes as possible; `read` reports a lost connection."""
        try:
            while self._unsent:
                with memoryview(self._unsent) as unsent:
                    count = self._socket.send(unsent)
                del self._unsent[:count]
        except BlockingIOError:
            return
        except OSError:
            self._unsent.clear()

    def read(self) -> list[bytes]:
        """Read up to `READ_BYTES`, and return the messages that are complete now.

        Raises `ConnectionLost`, or `TillerError` if the peer speaks another protocol.
        """
        try:
            data = self._socket.recv(READ_BYTES)
        except BlockingIOError:
            return []
        except OSError:
            raise ConnectionLost from None
        if not data:
            raise ConnectionLost
        self._received += data
        return self._messages() if self.greeted or self._check_greeting() else []

    def close(self) -> None:
        """Close the connection; unsent bytes are dropped."""
        self._socket.close()

    def _check_greeting(self) -> bool:
        if len(self._received) < GREETING_BYTES:
            return False
        if not self._received.startswith(greeting(self._peer)):
            raise TillerError(
                "the process on the daemon's socket does not speak nng's protocol; "
                "stop that process and try again"
            )
        del self._received[:GREETING_BYTES]
        self.greeted = True
        return True

    def _messages(self) -> list[bytes]:
        messages: list[bytes] = []
        begin = 0
        while len(self._received) - begin >= HEADER_BYTES:
            body = begin + HEADER_BYTES
            length = int.from_bytes(self._received[begin + len(MESSAGE) : body], "big")
            if not self._received.startswith(MESSAGE, begin) or length > MESSAGE_BYTES_MAX:
                raise ConnectionLost
            end = body + length
            if len(self._received) < end:
                break
            messages.append(bytes(self._received[body:end]))
            begin = end
        del self._received[:begin]
        return messages


def greeting(protocol: int) -> bytes:
    """What a side of a connection sends first; `protocol` is the number of its own socket."""
    return b"\0SP\0" + protocol.to_bytes(2, "big") + b"\0\0"
