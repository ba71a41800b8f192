"""Parses HTTP responses with this client and with h11, and makes random responses.

h11, which comes with the MCP package, decides which bytes are a valid response.
"""

import re
from collections.abc import Iterable
from itertools import pairwise
from random import Random
from typing import NamedTuple

import h11

from tiller_daemon.http.body import Body, body_of
from tiller_daemon.http.failures import Broken
from tiller_daemon.http.head import HEAD_BYTES_MAX, HeadReader, ResponseHead


class Parsed(NamedTuple):
    """A complete response, and whether its connection can take another request."""

    status: int
    fields: tuple[tuple[str, str], ...]
    content: bytes
    is_reusable: bool


def cut(data: bytes, places: Iterable[int]) -> list[bytes]:
    """Cut the data into pieces, none of them empty."""
    bounds = sorted({0, len(data), *(min(place, len(data)) for place in places)})
    return [data[start:end] for start, end in pairwise(bounds)]


def parse(pieces: Iterable[bytes], *, ended: bool = True) -> Parsed:
    """Parse pieces, then the end of the connection, with this client; may raise `Broken`."""
    reader = HeadReader()
    head: ResponseHead | None = None
    body = Body()
    content = b""
    for piece in [*pieces, b""] if ended else pieces:
        if head is not None:
            if body.is_complete:
                # Bytes that the client leaves unread also make the connection unusable.
                body.has_excess = body.has_excess or bool(piece)
                continue
            body.feed(piece)
        elif (read := reader.feed(piece)) is not None:
            head, rest = read
            body = body_of(head)
            if rest and body.is_complete:
                body.has_excess = True
            elif rest:
                body.feed(rest)
        content += b"".join(body.pieces)
        body.pieces.clear()
    if head is None or not body.is_complete:
        raise Broken("not complete")
    is_closed = not head.is_bodyless and not head.is_chunked and head.length is None
    is_reusable = head.keeps_connection and not body.has_excess and not is_closed
    return Parsed(head.status, head.fields, content, is_reusable)


def parse_by_h11(data: bytes) -> Parsed | None:
    """Parse all bytes of a connection with h11; return None if they are no complete response."""
    connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_BYTES_MAX)
    request = h11.Request(method="GET", target="/", headers=[("Host", "h")])
    connection.send(request)
    connection.send(h11.EndOfMessage())
    status, fields, content = 0, (), b""
    try:
        connection.receive_data(data)
        is_at_end = False
        while True:
            event = connection.next_event()
            if event is h11.NEED_DATA and not is_at_end:
                connection.receive_data(b"")
                is_at_end = True
            elif isinstance(event, h11.InformationalResponse):
                if event.status_code == 101:
                    return None
            elif isinstance(event, h11.Response):
                status = event.status_code
                fields = tuple((name.decode(), _text(value)) for name, value in event.headers)
            elif isinstance(event, h11.Data):
                content += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                rest, _ = connection.trailing_data
                kept = connection.their_state is h11.DONE and not rest and not is_at_end
                return Parsed(status, fields, content, kept)
            else:
                return None
    except h11.RemoteProtocolError:
        return None


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


