"""A JSON Schema as the Messages API takes it for structured outputs. Pure.

The API knows a part of JSON Schema and refuses the rest. What it does not know becomes words in a
description, which the model may follow: the turn checks the answer by the schema as it was given.
A schema that has no such form, such as one that refers to itself, is not sent at all.
Source: https://platform.claude.com/docs/en/build-with-claude/structured-outputs
"""

from typing import Any, cast

import msgspec

Schema = dict[str, Any]

FORMATS = frozenset(
    {"date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"}
)
TYPES = frozenset({"object", "array", "string", "integer", "number", "boolean", "null"})
DEFINITION_KEYS = ("$defs", "definitions")
"""Where a schema may keep what it refers to."""


class _NoForm(Exception):
    """Structured outputs have no form for this schema."""


def structured_output(schema: Schema) -> Schema | None:
    """What of `schema` the API knows; None if it can't be sent."""
    try:
        return _Rewriter(schema).whole()
    except (_NoForm, RecursionError):
        return None


class _Rewriter:
    """Rewrites one schema; remembers which references it has followed to their end."""

    def __init__(self, root: Schema) -> None:
        self._root = root
        self._open: list[str] = []
        self._followed: set[str] = set()

    def whole(self) -> Schema:
        """The schema with what it keeps for references."""
        kept = {
            place: {name: self._form(inner) for name, inner in self._root[place].items()}
            for place in DEFINITION_KEYS
            if place in self._root
        }
        return kept | self._form(self._root)

    def _form(self, schema: object) -> Schema:
        if not isinstance(schema, dict):
            raise _NoForm
        rest = {
            k: v
            for k, v in cast("Schema", schema).items()
            if k not in (*DEFINITION_KEYS, "$schema")
        }
        if "$ref" in rest:
            self._follow(rest["$ref"])
            return {"$ref": rest["$ref"]}
        form = self._kind(rest)
        if "title" in rest:
            form["title"] = rest.pop("title")
        words = [rest.pop("description")] if "description" in rest else []
        if rest:
            words.append(msgspec.json.encode(rest).decode())
        return form | {"description": "\n\n".join(words)} if words else form

    def _follow(self, reference: str) -> None:
        """See that what is referred to has a form, and does not come back to itself."""
        if reference in self._open:
            raise _NoForm
        if reference not in self._followed:
            self._open.append(reference)
            self._form(self._target(reference))
            self._open.pop()
            self._followed.add(reference)

    def _target(self, reference: str) -> object:
        head, _, name = reference.rpartition("/")
        place = head.removeprefix("#/")
        if place not in DEFINITION_KEYS or name not in self._root.get(place, {}):
            raise _NoForm
        return self._root[place][name]

    def _kind(self, rest: Schema) -> Schema:
        """Take out of `rest` what says which values there are."""
        for word in ("anyOf", "oneOf", "allOf"):
            if word in rest:
                form = "allOf" if word == "allOf" else "anyOf"
                return {form: [self._form(inner) for inner in rest.pop(word)]}
        for word in ("enum", "const"):
            if word in rest and _is_plain(rest[word]):
                rest.pop("type", None)
                return {word: rest.pop(word)}
        kind = rest.pop("type", None) or ("object" if "properties" in rest else None)
        if isinstance(kind, list):
            names = cast("list[str]", kind)
            described = {k: rest.pop(k) for k in ("title", "description") if k in rest}
            forms = [self._form({**rest, "type": name}) for name in names]
            rest.clear()
            rest.update(described)
            return {"anyOf": forms}
        if kind not in TYPES:
            raise _NoForm
        return {"type": kind, **self._details(kind, rest)}

    def _details(self, kind: str, rest: Schema) -> Schema:
        match kind:
            case "object":
                return self._object(rest)
            case "array":
                details: Schema = {}
                if "items" in rest:
                    details["items"] = self._form(rest.pop("items"))
                if rest.get("minItems") in (0, 1):
                    details["minItems"] = rest.pop("minItems")
                return details
            case "string" if rest.get("format") in FORMATS:
                return {"format": rest.pop("format")}
            case _:
                return {}

    def _object(self, rest: Schema) -> Schema:
        """An object has the properties that are named, and no others: so the API wants it."""
        properties = rest.pop("properties", {})
        others = rest.pop("additionalProperties", None)
        if others is not False and not properties:
            raise _NoForm
        details: Schema = {
            "properties": {name: self._form(inner) for name, inner in properties.items()},
            "additionalProperties": False,
        }
        return details | ({"required": rest.pop("required")} if "required" in rest else {})


def _is_plain(value: object) -> bool:
    if isinstance(value, list):
        values = cast("list[object]", value)
        return bool(values) and all(_is_plain(one) and not isinstance(one, list) for one in values)
    return value is None or isinstance(value, str | int | float | bool)
