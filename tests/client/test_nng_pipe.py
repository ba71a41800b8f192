"""The client's side of nng's wire: against a plain socket that says anything, and against nng."""

import contextlib
import os
import select
import socket
import tempfile
import threading
from collections.abc import Generator, Sequence
from pathlib import Path

import pynng
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiller_client.connecting.nng_pipe import (
    GREETING_BYTES,
    HEADER_BYTES,
    PUB,
    READ_BYTES,
    REP,
    REQ,
    SUB,
    ConnectionLost,
    NngPipe,
)
from tiller_client.errors import TillerError
from tiller_protocol.codec import MESSAGE_BYTES_MAX

TIMEOUT_S = 10.0
REP_GREETING = b"\0SP\0\0\x31\0\0"
SMALL_ID = b"\x80\0\0\1"


@contextlib.contextmanager
def peer_of(own: int = REQ, peer: int = REP) -> Generator[tuple[NngPipe, socket.socket]]:
    """A pipe, and the plain socket at its other end."""
    with (
        tempfile.TemporaryDirectory(prefix="tp") as directory,
        socket.socket(socket.AF_UNIX) as listener,
    ):
        path = Path(directory, "s")
        listener.bind(str(path))
        listener.listen()
        pipe = NngPipe(path, own, peer)
        other, _ = listener.accept()
        with other, contextlib.closing(pipe):
            yield pipe, other


def framed(message: bytes) -> bytes:
    return b"\x01" + len(message).to_bytes(8, "big") + message


def read_until(pipe: NngPipe, count: int) -> list[bytes]:
    """Read until `count` messages have come."""
    messages: list[bytes] = []
    while len(messages) < count:
        sources = [pipe] if pipe.has_unsent else []
        readable, writable, _ = select.select([pipe], sources, [], TIMEOUT_S)
        assert readable or writable
        if writable:
            pipe.write()
        if readable:
            messages += pipe.read()
    return messages


def receive(other: socket.socket, count: int) -> bytes:
    data = b""
    other.settimeout(TIMEOUT_S)
    while len(data) < count:
        piece = other.recv(count - len(data))
        assert piece
        data += piece
    return data


@given(st.lists(st.binary(max_size=40), max_size=6), st.lists(st.integers(1, 50), max_size=30))
def test_messages_are_whole_wherever_the_stream_is_cut(
    messages: Sequence[bytes], cuts: Sequence[int]
) -> None:
    stream = REP_GREETING + b"".join(map(framed, messages))
    pieces, rest = [], stream
    for cut in cuts:
        pieces.append(rest[:cut])
        rest = rest[cut:]
    with peer_of() as (pipe, other):
        got: list[bytes] = []
        for piece in filter(None, [*pieces, rest]):
            other.sendall(piece)
            got += pipe.read()
        assert got == list(messages)
        assert pipe.greeted


def test_the_greeting_names_the_protocol_and_messages_have_their_length_before_them() -> None:
    with peer_of(SUB, PUB) as (pipe, other):
        assert receive(other, GREETING_BYTES) == b"\0SP\0\0\x21\0\0"
        pipe.send((SMALL_ID, b"op"))
        assert receive(other, HEADER_BYTES + 6) == framed(SMALL_ID + b"op")


@pytest.mark.parametrize("greeting", [b"\0SP\0\0\x30\0\0", b"HTTP/1.1", b"\0SP\1\0\x31\0\0"])
def test_a_peer_that_is_no_socket_of_that_protocol_is_named(greeting: bytes) -> None:
    with peer_of() as (pipe, other):
        other.sendall(greeting)
        with pytest.raises(TillerError, match="does not speak"):
            pipe.read()
        assert not pipe.greeted


@pytest.mark.parametrize(
    "header",
    [
        b"\x02" + (1).to_bytes(8, "big"),
        b"\x01" + (MESSAGE_BYTES_MAX + 1).to_bytes(8, "big"),
        b"\x01" + b"\xff" * 8,
    ],
    ids=["another type", "a little too long", "far too long"],
)
@pytest.mark.promise("T7")
def test_a_header_that_can_not_be_right_ends_the_connection(header: bytes) -> None:
    with peer_of() as (pipe, other):
        other.sendall(REP_GREETING + header)
        with pytest.raises(ConnectionLost):
            pipe.read()


def test_a_peer_that_has_gone_is_noticed_after_what_it_said() -> None:
    with peer_of() as (pipe, other):
        receive(other, GREETING_BYTES)
        other.sendall(REP_GREETING + framed(b"last"))
        other.close()
        assert pipe.read() == [b"last"]
        with pytest.raises(ConnectionLost):
            pipe.read()
        pipe.send((b"into the void",))
        pipe.send((b"and again",))
        assert not pipe.has_unsent


def test_nothing_blocks_when_the_peer_says_nothing_and_reads_nothing() -> None:
    with peer_of() as (pipe, other):
        assert pipe.read() == []
        body = os.urandom(4 * READ_BYTES)
        pipe.send((body,))
        pipe.send((b"second",))
        assert pipe.has_unsent
        wanted = framed(body) + framed(b"second")
        receive(other, GREETING_BYTES)
        sent = bytearray()
        while len(sent) < len(wanted):
            sent += other.recv(READ_BYTES)
            pipe.write()
        assert bytes(sent) == wanted
        assert not pipe.has_unsent


@pytest.mark.parametrize("size", [1, READ_BYTES - 1, READ_BYTES, 1 << 20, MESSAGE_BYTES_MAX - 4])
def test_nng_gets_and_returns_messages_of_every_size(tmp_path: Path, size: int) -> None:
    path = tmp_path / "s"
    with pynng.Rep0(listen=f"ipc://{path}", recv_max_size=0, recv_timeout=10_000) as echo:
        echoing = threading.Thread(target=lambda: echo.send(echo.recv()))
        echoing.start()
        with contextlib.closing(NngPipe(path, REQ, REP)) as pipe:
            body = os.urandom(size)
            pipe.send((SMALL_ID, body))
            assert read_until(pipe, 1) == [SMALL_ID + body]
        echoing.join()


def test_nothing_at_the_path_is_an_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        NngPipe(tmp_path / "s", REQ, REP)
