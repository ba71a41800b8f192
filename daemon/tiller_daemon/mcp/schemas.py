"""Changes the schemas of servers' tools so that every provider accepts them. Pure.

OpenAI refuses a request with a choice of schemas at the root of a tool's schema, or with an array
without `items`. Anthropic refuses many names of properties, which get other names for models.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, cast

from tiller_daemon.mcp.tool_names import NAME_CHARS_MAX
from tiller_daemon.turn.output_schema import schema_problem

Schema = dict[str, Any]

_fits_as_name: Final = re.compile(rf"[a-zA-Z0-9_.-]{{1,{NAME_CHARS_MAX}}}").fullmatch
_OTHER: Final = re.compile(r"[^a-zA-Z0-9_.-]")

PARTS_MAX: Final = 100
"""How many parts of a root are merged, since nested references multiply."""

_CHOICES: Final = ("allOf", "anyOf", "oneOf")
_NOT_AT_ROOT: Final = (*_CHOICES, "$ref", "enum", "const", "not")
"""The keywords that OpenAI refuses at the root."""

_OF_ONE: Final = (
    *("additionalProperties", "contains", "else", "if", "items", "not", "propertyNames", "then"),
    *("additionalItems", "unevaluatedItems", "unevaluatedProperties"),
)
_OF_MANY: Final = (*_CHOICES, "prefixItems", "items")
_BY_NAME: Final = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
"""The keywords whose values are a schema, a list of schemas, or schemas by names."""


class SchemaProblem(ValueError):
    """Why no provider accepts a schema, as a clause."""


class SentSchema(NamedTuple):
    """A schema as models see it, and the server's own names of the properties with new names."""

    schema: Schema
    names: Mapping[str, str]


def sendable(schema: Schema) -> SentSchema:
    """Return a server's schema as models see it. Raises `SchemaProblem`."""
    try:
        if problem := schema_problem(schema):
            raise SchemaProblem(problem)
        schema = _mapped(_merged_root(schema, schema, [PARTS_MAX]), _with_items)
        renamed = _new_names(schema)
        if renamed:
            schema = _mapped(schema, lambda part: _with_names(part, renamed))
            # A reference may lead through a property with a new name.
            if problem := schema_problem(schema):
                raise SchemaProblem(problem)
    except RecursionError:
        raise SchemaProblem("it is nested too deeply") from None
    return SentSchema(schema, {new: old for old, new in renamed.items()})


def with_own_names(value: Any, names: Mapping[str, str]) -> Any:  # noqa: ANN401 - any JSON value
    """Return arguments with the server's own names of properties, at any depth."""
    if isinstance(value, dict):
        known = cast("dict[str, Any]", value)
        return {names.get(key, key): with_own_names(one, names) for key, one in known.items()}
    if isinstance(value, list):
        return [with_own_names(one, names) for one in cast("list[Any]", value)]
    return value


def _merged_root(schema: Schema, whole: Schema, left: list[int]) -> Schema:
    """Return an object's schema whose root has the properties of all its parts.

    So it permits more than before; the server refuses what does not match.
    """
    left[0] -= 1
    if left[0] < 0:
        raise SchemaProblem("its root has too many parts")
    if schema.get("type", "object") != "object":
        raise SchemaProblem(f"its type is {schema['type']!r} instead of 'object'")
    root = {key: value for key, value in schema.items() if key not in _NOT_AT_ROOT}
    properties, required = dict(root.get("properties", {})), list(root.get("required", ()))
    parts = [(word, one) for word in _CHOICES for one in schema.get(word, ())]
    if "$ref" in schema:
        parts.append(("allOf", _target(whole, schema["$ref"])))
    for word, part in parts:
        # A part may be `true`, which permits everything.
        if isinstance(part, dict):
            merged = _merged_root(cast("Schema", part), whole, left)
            properties = {**merged["properties"], **properties}
            required += merged.get("required", ()) if word == "allOf" else ()
    root |= {"type": "object", "properties": properties}
    return root | {"required": list(dict.fromkeys(required))} if required else root


def _target(whole: Schema, reference: object) -> Any:  # noqa: ANN401 - any JSON value
    """Return what a reference within the schema leads to. Raises `SchemaProblem`."""
    place: Any = whole
    for step in str(reference).removeprefix("#").split("/")[1:]:
        place = cast("Schema", place).get(step) if isinstance(place, dict) else None
    if not isinstance(place, dict):
        raise SchemaProblem(f"its root refers to {reference!r}")
    return cast("Schema", place)


def _mapped(schema: Schema, change: Callable[[Schema], Schema]) -> Schema:
    """Return the schema with `change` made in it and in all schemas within."""

    def inner(value: object) -> object:
        return _mapped(cast("Schema", value), change) if isinstance(value, dict) else value

    changed = dict(schema)
    for key, value in schema.items():
        if key in _OF_MANY and isinstance(value, list):
            changed[key] = [inner(one) for one in cast("list[object]", value)]
        elif key in _OF_ONE:
            changed[key] = inner(value)
        elif key in _BY_NAME and isinstance(value, dict):
            known = cast("dict[str, object]", value)
            changed[key] = {name: inner(one) for name, one in known.items()}
    return change(changed)


def _with_items(schema: Schema) -> Schema:
    kind = schema.get("type")
    is_array = kind == "array" or (isinstance(kind, list) and "array" in kind)
    return {**schema, "items": {}} if is_array and "items" not in schema else schema


def _with_names(schema: Schema, renamed: Mapping[str, str]) -> Schema:
    changed = dict(schema)
    if "properties" in schema:
        named = cast("Schema", schema["properties"])
        changed["properties"] = {renamed.get(name, name): one for name, one in named.items()}
    if "required" in schema:
        changed["required"] = [renamed.get(name, name) for name in schema["required"]]
    return changed


def _new_names(schema: Schema) -> dict[str, str]:
    """Return new names for the properties, at any depth, whose names Anthropic refuses."""
    names = list(dict.fromkeys(_names(schema)))
    taken, renamed = set(names), dict[str, str]()
    for name in names:
        if not _fits_as_name(name):
            new = plain = _OTHER.sub("_", name)[:NAME_CHARS_MAX] or "_"
            number = 1
            while new in taken:
                number += 1
                new = f"{plain[: NAME_CHARS_MAX - 8]}_{number}"
            taken.add(new)
            renamed[name] = new
    return renamed


def _names(schema: Schema) -> list[str]:
    found: list[str] = []

    def note(part: Schema) -> Schema:
        found.extend(part.get("properties", ()))
        return part

    _mapped(schema, note)
    return found
