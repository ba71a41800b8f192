"""The front matter of a Markdown file: YAML between two lines of three dashes. Pure.

Other programs use YAML in their skills, commands and agents. Only texts, lists and tables are
parsed, so no object is ever constructed.
"""

import re
from functools import lru_cache
from typing import Any, Final, TypeVar, cast

import msgspec
from msgspec.inspect import StrType, UnionType, type_info
from msgspec.structs import fields

from tiller_daemon.workspace.documents import Document, RefusedDocument

HEAD_BYTES_MAX: Final = 4096
"""The longest front matter. Parsing takes quadratic time: 40 ms for this many opening brackets."""

BRACKETS_MAX: Final = 64
"""The most opening brackets in a front matter, so that a hundred hostile files don't take
seconds."""

HEADS_MAX: Final = 512
"""How many front matters are kept after they were parsed, as each turn reads the same files."""

FILE_BYTES_MAX: Final = 64 * 1024
"""A longer agent or command is refused, as half a prompt is useless."""

_FENCE: Final = "---"

_VALUE: Final = re.compile(r"^([\w-]+):[ \t]+(?![|>\"'])(\S.*(?:\n[ \t]+.*)*)$", re.MULTILINE)
"""A name at the beginning of a line, and its value, which may continue in indented lines."""

Head = TypeVar("Head", bound=msgspec.Struct)


class FrontMatterError(Exception):
    """The file or its front matter can't be used; the message is a clause with the reason."""


def split(text: str) -> tuple[str, str]:
    """Return the front matter, without its fences, and the body.

    The front matter is empty if the text has none.
    """
    first, _, rest = text.partition("\n")
    if first.rstrip() != _FENCE:
        return "", text
    lines = rest.split("\n")
    for number, line in enumerate(lines):
        if line.rstrip() == _FENCE:
            return "\n".join(lines[:number]), "\n".join(lines[number + 1 :])
    raise FrontMatterError("its front matter has no end: a line of three dashes is missing")


def parse(text: str, wanted: type[Head]) -> tuple[Head, str]:
    """Return the front matter as `wanted`, and the body; raises `FrontMatterError`.

    Unknown fields belong to other programs and are ignored. Empty fields count as absent.
    """
    head, body = split(text)
    if len(head.encode()) > HEAD_BYTES_MAX:
        raise FrontMatterError(f"its front matter is longer than {HEAD_BYTES_MAX} bytes")
    if head.count("[") + head.count("{") > BRACKETS_MAX:
        raise FrontMatterError(f"its front matter has more than {BRACKETS_MAX} brackets")
    parsed = _parsed(head, wanted)
    if isinstance(parsed, str):
        raise FrontMatterError(parsed)
    return cast("Head", parsed), body


@lru_cache(maxsize=HEADS_MAX)
def _parsed(head: str, wanted: type[msgspec.Struct]) -> msgspec.Struct | str:
    """Return the front matter as `wanted`, or why it can't be used."""
    try:
        return _convert(head, wanted)
    except FrontMatterError as error:
        # People write texts without quotes, even if YAML needs them: `description: Set up: hooks`.
        try:
            return _convert(_quoted(head, wanted), wanted)
        except FrontMatterError:
            return str(error)


def parse_document(document: Document | RefusedDocument, wanted: type[Head]) -> tuple[Head, str]:
    """Like `parse`, for a document of at most `FILE_BYTES_MAX` that must be complete."""
    if isinstance(document, RefusedDocument):
        raise FrontMatterError(f"its file was not read: {document.why}")
    if document.cut:
        raise FrontMatterError(f"its file is longer than {FILE_BYTES_MAX // 1024} KiB")
    return parse(document.text, wanted)


def _convert(head: str, wanted: type[Head]) -> Head:
    values = {name: value for name, value in _load(head).items() if value not in ("", None)}
    try:
        # The parser returns only texts, so `strict=False` converts `true` and numbers.
        return msgspec.convert(values, wanted, strict=False)
    except (msgspec.ValidationError, RecursionError) as error:
        raise FrontMatterError(f"its front matter can't be used: {error}") from None


def _quoted(head: str, wanted: type[Head]) -> str:
    """Put quotes around the values of fields that are texts, unless they are quoted or a block."""
    texts = {field.encode_name for field in fields(wanted) if _is_text(field.type)}

    def quote(found: re.Match[str]) -> str:
        name, value = found[1], found[2].replace("'", "''")
        return f"{name}: '{value}'" if name in texts else found[0]

    return _VALUE.sub(quote, head)


def _is_text(kind: object) -> bool:
    described = type_info(kind)
    options = described.types if isinstance(described, UnionType) else (described,)
    return any(isinstance(one, StrType) for one in options)


def _load(head: str) -> dict[str, Any]:
    import yaml  # the import takes 10 ms, which is much of the daemon's start

    try:
        values: object = yaml.load(head, yaml.CBaseLoader)  # noqa: S506 - makes texts, lists, tables
    except (yaml.YAMLError, UnicodeError, RecursionError) as error:
        reason = " ".join(str(error).split())[:200]
        raise FrontMatterError(f"its front matter is not YAML: {reason}") from None
    if values in (None, ""):
        return {}
    if not isinstance(values, dict):
        raise FrontMatterError("its front matter is not a table of names and values")
    return cast("dict[str, Any]", values)
