"""Schemas of servers' tools as every provider accepts them."""

from typing import Any

import pytest

from support.each import each
from tiller_daemon.mcp.schemas import SchemaProblem, sendable, with_own_names

TEXT = {"type": "string"}


def properties(**named: Any) -> dict[str, Any]:
    return {"type": "object", "properties": named}


@each(
    ("schema", "sent"),
    [
        (properties(a={"type": "array"}), properties(a={"type": "array", "items": {}})),
        (
            properties(a={"type": ["array", "null"]}),
            properties(a={"type": ["array", "null"], "items": {}}),
        ),
        (
            properties(a={"anyOf": [{"type": "array"}, TEXT], "default": {"type": "array"}}),
            properties(
                a={"anyOf": [{"type": "array", "items": {}}, TEXT], "default": {"type": "array"}}
            ),
        ),
        (
            {**properties(a={"$ref": "#/$defs/l"}), "$defs": {"l": {"type": "array"}}},
            {
                **properties(a={"$ref": "#/$defs/l"}),
                "$defs": {"l": {"type": "array", "items": {}}},
            },
        ),
        (
            properties(a={"type": "array", "items": {"type": "array"}}),
            properties(a={"type": "array", "items": {"type": "array", "items": {}}}),
        ),
        # A property may be called like a keyword.
        (properties(items={"type": "array"}), properties(items={"type": "array", "items": {}})),
        (properties(type=TEXT, anyOf=TEXT), properties(type=TEXT, anyOf=TEXT)),
    ],
)
def test_arrays_have_items(schema: dict[str, Any], sent: dict[str, Any]) -> None:
    assert sendable(schema) == (sent, {})


@each(
    ("schema", "sent"),
    [
        ({"anyOf": [properties(a=TEXT), properties(b=TEXT)]}, properties(a=TEXT, b=TEXT)),
        (
            {**properties(a=TEXT, b=TEXT), "oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
            properties(a=TEXT, b=TEXT),
        ),
        (
            {"allOf": [{**properties(a=TEXT), "required": ["a"]}, properties(b=TEXT)]},
            {**properties(a=TEXT, b=TEXT), "required": ["a"]},
        ),
        (
            {"$ref": "#/$defs/x", "$defs": {"x": {**properties(a=TEXT), "required": ["a"]}}},
            {
                **properties(a=TEXT),
                "required": ["a"],
                "$defs": {"x": {**properties(a=TEXT), "required": ["a"]}},
            },
        ),
        ({**properties(a=TEXT), "not": {"required": ["b"]}}, properties(a=TEXT)),
        ({**properties(a=TEXT), "anyOf": [True, {}]}, properties(a=TEXT)),
    ],
)
def test_the_root_is_a_plain_object(schema: dict[str, Any], sent: dict[str, Any]) -> None:
    assert sendable(schema) == (sent, {})


@each(
    ("schema", "why"),
    [
        ({"type": "object", "allOf": [{"type": "array"}]}, "its type is 'array'"),
        ({"type": "object", "anyOf": [properties(), {"type": "string"}]}, "its type is 'string'"),
        (properties(a={"type": "text"}), "is not valid"),
        (properties(a={"$ref": "#/$defs/none"}), "does not resolve"),
        ({"anyOf": [{}, *[properties(a=TEXT)] * 200]}, "too many parts"),
    ],
)
def test_what_can_not_be_mended_is_named(schema: dict[str, Any], why: str) -> None:
    with pytest.raises(SchemaProblem, match=why):
        sendable(schema)


def test_names_that_a_provider_refuses_are_changed_at_any_depth_and_back() -> None:
    inner = {**properties(**{"a b": TEXT, "a_b": TEXT}), "required": ["a b", "a_b"]}
    schema = properties(
        **{"@odata.type": TEXT, "": TEXT, "list": {"type": "array", "items": inner}}
    )
    sent, names = sendable(schema)
    assert list(sent["properties"]) == ["_odata.type", "_", "list"]
    assert sent["properties"]["list"]["items"]["required"] == ["a_b_2", "a_b"]
    given = {"_odata.type": "t", "_": "e", "list": [{"a_b_2": "1", "a_b": "2"}]}
    expected = {"@odata.type": "t", "": "e", "list": [{"a b": "1", "a_b": "2"}]}
    assert with_own_names(given, names) == expected
