"""Decides which JSON Schemas OpenAI's servers can enforce (`strict`). Pure.

A strict schema may use only a subset of JSON Schema, or the request is refused. Any other schema is
only shown to the model. The turn validates the answer in both cases.
Format: https://platform.openai.com/docs/guides/structured-outputs#supported-schemas
"""

from typing import Any, cast

Schema = dict[str, Any]

_KEYWORDS = frozenset(
    {
        "$schema",
        "$defs",
        "$ref",
        "title",
        "description",
        "type",
        "enum",
        "const",
        "anyOf",
        "properties",
        "required",
        "additionalProperties",
        "items",
        "pattern",
        "format",
        "multipleOf",
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "minItems",
        "maxItems",
    }
)

_FORMATS = frozenset(
    {"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"}
)

DEPTH_MAX = 10
PROPERTIES_MAX = 5_000
ENUM_VALUES_MAX = 1_000
"""Limits of one schema, according to the guide above."""


def is_strict(schema: Schema) -> bool:
    """Whether `schema` can be strict. Returning False is always safe."""
    if schema.get("type") != "object" or "anyOf" in schema:
        return False
    counts = {"properties": 0, "enum": 0}
    return (
        _fits(schema, 1, counts)
        and counts["properties"] <= PROPERTIES_MAX
        and counts["enum"] <= ENUM_VALUES_MAX
    )


def _fits(schema: object, depth: int, counts: dict[str, int]) -> bool:
    if not isinstance(schema, dict) or depth > DEPTH_MAX:
        return False
    schema = cast("Schema", schema)
    if not schema.keys() <= _KEYWORDS or schema.get("format", "date") not in _FORMATS:
        return False
    if "$ref" in schema:
        # A reference can't have keywords beside it.
        return len(schema) == 1
    properties: Schema = schema.get("properties", {})
    counts["properties"] += len(properties)
    counts["enum"] += len(schema.get("enum", ()))
    # Each object must require all of its properties, and forbid others.
    if "object" in _types(schema) and (
        schema.get("additionalProperties") is not False
        or set(schema.get("required", ())) != set(properties)
    ):
        return False
    inner = [*properties.values(), *schema.get("anyOf", ())]
    inner += [schema["items"]] if "items" in schema else []
    return all(_fits(one, depth + 1, counts) for one in inner) and all(
        _fits(one, depth, counts) for one in schema.get("$defs", {}).values()
    )


def _types(schema: Schema) -> list[str]:
    kind: str | list[str] = schema.get("type", [])
    return [kind] if isinstance(kind, str) else kind
