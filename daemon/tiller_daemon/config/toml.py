"""Parses TOML from outside. Pure."""

import re
import tomllib
from collections import Counter
from itertools import takewhile
from typing import Any, Final, cast

Key = tuple[str | int, ...]
Table = dict[str, Any]

KEY_PARTS_MAX: Final = 16
"""The most parts that a key may have. `tomllib` takes quadratic time for a key of many parts; with
this limit, 1 MiB of TOML takes some seconds at most."""

_QUOTED: Final = re.compile(
    r'"""(?:[^"\\]++|\\(?:.|\Z)|"(?!""))*+(?:"{3,5}|\Z)'
    r"|'''(?:[^']++|'(?!''))*+(?:'{3,5}|\Z)"
    r'|"(?:[^"\\\n]++|\\(?:.|\Z))*+"?'
    r"|'[^'\n]*+'?"
    r"|#[^\n]*+",
    re.DOTALL,
)
"""A string or a comment, which may contain any characters. It ends where it does for `tomllib`, or
before the place of a syntax error."""

_AROUND_KEYS: Final = re.compile(r"[=,\[\]{}]")


class TomlError(ValueError):
    """A text is not TOML that can be used; the message is a clause that says why."""


def parse_toml(text: str) -> Table:
    """Return the values of a TOML document; raises `TomlError`."""
    if line := _line_of_long_key(text):
        raise TomlError(
            f"line {line} has a key of more than {KEY_PARTS_MAX} parts; no setting has that many"
        )
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise TomlError(f"not valid TOML: {error}") from None
    except RecursionError:
        raise TomlError("not valid TOML: nested too deeply") from None
    except ValueError:
        # Python converts no integer of more than 4,300 digits.
        raise TomlError("a number in it is too long, or a time is out of range") from None


def parse_key(text: str) -> tuple[str, ...]:
    """Return the parts of a dotted key, or () for other text; quotes are as in TOML."""
    try:
        table: Any = parse_toml(f"{text} = 0")
    except TomlError:
        return ()
    key: list[str] = []
    while isinstance(table, dict) and len(cast("Table", table)) == 1:
        ((part, table),) = cast("Table", table).items()
        key.append(part)
    return tuple(key)


def line_of(text: str, key: Key) -> int | None:
    """Return the line of the statement that sets `key` in a valid document, or the closest table.

    Takes linear time. Keys that contain `=` are not found, nor is what follows a list of lists.
    """
    found, depth = None, 0
    table: Key = ()
    rows = Counter[Key]()
    for number, line in enumerate(_QUOTED.sub(_keep_short, text).split("\n"), 1):
        header = line.strip().startswith("[")
        named: Key = parse_key(line.strip("[] \t\r") if header else line.partition("=")[0])
        if not named:
            continue
        if line.strip().startswith("[["):
            rows[named] += 1
            named = (*named, rows[named] - 1)
        table, named = (named, named) if header else (table, (*table, *named))
        common = sum(
            1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(named, key, strict=False))
        )
        if common > depth:
            found, depth = number, common
    return found


def _keep_short(quoted: re.Match[str]) -> str:
    """Return a string, or empty lines instead of a comment or a string of several lines."""
    is_short = quoted[0][0] != "#" and quoted[0][:3] not in ('"""', "'''")
    return quoted[0] if is_short else "\n" * quoted[0].count("\n")


def _line_of_long_key(text: str) -> int | None:
    """Return the first line with a key of too many parts; takes linear time.

    Outside strings and comments, dots separate the parts of keys; a number or a time has only one.
    """
    bare = _QUOTED.sub(lambda quoted: "\n" * quoted[0].count("\n"), text)
    for number, line in enumerate(bare.split("\n"), 1):
        if any(one.count(".") >= KEY_PARTS_MAX for one in _AROUND_KEYS.split(line)):
            return number
    return None
