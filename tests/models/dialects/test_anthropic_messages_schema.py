"""Schemas as structured outputs take them: what is known stays, the rest becomes words."""

from typing import Any

from support.each import each
from tiller_daemon.models.dialects.anthropic_messages.schema import structured_output

CLOSED = {"additionalProperties": False}


def closed(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, **CLOSED}


@each(
    ("schema", "sent"),
    [
        (
            {
                "$schema": "https://json-schema.org/draft/2020-12/schema",
                "title": "Report",
                "description": "A report.",
                "type": "object",
                "properties": {"name": {"type": "string"}},
                "required": ["name"],
            },
            {
                "title": "Report",
                "description": "A report.",
                "required": ["name"],
                **closed(name={"type": "string"}),
            },
        ),
        (
            {"type": "integer", "minimum": 1, "description": "A page."},
            {"type": "integer", "description": 'A page.\n\n{"minimum":1}'},
        ),
        ({"type": "string", "format": "date"}, {"type": "string", "format": "date"}),
        (
            {"type": "string", "format": "color"},
            {"type": "string", "description": '{"format":"color"}'},
        ),
        (
            {"type": "array", "items": {"type": "number"}, "minItems": 1},
            {"type": "array", "items": {"type": "number"}, "minItems": 1},
        ),
        (
            {"type": "array", "items": {"type": "number"}, "minItems": 3},
            {"type": "array", "items": {"type": "number"}, "description": '{"minItems":3}'},
        ),
        ({"type": "string", "enum": ["a", "b"]}, {"enum": ["a", "b"]}),
        ({"const": None}, {"const": None}),
        (
            {"type": ["string", "null"], "description": "A name."},
            {"anyOf": [{"type": "string"}, {"type": "null"}], "description": "A name."},
        ),
        (
            {"oneOf": [{"type": "string"}, {"properties": {"a": {"type": "null"}}}]},
            {"anyOf": [{"type": "string"}, closed(a={"type": "null"})]},
        ),
        (
            {
                "$ref": "#/$defs/Node",
                "$defs": {
                    "Node": {"type": "object", "properties": {"leaf": {"$ref": "#/$defs/Leaf"}}},
                    "Leaf": {"type": "string", "minLength": 1},
                },
            },
            {
                "$ref": "#/$defs/Node",
                "$defs": {
                    "Node": closed(leaf={"$ref": "#/$defs/Leaf"}),
                    "Leaf": {"type": "string", "description": '{"minLength":1}'},
                },
            },
        ),
        ({"type": "object", **CLOSED}, closed()),
    ],
)
def test_what_the_api_knows_is_sent(schema: dict[str, Any], sent: dict[str, Any]) -> None:
    assert structured_output(schema) == sent


@each(
    "schema",
    [
        {},
        {"type": "object"},
        {"type": "object", "additionalProperties": {"type": "string"}},
        {"type": "what"},
        {"type": "array", "items": True},
        {"not": {"type": "string"}},
        {"$ref": "https://example.org/schema"},
        {"$ref": "#/properties/a", "properties": {"a": {"type": "string"}}},
        {"$ref": "#/$defs/Gone"},
        {
            "$ref": "#/$defs/Tree",
            "$defs": {
                "Tree": {
                    "type": "object",
                    "properties": {"next": {"anyOf": [{"$ref": "#/$defs/Tree"}, {"type": "null"}]}},
                }
            },
        },
    ],
)
def test_what_has_no_form_is_not_sent(schema: dict[str, Any]) -> None:
    """The turn checks the answer in any case."""
    assert structured_output(schema) is None


def test_the_schema_stays_as_it_was() -> None:
    schema = {"type": "object", "properties": {"a": {"type": ["string", "null"], "minLength": 1}}}
    before = repr(schema)
    structured_output(schema)
    assert repr(schema) == before
