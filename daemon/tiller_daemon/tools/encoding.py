"""Decodes the bytes of a file to text and encodes it again, in the encoding of the file. Pure.

Decoding and encoding again gives the same bytes, whatever they were, so every part of a text that a
tool does not change keeps its bytes.
"""

import codecs
import re
from typing import Final, NamedTuple

from tiller_daemon.tools.base import ToolFailure

NUL_CHECKED_CHARS: Final = 8192
"""A NUL among this many first characters makes a file binary, as for git and grep."""

BEGINNING_SHOWN_BYTES: Final = 8

STRAYS_PER_CHANCE: Final = 10
"""Among this many bytes of invalid UTF-8, one pair may be valid by chance: in Windows-1252, an
accented upper-case letter before a closing quotation mark is such a pair."""

_UNDEFINED: Final = "\x81\x8d\x8f\x90\x9d"
"""Bytes that Windows-1252 leaves undefined; browsers decode them as control characters."""

_SURROGATES = re.compile("[\ud800-\udfff]")


class Encoding(NamedTuple):
    """An encoding: its name for people, Python's codec and error handler, and a byte order mark."""

    name: str
    codec: str
    errors: str
    bom: bytes = b""


UTF_8: Final = Encoding("UTF-8", "utf-8", "surrogateescape")
WINDOWS_1252: Final = Encoding("Windows-1252", "cp1252", "tiller-undefined")
WITH_BOM: Final = (
    Encoding("UTF-8", "utf-8", "surrogateescape", codecs.BOM_UTF8),
    Encoding("UTF-16 LE", "utf-16-le", "surrogatepass", codecs.BOM_UTF16_LE),
    Encoding("UTF-16 BE", "utf-16-be", "surrogatepass", codecs.BOM_UTF16_BE),
)


class FileText(NamedTuple):
    """The text of a file without the byte order mark; undecodable bytes are lone surrogates."""

    text: str
    encoding: Encoding


class EncodingProblem(ToolFailure):
    """Bytes that can't be decoded, or text that can't be encoded.

    The message is whole sentences, which call the file "it".
    """


def decode_text(data: bytes) -> FileText:
    """Return the text of a file. Raises `EncodingProblem` for a binary one.

    Without a byte order mark the encoding is UTF-8, or Windows-1252 if the bytes beyond ASCII are
    not UTF-8. Windows-1252 maps each byte to a character, and for western languages to the right
    one.
    """
    encoding = next((each for each in WITH_BOM if data.startswith(each.bom)), UTF_8)
    if encoding == UTF_8 and _is_western(data):
        encoding = WINDOWS_1252
    try:
        text = data[len(encoding.bom) :].decode(encoding.codec, encoding.errors)
    except UnicodeDecodeError:
        raise EncodingProblem(_binary(data)) from None
    if "\0" in text[:NUL_CHECKED_CHARS]:
        raise EncodingProblem(_binary(data))
    return FileText(text, encoding)


def encode_text(text: str, encoding: Encoding) -> bytes:
    """Return the bytes of a file. Raises `EncodingProblem` if the encoding lacks a character."""
    try:
        return encoding.bom + text.encode(encoding.codec, encoding.errors)
    except UnicodeEncodeError as error:
        raise EncodingProblem(
            f"Its encoding, {encoding.name}, has no `{printable_text(text[error.start])}`. Avoid "
            "that character, or convert the file first with "
            f"`iconv -f {encoding.name.upper()} -t UTF-8`."
        ) from None


def encode_like(before: bytes | None, content: str) -> bytes:
    """Return the bytes of `content` with the encoding and line ends of the file `before`.

    The encoding is UTF-8 if there was no file, or a binary one. Raises `EncodingProblem` and
    `ToolFailure`.
    """
    require_characters(content, "`content`")
    try:
        old = decode_text(before or b"")
    except EncodingProblem:
        return content.encode()
    if old.encoding.bom:
        content = content.removeprefix("\ufeff")
    if "\r" not in content and _ends_in_crlf(old.text):
        content = content.replace("\n", "\r\n")
    return encode_text(content, old.encoding)


def describe_format(data: bytes) -> str:
    """Return the unusual ones of a file's encoding and line ends, to follow a noun; else empty."""
    try:
        text, encoding = decode_text(data)
    except EncodingProblem:
        return ""
    return describe_encoding(encoding) + (", lines end in CRLF" if _ends_in_crlf(text) else "")


def describe_encoding(encoding: Encoding) -> str:
    """Return the name of an encoding other than UTF-8, to follow a noun; empty for UTF-8."""
    if encoding == WINDOWS_1252:
        return f", not UTF-8 but probably {encoding.name}"
    return "" if encoding.codec == UTF_8.codec else f", in {encoding.name}"


def require_characters(text: str, argument: str) -> None:
    """Raise `ToolFailure` for lone surrogates in an argument, as they would stand for bytes."""
    if not _is_encodable(text):
        raise ToolFailure(f"{argument} contains half a surrogate pair, which is not a character.")


def printable_line(data: bytes) -> str:
    """Return a line of a file as text that can be stored and sent; its encoding is guessed."""
    try:
        return printable_text(decode_text(data).text)
    except EncodingProblem:
        return data.decode(errors="replace")


def printable_text(text: str) -> str:
    """Return text that can be stored and sent, with replacement characters for surrogates."""
    return text if _is_encodable(text) else _SURROGATES.sub("\ufffd", text)


def _binary(data: bytes) -> str:
    return f"It is binary and begins with the bytes {data[:BEGINNING_SHOWN_BYTES].hex(' ')}."


def _is_encodable(text: str) -> bool:
    """Whether a text has no lone surrogates."""
    # This takes a hundredth of the time of a search with a regular expression.
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _ends_in_crlf(text: str) -> bool:
    """Whether there are line ends, and all of them are CRLF."""
    return 0 < text.count("\r\n") == text.count("\n")


def _is_western(data: bytes) -> bool:
    """Whether so few of the bytes beyond ASCII are valid UTF-8 that this must be chance."""
    try:
        data.decode()
    except UnicodeDecodeError:
        characters = data.decode(errors="ignore")
        size_bytes, ascii_bytes = (len(characters.encode(c, "ignore")) for c in ("utf-8", "ascii"))
        by_chance = (len(data) - size_bytes) // STRAYS_PER_CHANCE
        return len(characters) - ascii_bytes <= by_chance
    return False


def _take_undefined(error: UnicodeError) -> tuple[str | bytes, int]:
    """Map the bytes that Windows-1252 leaves undefined to control characters, and back."""
    match error:
        case UnicodeDecodeError():
            return error.object[error.start : error.end].decode("latin-1"), error.end
        case UnicodeEncodeError() if error.object[error.start] in _UNDEFINED:
            return error.object[error.start].encode("latin-1"), error.start + 1
        case _:
            raise error


codecs.register_error(WINDOWS_1252.errors, _take_undefined)
