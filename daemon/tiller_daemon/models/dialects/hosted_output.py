"""Bounds what is shown of tools that a provider runs itself. Pure, the same for every dialect."""

from collections.abc import Iterable
from typing import Any

import msgspec

OUTPUT_CHARS_MAX = 8_000
"""The longest result that is shown. It is for people; the provider keeps its own for the model."""

PASSAGE_CHARS_MAX = 300
"""The longest passage that is shown of a file or a citation."""


def bounded(output: str) -> str:
    """Return a result, cut off if it is too long."""
    text = output.strip()
    return text if len(text) <= OUTPUT_CHARS_MAX else f"{text[:OUTPUT_CHARS_MAX]}\n[... cut off]"


def passage(text: object) -> str:
    """Return a passage in one line; empty if it is no text."""
    line = " ".join(text.split()) if isinstance(text, str) else ""
    return line if len(line) <= PASSAGE_CHARS_MAX else f"{line[:PASSAGE_CHARS_MAX]} [...]"


def listed(results: Iterable[tuple[object, object]]) -> str:
    """Return titles and addresses, a line for each result."""
    lines = (" · ".join(part for one in pair if (part := passage(one))) for pair in results)
    return bounded("\n".join(line for line in lines if line))


def arguments_text(arguments: dict[str, Any]) -> str:
    """Return the arguments that are set as JSON; empty if none is."""
    found = {name: value for name, value in arguments.items() if value}
    return msgspec.json.encode(found).decode() if found else ""
