"""The text that the bytes of a file stand for, and the bytes of a text: encodings are known here.

Pure. A text that is encoded again gives the same bytes, whatever they were; so what a tool leaves
alone in the text stays to the byte.
"""

import codecs
import re
from typing import Final, NamedTuple

from tiller_daemon.tools.base import ToolFailure

NUL_LOOK: Final = 8192
"""A NUL among so many first characters makes a file binary, as for git and grep."""

BEGINNING_SHOWN_BYTES: Final = 8

STRAYS_PER_CHANCE: Final = 10
"""Beside so many bytes that are no UTF-8 one pair may look like it: in Windows-1252 an upper-case
letter with an accent before a closing quotation mark is such a pair."""

_UNDEFINED: Final = "\x81\x8d\x8f\x90\x9d"
"""What Windows-1252 leaves open; browsers take these bytes for the control characters."""

_HALVES = re.compile("[\ud800-\udfff]")


class Encoding(NamedTuple):
    """How text is written: its name for people, Python's codec, and the mark before the text."""

    name: str
    codec: str
    errors: str
    bom: bytes = b""

    @property
    def is_utf_16(self) -> bool:
        """Whether bytes of ASCII are other characters in it, so that no line is to be seen."""
        return self.codec.startswith("utf-16")


UTF_8: Final = Encoding("UTF-8", "utf-8", "surrogateescape")
WINDOWS_1252: Final = Encoding("Windows-1252", "cp1252", "tiller-undefined")
WITH_BOM: Final = (
    Encoding("UTF-8", "utf-8", "surrogateescape", codecs.BOM_UTF8),
    Encoding("UTF-16 LE", "utf-16-le", "surrogatepass", codecs.BOM_UTF16_LE),
    Encoding("UTF-16 BE", "utf-16-be", "surrogatepass", codecs.BOM_UTF16_BE),
)


class FileText(NamedTuple):
    """The text of a file without its mark. Bytes that its encoding has not are half surrogates."""

    text: str
    encoding: Encoding


class EncodingProblem(ToolFailure):
    """Bytes that are no text, or text that can't be such bytes; the message is a clause on why."""


def decode_text(data: bytes) -> FileText:
    """Return the text of a file. Raises `EncodingProblem`.

    Without a mark it is UTF-8, and Windows-1252 when what is beyond ASCII is no UTF-8: then each
    byte is a character, in files of western languages the right one.
    """
    encoding = next((one for one in WITH_BOM if data.startswith(one.bom)), UTF_8)
    if encoding == UTF_8 and _is_western(data):
        encoding = WINDOWS_1252
    try:
        text = data[len(encoding.bom) :].decode(encoding.codec, encoding.errors)
    except UnicodeDecodeError:
        raise EncodingProblem(_binary(data)) from None
    if "\0" in text[:NUL_LOOK]:
        raise EncodingProblem(_binary(data))
    return FileText(text, encoding)


def encode_text(text: str, encoding: Encoding) -> bytes:
    """Return a text as a file has it. Raises `EncodingProblem` for a character that it lacks."""
    try:
        return encoding.bom + text.encode(encoding.codec, encoding.errors)
    except UnicodeEncodeError as error:
        raise EncodingProblem(
            f"{encoding.name}, its encoding, has no `{printable_text(text[error.start])}`. Write "
            "that in another way, or make it UTF-8 first with "
            f"`iconv -f {encoding.name.upper()} -t UTF-8`"
        ) from None


def encode_like(before: bytes | None, content: str) -> bytes:
    """Return `content` as the whole of a file that was `before`: in its encoding and line ends.

    Raises `EncodingProblem` and `ToolFailure`.
    """
    require_characters(content, "`content`")
    try:
        was = decode_text(before or b"")
    except EncodingProblem:
        return content.encode()
    if was.encoding.bom:
        content = content.removeprefix("\ufeff")
    if "\r" not in content and _ends_in_crlf(was.text):
        content = content.replace("\n", "\r\n")
    return encode_text(content, was.encoding)


def describe_format(data: bytes) -> str:
    """Return what is not to be seen of the text of a file, to be put behind `bytes`."""
    try:
        text, encoding = decode_text(data)
    except EncodingProblem:
        return ""
    return describe_encoding(encoding) + (", lines end in CRLF" if _ends_in_crlf(text) else "")


def describe_encoding(encoding: Encoding) -> str:
    """Return the name of an encoding that is not UTF-8, to be put behind a noun; else nothing."""
    if encoding == WINDOWS_1252:
        return f", not UTF-8 but {encoding.name} as it seems"
    return "" if encoding.codec == UTF_8.codec else f", in {encoding.name}"


def require_characters(text: str, what: str) -> None:
    """Raise `ToolFailure` when a text of the model is none: it would name bytes, not characters."""
    if not _is_whole(text):
        raise ToolFailure(f"{what} holds half a surrogate pair, which is no text.")


def printable_line(data: bytes) -> str:
    """Return a line of some file as text that can be stored and sent, judged by itself."""
    try:
        return printable_text(decode_text(data).text)
    except EncodingProblem:
        return data.decode(errors="replace")


def printable_text(text: str) -> str:
    """Return text that can be stored and sent: what was no character is a replacement character."""
    return text if _is_whole(text) else _HALVES.sub("\ufffd", text)


def _binary(data: bytes) -> str:
    return f"it is binary and begins with the bytes {data[:BEGINNING_SHOWN_BYTES].hex(' ')}"


def _is_whole(text: str) -> bool:
    """Whether there is no half of a surrogate pair in it; a hundredth of what a search takes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _ends_in_crlf(text: str) -> bool:
    """Whether all lines that have an end have that of Windows, and there are some."""
    return 0 < text.count("\r\n") == text.count("\n")


def _is_western(data: bytes) -> bool:
    """Whether so little of what is beyond ASCII is UTF-8 that this is by chance."""
    try:
        data.decode()
    except UnicodeDecodeError:
        characters = data.decode(errors="ignore")
        size_bytes, ascii_bytes = (len(characters.encode(c, "ignore")) for c in ("utf-8", "ascii"))
        by_chance = (len(data) - size_bytes) // STRAYS_PER_CHANCE
        return len(characters) - ascii_bytes <= by_chance
    return False


def _take_undefined(error: UnicodeError) -> tuple[str | bytes, int]:
    """Let the bytes that Windows-1252 leaves open be control characters, and the other way."""
    match error:
        case UnicodeDecodeError():
            return error.object[error.start : error.end].decode("latin-1"), error.end
        case UnicodeEncodeError() if error.object[error.start] in _UNDEFINED:
            return error.object[error.start].encode("latin-1"), error.start + 1
        case _:
            raise error


codecs.register_error(WINDOWS_1252.errors, _take_undefined)
