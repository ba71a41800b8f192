"""How much a server's definitions may add to every request."""

from typing import Any

import mcp_types as types
import msgspec
import pytest

from support.each import each
from tiller_daemon.mcp.listing import (
    DEFINITIONS_BYTES_MAX,
    DESCRIPTION_CHARS_MAX,
    TOOLS_MAX,
    usable_tools,
)

MANY = DEFINITIONS_BYTES_MAX * 2

LISTS: dict[str, dict[str, Any]] = {
    "long descriptions": {"description": "x" * 3_000},
    "descriptions as long as allowed": {"description": "x" * DESCRIPTION_CHARS_MAX},
    "one endless description": {"description": "x" * MANY},
    "descriptions that JSON must escape": {"description": "\x01" * DESCRIPTION_CHARS_MAX},
    "descriptions in another script": {"description": "日" * DESCRIPTION_CHARS_MAX},
    "long titles": {"title": "x" * 3_000},
    "long names": {"name": "x" * 3_000},
    "an endless name": {"name": "x" * MANY},
    "descriptions in schemas": {"schema": {"a": {"type": "string", "description": "x" * 3_000}}},
    "many properties": {"schema": {f"p{n}": {"type": "string"} for n in range(200)}},
    "a long default": {"schema": {"a": {"type": "string", "default": "x" * 3_000}}},
    "endless choices": {"schema": {"a": {"enum": [f"{n}" for n in range(MANY // 4)]}}},
    "everything at once": {
        "name": "x" * 500,
        "description": "x" * 500,
        "schema": {"a": {"description": "x" * 500}},
    },
}


def listed(name: str = "tool", schema: dict[str, Any] | None = None, **fields: Any) -> types.Tool:
    properties = {"type": "object", "properties": schema or {}}
    return types.Tool(name=name, input_schema=properties, **fields)


@each("name", LISTS)
@pytest.mark.nightly
def test_the_definitions_of_a_server_are_limited_together(name: str) -> None:
    tools = usable_tools([listed(**LISTS[name])] * TOOLS_MAX).offered
    sizes = [
        len(msgspec.json.encode((one.name, one.description))) + len(msgspec.json.encode(one.schema))
        for one in tools
    ]
    assert sum(sizes) <= DEFINITIONS_BYTES_MAX
    assert all(len(one.description) <= DESCRIPTION_CHARS_MAX for one in tools)
    assert len(tools) < TOOLS_MAX
    is_one_too_large = name in ("an endless name", "endless choices")
    # As many as fit are offered.
    assert bool(tools) is not is_one_too_large
    assert is_one_too_large or sum(sizes) + sizes[0] > DEFINITIONS_BYTES_MAX - 100


def test_usual_definitions_are_offered_whole() -> None:
    about, schema = "x" * 600, {"a": {"type": "string", "description": "x" * 300}}
    tools = usable_tools([listed(description=about, schema=schema)] * TOOLS_MAX).offered
    assert len(tools) == TOOLS_MAX
    assert {one.description for one in tools} == {about}
