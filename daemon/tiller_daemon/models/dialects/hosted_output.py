"""Shortens the displayed output of tools that a provider runs. Pure; all dialects use it."""

from collections.abc import Iterable
from typing import Any

import msgspec

OUTPUT_CHARS_MAX = 8_000
"""The longest result that people are shown. The provider keeps the full result for the model."""

PASSAGE_CHARS_MAX = 300
"""The longest passage from a file or a citation that people are shown."""


def bounded(output: str) -> str:
    """Return a result, cut off if it is too long."""
    text = output.strip()
    return text if len(text) <= OUTPUT_CHARS_MAX else f"{text[:OUTPUT_CHARS_MAX]}\n[... cut off]"


def passage(text: object) -> str:
    """Return a passage in one line, shortened; empty if `text` is not a string."""
    line = " ".join(text.split()) if isinstance(text, str) else ""
    return line if len(line) <= PASSAGE_CHARS_MAX else f"{line[:PASSAGE_CHARS_MAX]} [...]"


def listed(results: Iterable[tuple[object, object]]) -> str:
    """Return titles and addresses, with one line for each result."""
    lines = (" · ".join(part for one in pair if (part := passage(one))) for pair in results)
    return bounded("\n".join(line for line in lines if line))


def arguments_text(arguments: dict[str, Any]) -> str:
    """Return all arguments that are set, as JSON; an empty string if none is set."""
    found = {name: value for name, value in arguments.items() if value}
    return msgspec.json.encode(found).decode() if found else ""
