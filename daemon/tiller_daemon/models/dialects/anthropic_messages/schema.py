"""Converts a JSON Schema to the subset that the Messages API supports. Pure.

The API refuses keywords outside its subset. Such keywords are moved to a description, which the
model may follow; the turn validates the answer against the original schema anyway. A schema that
can't be converted, such as a recursive one, is not sent at all.
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
"""The keywords under which a schema has definitions that `$ref` can name."""


class _Unsupported(Exception):
    """The schema can't be expressed in the subset."""


def structured_output(schema: Schema) -> Schema | None:
    """Return `schema` in the API's subset; None if it can't be converted."""
    try:
        return _Rewriter(schema).convert()
    except (_Unsupported, RecursionError):
        return None


class _Rewriter:
    """Converts one schema; remembers which references it has checked."""

    def __init__(self, root: Schema) -> None:
        self._root = root
        self._open: list[str] = []
        self._followed: set[str] = set()

    def convert(self) -> Schema:
        """Return the converted schema with its definitions."""
        definitions = {
            place: {name: self._convert(inner) for name, inner in self._root[place].items()}
            for place in DEFINITION_KEYS
            if place in self._root
        }
        return definitions | self._convert(self._root)

    def _convert(self, schema: object) -> Schema:
        if not isinstance(schema, dict):
            raise _Unsupported
        rest = {
            k: v
            for k, v in cast("Schema", schema).items()
            if k not in (*DEFINITION_KEYS, "$schema")
        }
        if "$ref" in rest:
            self._check_reference(rest["$ref"])
            return {"$ref": rest["$ref"]}
        converted = self._convert_type(rest)
        if "title" in rest:
            converted["title"] = rest.pop("title")
        words = [rest.pop("description")] if "description" in rest else []
        if rest:
            words.append(msgspec.json.encode(rest).decode())
        return converted | {"description": "\n\n".join(words)} if words else converted

    def _check_reference(self, reference: str) -> None:
        """Check that the target of a reference can be converted and is not recursive."""
        if reference in self._open:
            raise _Unsupported
        if reference not in self._followed:
            self._open.append(reference)
            self._convert(self._target(reference))
            self._open.pop()
            self._followed.add(reference)

    def _target(self, reference: str) -> object:
        head, _, name = reference.rpartition("/")
        place = head.removeprefix("#/")
        if place not in DEFINITION_KEYS or name not in self._root.get(place, {}):
            raise _Unsupported
        return self._root[place][name]

    def _convert_type(self, rest: Schema) -> Schema:
        """Take the keywords that define the type out of `rest`, and return them converted."""
        for word in ("anyOf", "oneOf", "allOf"):
            if word in rest:
                # The API has no `oneOf`.
                converted = "allOf" if word == "allOf" else "anyOf"
                return {converted: [self._convert(inner) for inner in rest.pop(word)]}
        for word in ("enum", "const"):
            if word in rest and _is_plain(rest[word]):
                rest.pop("type", None)
                return {word: rest.pop(word)}
        kind = rest.pop("type", None) or ("object" if "properties" in rest else None)
        # The API has no lists of types either.
        if isinstance(kind, list):
            names = cast("list[str]", kind)
            described = {k: rest.pop(k) for k in ("title", "description") if k in rest}
            forms = [self._convert({**rest, "type": name}) for name in names]
            rest.clear()
            rest.update(described)
            return {"anyOf": forms}
        if kind not in TYPES:
            raise _Unsupported
        return {"type": kind, **self._details(kind, rest)}

    def _details(self, kind: str, rest: Schema) -> Schema:
        match kind:
            case "object":
                return self._object(rest)
            case "array":
                details: Schema = {}
                if "items" in rest:
                    details["items"] = self._convert(rest.pop("items"))
                if rest.get("minItems") in (0, 1):
                    details["minItems"] = rest.pop("minItems")
                return details
            case "string" if rest.get("format") in FORMATS:
                return {"format": rest.pop("format")}
            case _:
                return {}

    def _object(self, rest: Schema) -> Schema:
        """Convert an object. The API allows only the listed properties."""
        properties = rest.pop("properties", {})
        others = rest.pop("additionalProperties", None)
        if others is not False and not properties:
            raise _Unsupported
        details: Schema = {
            "properties": {name: self._convert(inner) for name, inner in properties.items()},
            "additionalProperties": False,
        }
        return details | ({"required": rest.pop("required")} if "required" in rest else {})


def _is_plain(value: object) -> bool:
    if isinstance(value, list):
        values = cast("list[object]", value)
        return bool(values) and all(_is_plain(one) and not isinstance(one, list) for one in values)
    return value is None or isinstance(value, str | int | float | bool)
