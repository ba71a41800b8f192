"""The heads of requests and responses. Pure.

Heads are parsed here because the C parser rejects forms that real servers send and RFC 9112 lets a
client accept: lines that end with LF, folded lines, a length that is given twice.
"""

import re
from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from tiller_daemon.http.failures import Broken

HEAD_BYTES_MAX: Final = 100 * 1024
"""The longest head, including interim responses before it; servers send 1 to 8 KiB."""

LENGTH_DIGITS_MAX: Final = 20
"""The longest Content-Length: a 64-bit number has no more digits."""

SHOWN_CHARS: Final = 100
"""How many characters of an invalid line an error message shows."""

_BLANK_LINE: Final = re.compile(rb"\n\r?\n")
_STATUS_LINE: Final = re.compile(
    r"HTTP/1\.([0-9]) ([1-9][0-9]{2})(?: ([^\x00\r\x0b\x0c]*))?", re.ASCII
)
_FIELDS: Final = re.compile(
    r"^([-!#$%&'*+.^_`|~0-9a-zA-Z]+):[ \t]*([^\x00\n\r\x0b\x0c]*)$", re.MULTILINE
)
_FOLD: Final = re.compile(r"[ \t]*\n[ \t]+")
_FINAL: Final = 200
"""The first final status. After a lower, interim status, another response follows."""

_SWITCHING: Final = 101
_BODYLESS: Final = (204, 304)


class ResponseHead(Struct, frozen=True):
    """The head of a final response."""

    status: int
    """From 200 to 999."""

    reason: str
    """The text after the status; may be empty."""

    fields: tuple[tuple[str, str], ...]
    """The headers in order; names are in lower case."""

    minor_version: int
    """0 for HTTP/1.0, 1 for HTTP/1.1."""

    @property
    def headers(self) -> dict[str, str]:
        """The headers by name; the values of a repeated header are joined by commas."""
        joined: dict[str, str] = {}
        for name, value in self.fields:
            joined[name] = f"{joined[name]}, {value}" if name in joined else value
        return joined

    @property
    def keeps_connection(self) -> bool:
        """Whether the server takes another request after this response.

        Not after a chunked response with a length (RFC 9112): a proxy may have used the length.
        """
        if self._tokens("transfer-encoding") and self._tokens("content-length"):
            return False
        options = self._tokens("connection")
        return "close" not in options and (self.minor_version > 0 or "keep-alive" in options)

    @property
    def is_bodyless(self) -> bool:
        """Whether the status excludes a body, whatever the headers say."""
        return self.status in _BODYLESS

    @property
    def is_chunked(self) -> bool:
        """Whether the body is chunked. Raises `Broken` for any other transfer encoding."""
        encodings = self._tokens("transfer-encoding")
        if encodings and encodings != ["chunked"]:
            raise Broken("Only Transfer-Encoding: chunked is supported")
        return bool(encodings)

    @property
    def length(self) -> int | None:
        """The length of the body; None if the head does not give a length. Raises `Broken`."""
        lengths = set(self._tokens("content-length"))
        if not lengths:
            return None
        if len(lengths) > 1:
            raise Broken("conflicting Content-Length headers")
        length = lengths.pop()
        if not (length.isascii() and length.isdigit()) or len(length) > LENGTH_DIGITS_MAX:
            raise Broken("bad Content-Length")
        return int(length)

    def _tokens(self, wanted: str) -> list[str]:
        return [
            # Only spaces and tabs count as white space in HTTP.
            token.strip(" \t").lower()
            for name, value in self.fields
            if name == wanted
            for token in value.split(",")
        ]


class HeadReader:
    """Collects the head of a response from pieces of any size; skips interim responses."""

    def __init__(self) -> None:
        self.has_begun = False
        """Whether any byte has arrived."""
        self._buffer = bytearray()
        self._bytes_left = HEAD_BYTES_MAX

    def feed(self, data: bytes) -> tuple[ResponseHead, bytes] | None:
        """Add received data; once the head is complete, return it and the bytes after it.

        Raises `Broken` for an invalid head, and for empty `data`: the connection has ended.
        """
        if not data:
            reason = "Server disconnected without sending a response."
            raise Broken(reason, has_begun=self.has_begun)
        self.has_begun = True
        # The last three bytes may be the beginning of the blank line.
        searched = max(0, len(self._buffer) - 3)
        self._buffer += data
        while end := _BLANK_LINE.search(self._buffer, searched):
            self._bytes_left -= end.end()
            if self._bytes_left < 0:
                break
            head = parse_head(bytes(self._buffer[: end.start()]))
            del self._buffer[: end.end()]
            if head.status >= _FINAL:
                return head, bytes(self._buffer)
            if head.status == _SWITCHING:
                raise Broken("the server switched to another protocol")
            searched = 0
        if len(self._buffer) > self._bytes_left:
            raise Broken(f"the head of the response is longer than {HEAD_BYTES_MAX} bytes")
        return None


def parse_head(data: bytes) -> ResponseHead:
    """Parse the lines of a head, without the blank line at its end. Raises `Broken`."""
    text = _text(data).replace("\r\n", "\n").removesuffix("\r")
    first, _, rest = text.partition("\n")
    status = _STATUS_LINE.fullmatch(first)
    if status is None:
        raise Broken(f"illegal status line: {_shown(first)}")
    if rest.startswith((" ", "\t")):
        raise Broken("continuation line at start of headers")
    if "\n " in rest or "\n\t" in rest:
        rest = _FOLD.sub(" ", rest)
    # One search over all lines is faster than one for each line.
    found = _FIELDS.findall(rest)
    lines = rest.split("\n") if rest else []
    if len(found) != len(lines):
        illegal = next(line for line in lines if not _FIELDS.fullmatch(line))
        raise Broken(f"illegal header line: {_shown(illegal)}")
    fields = tuple([(name.lower(), value.rstrip(" \t")) for name, value in found])
    return ResponseHead(int(status[2]), status[3] or "", fields, int(status[1]))


def make_request(
    method: str, target: str, fields: Iterable[tuple[str, str]], body: bytes = b""
) -> bytes:
    """Return the bytes of a request, with a Content-Length if there is a body.

    `fields` and `target` must be ASCII without control characters.
    """
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in fields)]
    if body:
        lines.append(f"content-length: {len(body)}")
    return "\r\n".join((*lines, "\r\n")).encode("ascii") + body


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def _shown(line: str) -> str:
    return repr(line[:SHOWN_CHARS])
