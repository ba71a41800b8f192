"""Parses one source of configuration (a file, a variable, `-c`), and checks its types. Pure.

Types are checked step by step instead of by one `msgspec.convert`, whose errors name neither the
key of a table nor a line.
"""

import difflib
import tomllib
from collections.abc import Mapping
from types import NoneType, UnionType
from typing import Any, Literal, cast, get_args, get_origin

import msgspec
from msgspec import NODEFAULT

from tiller_daemon.config.schema import Configuration, ConfigurationCode, ConfigurationError
from tiller_daemon.config.toml import TomlError, parse_toml

Key = tuple[str | int, ...]
Table = dict[str, Any]

LINES_SEARCHED_MAX = 1_000
SEARCHED_CHARS_MAX = 2 * 1024 * 1024
"""How much of a file is searched for the line of an error. The search takes quadratic time, but
with these limits at most some seconds."""


class Source(msgspec.Struct, frozen=True):
    """A source of values: its name for people and, for a file, its text to find lines in."""

    name: str
    text: str = ""

    def error(self, code: ConfigurationCode, key: Key, problem: str) -> ConfigurationError:
        """Return an error about `key` in this source."""
        line = _line_of(self.text, key)
        place = f"{self.name}, line {line}" if line else self.name
        return ConfigurationError(code, f"{place}: {dotted(key)}: {problem}")


def dotted(key: Key) -> str:
    """Return `key` as text: `models."local/qwen".max_output`, `permissions[0].action`."""
    text = ""
    for part in key:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            plain = part.replace("_", "").replace("-", "").isalnum() and part.isascii()
            text += ("." if text else "") + (part if plain else msgspec.json.encode(part).decode())
    return text


def parse(source: Source, *, find_lines: bool = True) -> Table:
    """Return the values of a file, with types checked; raises `ConfigurationError`.

    A hostile file can make it slow to find the line of an error, so turn off `find_lines` for files
    that are not trusted.
    """
    try:
        values = parse_toml(source.text)
    except TomlError as error:
        raise ConfigurationError("syntax", f"{source.name}: {error}") from None
    check(values, Configuration, (), source if find_lines else Source(source.name))
    return values


def assign(key: tuple[str, ...], text: str, source: Source) -> Table:
    """Return the table that sets `key` to `text`, which is a TOML value or a bare string.

    A TOML value of the wrong type is tried as a bare string as well, so that a name may be `4`.
    """
    try:
        value = parse_toml(f"value = {text}")["value"] if "\n" not in text else text
    except TomlError:
        value = text
    try:
        return _checked(key, value, source)
    except ConfigurationError as error:
        if error.code != "wrong_type" or isinstance(value, str):
            raise
        try:
            return _checked(key, text, source)
        except ConfigurationError:
            raise error from None


def merge(below: Table, above: Table) -> Table:
    """Merge two tables key by key; other values in `above` replace the values in `below`."""
    merged = dict(below)
    for key, value in above.items():
        old = merged.get(key)
        both = isinstance(old, dict) and isinstance(value, dict)
        merged[key] = merge(cast("Table", old), cast("Table", value)) if both else value
    return merged


def check(value: object, expected: object, key: Key, source: Source) -> None:
    """Raise `ConfigurationError` unless `value` has the type `expected`; fields may be missing."""
    origin = get_origin(expected)
    if struct := _struct(expected):
        _check_struct(_table(value, key, source), struct, key, source)
    elif origin is dict:
        for name, inner in _table(value, key, source).items():
            check(inner, get_args(expected)[1], (*key, name), source)
    elif origin is tuple and isinstance(value, list):
        for index, inner in enumerate(cast("list[object]", value)):
            check(inner, get_args(expected)[0], (*key, index), source)
            # Items of lists are not merged with other layers' items.
            check_complete(inner, get_args(expected)[0], (*key, index), source)
    else:
        try:
            msgspec.convert(value, cast("Any", expected))
        except msgspec.ValidationError as error:
            raise source.error("wrong_type", key, _describe_type_error(error, expected)) from None


