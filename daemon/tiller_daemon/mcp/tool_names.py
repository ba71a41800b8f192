"""Gives the tools of servers names that are unique and valid for every provider. Pure."""

import hashlib
import re
from collections.abc import Iterable
from typing import Final

NAME_CHARS_MAX: Final = 64
"""The limit of OpenAI and Anthropic; both allow letters, digits, `_` and `-`."""

PREFIX: Final = "mcp__"

_DIGEST_CHARS: Final = 8
_OTHER: Final = re.compile(r"[^A-Za-z0-9_-]")


def name_tools(tools: Iterable[tuple[str, str]]) -> list[str]:
    """Return a name for each pair of a server and its tool: `mcp__SERVER__TOOL`.

    Characters that are not allowed become `_`. A name that is then too long, or equals an earlier
    name except for case, ends in a digest of the pair.
    """
    taken: set[str] = set()
    names: list[str] = []
    for server, tool in tools:
        name = _OTHER.sub("_", f"{PREFIX}{server}__{tool}")
        if len(name) > NAME_CHARS_MAX or name.casefold() in taken:
            digest = hashlib.sha256(f"{server}/{tool}".encode(errors="replace")).hexdigest()
            name = f"{name[: NAME_CHARS_MAX - _DIGEST_CHARS - 1]}_{digest[:_DIGEST_CHARS]}"
        taken.add(name.casefold())
        names.append(name)
    return names
