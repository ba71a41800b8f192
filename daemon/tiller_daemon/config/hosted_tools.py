"""The tools that providers run themselves: their names and types in requests, by API. Pure."""

from collections.abc import Mapping
from typing import Any, Final

from tiller_daemon.config.model_schema import Api

HOSTED_TOOLS: Final[dict[Api, dict[str, str]]] = {
    "openai_responses": {
        name: name for name in ("web_search", "file_search", "code_interpreter", "image_generation")
    },
    # The versions that every Claude since 4 supports.
    "anthropic_messages": {
        "web_search": "web_search_20250305",
        "web_fetch": "web_fetch_20250910",
        "code_execution": "code_execution_20250825",
    },
    "openai_chat": {"web_search": ""},
    "scripted": {},
}
"""The type of each tool, unless its configuration has a `type`. `openai_chat` uses no types.

Sources: https://platform.openai.com/docs/guides/tools,
https://platform.claude.com/docs/en/agents-and-tools/tool-use/server-tools
"""


def hosted_tool_problem(api: Api, name: str, fields: Mapping[str, Any]) -> str:
    """Return what is wrong with a configured tool; empty if it is valid."""
    known = HOSTED_TOOLS[api]
    if api == "scripted" or name in known or isinstance(fields.get("type"), str):
        return ""
    names = " or ".join(known)
    return f"expected {names} as the tool's name, or a `type` that the API `{api}` defines"
