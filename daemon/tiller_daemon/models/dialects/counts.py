"""Reads token counts of any form, as no odd count may cost the answer. Pure."""

from typing import cast


def token_count(usage: object, *path: str) -> int | None:
    """Return the count at `path` in a provider's usage; None if there is no number."""
    for name in path:
        usage = cast("dict[str, object]", usage).get(name) if isinstance(usage, dict) else None
    try:
        # Some servers send counts as fractions or as text.
        return int(float(usage)) if isinstance(usage, int | float | str) else None
    except (ValueError, OverflowError):
        return None
