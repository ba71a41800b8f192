"""The head of a Markdown file: YAML between two lines of three dashes. Pure.

YAML because that is what skills, commands and agents of other programs have; of it only texts,
lists and tables, so that nothing is ever constructed.
"""

from typing import Any, Final, TypeVar, cast

import msgspec
import yaml

HEAD_BYTES_MAX: Final = 4096
"""Longest head. The parser takes quadratic time: 40 ms for so many opening brackets."""

BRACKETS_MAX: Final = 64
"""Opening brackets in a head; a hundred hostile files must not cost seconds."""

_FENCE: Final = "---"

Head = TypeVar("Head", bound=msgspec.Struct)


class FrontMatterError(Exception):
    """A head that can't be used; the message is a clause that says why."""


def split(text: str) -> tuple[str, str]:
    """Return head and body, without the fences; a text without a head has the empty one."""
    first, _, rest = text.partition("\n")
    if first.rstrip() != _FENCE:
        return "", text
    lines = rest.split("\n")
    for number, line in enumerate(lines):
        if line.rstrip() == _FENCE:
            return "\n".join(lines[:number]), "\n".join(lines[number + 1 :])
    raise FrontMatterError("its front matter has no end: a line of three dashes is missing")


def parse(text: str, wanted: type[Head]) -> tuple[Head, str]:
    """Return the head as `wanted` and the body; raises `FrontMatterError`.

    Fields that `wanted` does not know belong to other programs and are passed over; an empty one
    counts as absent.
    """
    head, body = split(text)
    if len(head.encode()) > HEAD_BYTES_MAX:
        raise FrontMatterError(f"its front matter is longer than {HEAD_BYTES_MAX} bytes")
    if head.count("[") + head.count("{") > BRACKETS_MAX:
        raise FrontMatterError(f"its front matter has more than {BRACKETS_MAX} brackets")
    values = {name: value for name, value in _load(head).items() if value not in ("", None)}
    try:
        return msgspec.convert(values, wanted, strict=False), body
    except (msgspec.ValidationError, RecursionError) as error:
        raise FrontMatterError(f"its front matter can't be used: {error}") from None


def _load(head: str) -> dict[str, Any]:
    try:
        values: object = yaml.load(head, yaml.CBaseLoader)  # noqa: S506 - makes texts, lists, tables
    except (yaml.YAMLError, UnicodeError, RecursionError) as error:
        reason = " ".join(str(error).split())[:200]
        raise FrontMatterError(f"its front matter is not YAML: {reason}") from None
    if values in (None, ""):
        return {}
    if not isinstance(values, dict):
        raise FrontMatterError("its front matter is no table of names and values")
    return cast("dict[str, Any]", values)
