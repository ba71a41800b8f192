"""A source of configuration (a file, a variable, `-c`), and the place of an error in it. Pure.

`msgspec.convert` says whether values are valid. Its own messages name neither the key of a table
nor a line, and may quote a value, so they are replaced here.
"""

import difflib
from collections.abc import Collection, Iterable, Iterator, Sequence
from types import UnionType
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, Union, cast, get_args, get_origin

import msgspec
from msgspec import Meta, Struct, structs

from tiller_daemon.config.constraints import FieldError
from tiller_daemon.config.schema import Configuration, ConfigurationError
from tiller_daemon.config.toml import Key, Table, TomlError, line_of, parse_toml

UTF_8_SIG = "utf-8-sig"
"""The encoding of files. Some editors on Windows write a byte order mark, which is no text."""

_Converted = TypeVar("_Converted")


class Source(NamedTuple):
    """A source: its name for people, its values and, for a file, its text to find lines in."""

    name: str
    values: Table
    text: str = ""

    def error(self, key: Key, problem: str) -> ConfigurationError:
        """Return an error about `key` in this source."""
        line = line_of(self.text, key)
        place = f"{self.name}, line {line}" if line else self.name
        return ConfigurationError(f"{place}: {dotted(key)}: {problem}")


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


def parse(name: str, text: str) -> Source:
    """Return the source for a file's text; raises `ConfigurationError` if it is not TOML."""
    try:
        return Source(name, parse_toml(text), text)
    except TomlError as error:
        raise ConfigurationError(f"{name}: {error}") from None


def assign(name: str, key: tuple[str, ...], text: str) -> Source:
    """Return the source that sets `key` to `text`, which is a TOML value or a bare string.

    A TOML value of the wrong type is a bare string if that fits, so that a name may be `4`.
    """
    try:
        value = parse_toml(f"value = {text}")["value"] if "\n" not in text else text
    except TomlError:
        value = text
    tables = [_nested(key, value), _nested(key, text)]
    return Source(name, next((one for one in tables if _fits(one, key)), tables[0]))


def convert(values: Table, kind: type[_Converted], sources: Sequence[Source]) -> _Converted:
    """Return values, merged from `sources`, as `kind`; raises `ConfigurationError`."""
    if found := find_problem(values, kind):
        raise error_in(sources, *found)
    return msgspec.convert(values, kind)


def error_in(sources: Sequence[Source], key: Key, problem: str) -> ConfigurationError:
    """Return an error about `key` in the last source that sets it, or else a table around it."""
    source = max(reversed(sources), key=lambda source: _depth(source.values, key))
    return source.error(key, problem)


def find_problem(value: object, kind: object) -> tuple[Key, str] | None:
    """Return the innermost key whose value does not have the type `kind`, and why, as a clause."""
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        for part, inner, inner_kind in _parts(value, kind):
            if found := find_problem(inner, inner_kind):
                return (part, *found[0]), found[1]
        return _describe(value, kind, error)
    return None


def suggest(name: str, known: Collection[str]) -> str:
    """Return a hint: the known name most similar to `name`, or a list of all known names."""
    if close := difflib.get_close_matches(name, known, n=1):
        return f"did you mean `{close[0]}`?"
    return f"known are {_listed(known)}" if known else "there are none"


def _nested(key: tuple[str, ...], value: object) -> Table:
    return {key[0]: _nested(key[1:], value) if key[1:] else value}


def _fits(values: Table, key: Key) -> bool:
    """Whether the value of `key` is valid. Another source may set what a table around it lacks."""
    found = find_problem(values, Configuration)
    return found is None or len(found[0]) < len(key)


def _depth(values: Table, key: Key) -> int:
    """Return how many parts of `key` lead to a value."""
    inner: Any = values
    for depth, part in enumerate(key):
        try:
            inner = inner[part]
        except (LookupError, TypeError):
            return depth
    return len(key)


def _parts(value: object, kind: object) -> Iterator[tuple[str | int, object, object]]:
    """Yield what is in a value, with its key and type; names in a table have a type as well."""
    table = cast("Table", value) if isinstance(value, dict) else {}
    for one in _alternatives(kind):
        if get_origin(one) is tuple and isinstance(value, list):
            for index, inner in enumerate(cast("list[object]", value)):
                yield index, inner, get_args(one)[0]
        elif get_origin(one) is dict:
            for name, inner in table.items():
                yield from zip((name, name), (name, inner), get_args(one), strict=True)
        else:
            types = _fields(one)
            yield from ((name, table[name], types[name]) for name in table if name in types)


def _alternatives(kind: object) -> Iterator[Any]:
    """Yield the types of a union, and the constraints on them."""
    if get_origin(kind) in (Annotated, Union, UnionType):
        for one in get_args(kind):
            yield from _alternatives(one)
    else:
        yield kind


def _fields(kind: object) -> dict[str, Any]:
    """Return the types of a struct's fields; none for another type."""
    if not isinstance(kind, type) or not issubclass(kind, Struct):
        return {}
    return {field.name: field.type for field in structs.fields(kind)}


def _describe(value: object, kind: object, error: Exception) -> tuple[Key, str]:
    if isinstance(error.__cause__, FieldError):
        return error.__cause__.key, str(error.__cause__)
    for one in _alternatives(kind):
        if isinstance(one, Meta) and one.extra:
            return (), one.extra["expected"]
        if get_origin(one) is Literal:
            return (), f"expected one of {_listed(get_args(one))}"
        if isinstance(value, dict) and (fields := _fields(one)):
            for name in cast("Table", value):
                if name not in fields:
                    return (name,), f"unknown key; {suggest(name, fields)}"
    text = str(error).split(" - at ")[0].replace(" | null", "").replace("`object`", "a table")
    _, _, missing = text.partition("missing required field ")
    return (), f"{missing} is missing" if missing else text[:1].lower() + text[1:]


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