def check_complete(value: object, expected: object, key: Key, source: Source) -> None:
    """Raise `ConfigurationError` if a struct in `value` lacks a required field."""
    if struct := _struct(expected):
        table = cast("Table", value)
        for field in msgspec.structs.fields(struct):
            if field.name in table:
                check_complete(table[field.name], field.type, (*key, field.name), source)
            elif field.default is NODEFAULT and field.default_factory is NODEFAULT:
                raise source.error("invalid_value", key, f"`{field.name}` is missing")
    elif get_origin(expected) is dict:
        for name, inner in cast("Table", value).items():
            check_complete(inner, get_args(expected)[1], (*key, name), source)


def has(values: object, key: Key) -> bool:
    """Whether `values` contains `key`."""
    for part in key:
        if isinstance(values, dict) and part in values:
            values = cast("Table", values)[cast("str", part)]
        elif isinstance(values, list) and isinstance(part, int):
            rows = cast("list[object]", values)
            if part >= len(rows):
                return False
            values = rows[part]
        else:
            return False
    return True


def suggest(name: str, known: Mapping[str, object] | tuple[str, ...]) -> str:
    """Return a hint: the known name most similar to `name`, or a list of all known names."""
    close = difflib.get_close_matches(name, list(known), n=1)
    if close:
        return f"did you mean `{close[0]}`?"
    return "known are " + ", ".join(f"`{one}`" for one in known) if known else "there are none"


def _checked(key: tuple[str, ...], value: object, source: Source) -> Table:
    table = cast("Table", value)
    for name in reversed(key):
        table = {name: table}
    check(table, Configuration, (), source)
    return table


def _check_struct(table: Table, expected: type[msgspec.Struct], key: Key, source: Source) -> None:
    types = {field.name: field.type for field in msgspec.structs.fields(expected)}
    for name, inner in table.items():
        if name not in types:
            hint = suggest(name, tuple(types))
            raise source.error("unknown_key", (*key, name), f"unknown key; {hint}")
        check(inner, types[name], (*key, name), source)


def _struct(expected: object) -> type[msgspec.Struct] | None:
    """Return the struct `S` if the type is `S` or `S | None`; else None."""
    if get_origin(expected) is UnionType:
        (expected, *others) = get_args(expected)
        if others != [NoneType]:
            return None
    return expected if isinstance(expected, type) and issubclass(expected, msgspec.Struct) else None


def _table(value: object, key: Key, source: Source) -> Table:
    if not isinstance(value, dict):
        raise source.error("wrong_type", key, "expected a table")
    return cast("Table", value)


def _describe_type_error(error: msgspec.ValidationError, expected: object) -> str:
    """Return msgspec's message, or for a `Literal` another one that does not quote the value."""
    for one in (expected, *get_args(expected)):
        if get_origin(one) is Literal:
            return "expected one of " + ", ".join(f"`{choice}`" for choice in get_args(one))
    text = str(error).split(" - at ")[0].replace(" | null", "")
    return text[:1].lower() + text[1:]


def _line_of(text: str, key: Key) -> int | None:
    """Return the line of the first statement that sets `key`, or else its closest known table.

    tomllib reports no lines, so ever longer beginnings of the file are parsed. The first beginning
    that contains the key ends with the statement that sets it.
    """
    lines = text.splitlines()[:LINES_SEARCHED_MAX]
    found: int | None = None
    depth = 1
    begin = 1
    searched = 0
    for number in range(1, len(lines) + 1):
        beginning = "\n".join(lines[:number])
        searched += len(beginning)
        if searched > SEARCHED_CHARS_MAX:
            break
        try:
            values = tomllib.loads(beginning)
        except tomllib.TOMLDecodeError:
            continue
        while depth <= len(key) and has(values, key[:depth]):
            found, depth = begin, depth + 1
        begin = number + 1
    return found
