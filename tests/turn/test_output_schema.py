"""JSON Schemas: what is refused, and that none takes longer than its size says."""

import json
from typing import Any

import pytest

from support.each import each
from tiller_daemon.turn.output_schema import message_problem, schema_problem, value_problem

DRAFT = "https://json-schema.org/draft/2020-12/schema"
EVIL = {"type": "string", "pattern": "^(a+)+$"}
TREE = {
    "$defs": {"node": {"type": "array", "items": {"$ref": "#/$defs/node"}}},
    "$ref": "#/$defs/node",
}
NAMES = {"patternProperties": {"^(a+)+$": False}, "additionalProperties": False}
HANGS = "a" * 60 + "!"


def laughs(levels: int, **more: object) -> dict[str, Any]:
    """Each level refers to the next one twice."""
    parts = {
        f"l{level}": {"allOf": [{"$ref": f"#/$defs/l{level + 1}"}] * 2, **more}
        for level in range(levels)
    }
    return {"$defs": {**parts, f"l{levels}": {}}, "$ref": "#/$defs/l0"}


@each(
    "schema",
    [laughs(60), laughs(60, **{"$schema": DRAFT}), {"$schema": DRAFT, **laughs(60)}, {"$ref": "#"}],
)
@pytest.mark.nightly
def test_references_that_are_endless_or_multiply_are_refused(schema: dict[str, Any]) -> None:
    assert schema_problem(schema) == "its references form a loop, or expand too far"
    assert value_problem(schema, {}) == "it is nested too deeply"


def test_references_to_what_contains_them_are_followed_as_far_as_a_value_goes() -> None:
    assert schema_problem(TREE) is None
    assert value_problem(TREE, [[], [[]]]) is None
    assert value_problem(TREE, [[], [[1]]]) == "at $[1][0][0]: 1 is not of type 'array'"
    assert value_problem(TREE, [[[] for _ in range(100)] for _ in range(50)]) is None


@pytest.mark.parametrize("schema", [EVIL, NAMES])
def test_no_regular_expression_of_a_server_is_tried(schema: dict[str, Any]) -> None:
    value: object = HANGS if schema is EVIL else {HANGS: 1}
    assert schema_problem(schema) is None
    assert value_problem(schema, value) is None
    named = {"type": "object", "properties": {"pattern": {"type": "string"}}}
    assert value_problem(named, {"pattern": 1}) == "at $.pattern: 1 is not of type 'string'"


@pytest.mark.parametrize(
    ("schema", "answer"),
    [(EVIL, HANGS), ({"properties": {"a": EVIL}}, {"a": HANGS}), (NAMES, {HANGS: 1})],
)
def test_no_regular_expression_of_the_user_is_tried(schema: dict[str, Any], answer: object) -> None:
    assert schema_problem(schema) is None
    text = json.dumps(answer)
    assert message_problem(schema, text) is None
    assert (message_problem(schema, text[:-1]) or "").startswith("it is not JSON")


def test_beside_a_regular_expression_everything_else_is_validated() -> None:
    version = {"type": "string", "pattern": "^v(a+)+$"}
    schema = {"properties": {"version": version, "count": {"type": "integer"}}}
    schema |= {"required": ["count"], "additionalProperties": False}
    assert value_problem(schema, {"version": HANGS, "count": 1}) is None
    for value, problem in (
        ({"version": 1, "count": 1}, "at $.version: 1 is not of type 'string'"),
        ({"version": "x"}, "'count' is a required property"),
        ({"count": 1, "more": 1}, "Additional properties are not allowed ('more' was unexpected)"),
    ):
        assert value_problem(schema, value) == problem


@each(
    "schema",
    [
        {"not": EVIL},
        {"oneOf": [EVIL, {"minLength": 1}]},
        {"if": EVIL, "then": False},
        {"contains": EVIL, "maxContains": 0},
        {"$schema": "http://json-schema.org/draft-03/schema#", "disallow": [EVIL]},
    ],
)
def test_no_valid_value_is_refused_because_a_regular_expression_is_not_tried(
    schema: dict[str, Any],
) -> None:
    assert value_problem(schema, ["b"] if "contains" in schema else "b") is None


def test_no_regular_expression_is_even_compiled() -> None:
    slow_to_compile = "(?i)" + "[\0-\U0010ffff]" * 1_000
    assert schema_problem({"pattern": slow_to_compile}) is None
    assert schema_problem({"patternProperties": {slow_to_compile: {}, "(": {}}}) is None
