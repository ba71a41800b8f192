"""Mends arguments of forms that models send by mistake, guided by the schema. Pure.

A null stands for an optional argument that is left out. Numbers, booleans, lists and objects come
as text, and so do whole arguments. Nothing is changed that the schema permits as it is.
"""

from typing import Any, cast

import msgspec

Schema = dict[str, Any]


def mended_arguments(schema: Schema, text: str) -> str:
    """Return refused arguments as they were probably meant. Raises `msgspec.DecodeError`."""
    given = msgspec.json.decode(text)
    return msgspec.json.encode(_mended(schema, given)).decode()


def _mended(schema: object, value: Any) -> Any:  # noqa: ANN401 - any JSON value
    if not isinstance(schema, dict):
        return value
    known = cast("Schema", schema)
    kinds = _kinds(known)
    if isinstance(value, str) and kinds and "string" not in kinds:
        value = _parsed(value, kinds)
    part = _part_for(known, value)
    if isinstance(value, dict):
        properties, required = part.get("properties", {}), part.get("required", ())
        fields = cast("dict[str, Any]", value).items()
        return {
            name: _mended(properties.get(name), one)
            for name, one in fields
            if one is not None or name in required or _takes_null(properties.get(name))
        }
    if isinstance(value, list):
        return [_mended(part.get("items"), one) for one in cast("list[Any]", value)]
    return value


def _parsed(text: str, kinds: set[str]) -> Any:  # noqa: ANN401 - any JSON value
    """Return the value in a text if it is of one of these kinds, else the text."""
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return text
    return value if _kinds_of(value) & kinds else text


def _part_for(schema: Schema, value: object) -> Schema:
    """Return the schema itself, or the first of its alternatives for values of this kind."""
    for word in ("anyOf", "oneOf"):
        for part in schema.get(word, ()):
            if _kinds_of(value) & (_kinds(part) or set()):
                return cast("Schema", part)
    return schema


def _takes_null(schema: object) -> bool:
    """Whether null is a value of its own; an unknown argument's null is left to the tool."""
    kinds = _kinds(schema)
    return kinds is None or "null" in kinds


def _kinds(schema: object) -> set[str] | None:
    """Return the types of the values that a schema permits; None if it does not say."""
    if not isinstance(schema, dict):
        return None
    schema = cast("Schema", schema)
    kind = schema.get("type")
    if isinstance(kind, str):
        return {kind}
    if isinstance(kind, list):
        return set(cast("list[str]", kind))
    if "enum" in schema:
        return set[str]().union(*map(_kinds_of, schema["enum"]))
    for word in ("anyOf", "oneOf"):
        if word in schema:
            kinds = [_kinds(part) for part in schema[word]]
            return None if None in kinds else set[str]().union(*filter(None, kinds))
    return None


def _kinds_of(value: object) -> set[str]:
    match value:
        case None:
            return {"null"}
        case bool():
            return {"boolean"}
        case int():
            return {"integer", "number"}
        case float():
            return {"number"}
        case str():
            return {"string"}
        case list():
            return {"array"}
        case _:
            return {"object"}
