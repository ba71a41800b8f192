"""Parses TOML from outside. Pure."""

import re
import tomllib
from typing import Any, Final

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


def parse_toml(text: str) -> dict[str, Any]:
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


def _line_of_long_key(text: str) -> int | None:
    """Return the first line with a key of too many parts; takes linear time.

    Outside strings and comments, dots separate the parts of keys; a number or a time has only one.
    """
    bare = _QUOTED.sub(lambda quoted: "\n" * quoted[0].count("\n"), text)
    for number, line in enumerate(bare.split("\n"), 1):
        if any(one.count(".") >= KEY_PARTS_MAX for one in _AROUND_KEYS.split(line)):
            return number
    return None