STATUS_LINES: tuple[bytes, ...] = (
    b"HTTP/1.1 200 OK", b"HTTP/1.1 200", b"HTTP/1.0 200 OK", b"HTTP/1.1 404 Not Found",
    b"HTTP/1.1 204 No Content", b"HTTP/1.1 304 No", b"HTTP/1.1 999 ",
)  # fmt: skip
ODD_STATUS_LINES: tuple[bytes, ...] = (
    b"HTTP/1.1 20 OK", b"HTTP/1.1 2000 OK", b"HTTP/1.1  200 OK", b"HTTP/1.1 200\tOK", b"",
    b"http/1.1 200 OK", b"HTTP/1.1 099 OK", b"HTTP/1.1 200 O\x00K", b"nonsense",
)  # fmt: skip
FIELD_LINES: tuple[bytes, ...] = (
    b"Content-Length: 5", b"Transfer-Encoding: chunked", b"content-length: 5, 5",
    b"Content-Length: 0", b"Transfer-Encoding: Chunked", b"Connection: close",
    b"Connection: keep-alive", b"Connection: x, Close", b"X: y", b"X:", b"X: \xff\xfe",
    b"X: Gr\xc3\xb6\xc3\x9fe", b"X: y \t ", b"X:\ty", b"X: \x01\x7f", b"Upgrade: h2c",
    b"Connection: upgrade",
)  # fmt: skip
ODD_FIELD_LINES: tuple[bytes, ...] = (
    b"Content-Length: 6", b"Content-Length: -1", b"Content-Length: 5x", b"Content-Length:",
    b"Transfer-Encoding: gzip, chunked", b"Transfer-Encoding: br", b"X : y", b": y", b"X",
    b"X: a\x00b", b" folded", b"\tfolded: too", b"X: a\rb", b"X: a\x0bb",
    b"Content-Length: 99999999999999999999999",
)  # fmt: skip
BODIES: tuple[bytes, ...] = (
    b"12345", b"12345", b"1234", b"123456", b"", b"5\r\n12345\r\n0\r\n\r\n",
    b"5\r\n12345\r\n0\r\n\r\n", b"5;a=b\r\n12345\r\n0;x\r\nTrailer: t\r\n\r\n",
    b"5\n12345\n0\n\n", b"5 \r\n12345\r\n0\r\n\r\n", b"0005\r\n12345\r\n0\r\n\r\n",
    b"5\r\n12345\r\n", b"5\r\n12345\r\n0\r\n", b"5\r\n1234\r\n0\r\n\r\n", b"x\r\n", b"-5\r\n12345",
    b"5\r\n12345\r\n0\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", b"FFFFFFFFFFFFFFFFFF\r\n1",
    b"\r\n5\r\n12345",
    b"A\r\n0123456789\r\n0\r\n\r\n", b"a\r\n0123456789\r\n0\r\nbad trailer\r\n\r\n",
)  # fmt: skip


RIGHT = 0.7
"""The probability that a part of a response is valid."""


def make_response(random: Random) -> bytes:
    """Return bytes that look like a response: often valid, often nearly, sometimes damaged."""
    end = random.choice((b"\r\n", b"\r\n", b"\r\n", b"\n"))
    data = b""
    for _ in range(random.choice((0, 0, 0, 0, 1, 2))):
        data += b"HTTP/1.1 " + random.choice((b"100 Go on", b"103 Early", b"101 Other")) + end * 2
    first = random.choice(STATUS_LINES if random.random() < RIGHT else ODD_STATUS_LINES)
    fields = random.choices(FIELD_LINES, k=random.choice((1, 1, 1, 2, 3)))
    if random.random() > RIGHT:
        fields.insert(random.randrange(len(fields) + 1), random.choice(ODD_FIELD_LINES))
    data += end.join([first, *fields]) + end * 2 + random.choice(BODIES)
    if random.random() < RIGHT:
        return data
    for _ in range(random.choice((1, 1, 3))):
        place = random.randrange(len(data) + 1)
        new = random.choice((b"", b"\r", b"\n", b" ", b"\0", b"0", b":", random.randbytes(1)))
        data = data[:place] + new + data[place + random.randrange(2) :]
    return data


def differs_from_h11(data: bytes, cuts: Iterable[int] = ()) -> str:
    """Say how our reading of a response differs from h11's for no known reason."""
    expected = parse_by_h11(data)
    try:
        found = parse(cut(data, cuts))
    except Broken as error:
        # The C parser wants CR LF in trailers; nobody speaks HTTP/0, or HTTP/9 on such a wire.
        is_known = re.match("illegal chunk: |illegal status line: 'HTTP/[02-9]", str(error))
        return "" if expected is None or is_known else f"{error}, but h11: {expected}"
    if expected is None:
        return f"{found}, but h11 refuses"
    # We keep a connection of HTTP/1.0 that asks for it, and none with both framings. The C parser
    # passes over line ends behind chunks.
    names = {name for name, _ in found.fields}
    both = {"content-length", "transfer-encoding"} <= names
    ends = data != data.rstrip(b"\r\n") + b"\r\n\r\n" and "transfer-encoding" in names
    if both or ends or b"HTTP/1.0" in data or b"HTTP/0." in data:
        expected = expected._replace(is_reusable=found.is_reusable)
    if _comparable(found) != _comparable(expected):
        return f"{found}, but h11: {expected}"
    return ""


def _comparable(parsed: Parsed) -> Parsed:
    """Remove h11's changes to headers, and differences in how folds and other bytes are shown."""
    fields = tuple(
        (name, " ".join(value.split()) if value.isascii() else "")
        for name, value in parsed.fields
        if name not in ("content-length", "transfer-encoding")
    )
    return parsed._replace(fields=fields)
