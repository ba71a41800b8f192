"""Repairs text from servers that split an emoji between its two UTF-16 code units. Pure.

JSON can express half a surrogate pair, but `msgspec` rejects it, and UTF-8 can't encode it.
"""

import json
from typing import Any


class SurrogateMender:
    """Joins surrogate pairs that are split between pieces, separately for each channel."""

    def __init__(self) -> None:
        self._surrogates: dict[object, str] = {}

    def mend(self, channel: object, text: str) -> str:
        """Return `text` with pairs joined. Half a pair at the end is kept for the next piece."""
        text = self._surrogates.pop(channel, "") + text
        if "\ud800" <= text[-1:] <= "\udbff":
            self._surrogates[channel], text = text[-1], text[:-1]
        return repair_surrogates(text)


def repair_surrogates(text: str) -> str:
    """Return `text` with surrogate pairs joined and single surrogates replaced by U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def repair_json(value: Any) -> Any:  # noqa: ANN401 - whatever JSON holds
    """Return a JSON value with `repair_surrogates` applied to every string in it."""
    return json.loads(repair_surrogates(json.dumps(value, ensure_ascii=False)))
