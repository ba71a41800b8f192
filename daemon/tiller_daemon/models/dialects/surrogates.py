"""Text of servers that cut it in UTF-16, through the middle of an emoji. Pure.

JSON can say half a surrogate pair, `msgspec` refuses it, and nothing can encode it again.
"""

import json
from typing import Any


class SurrogateMender:
    """The first halves whose second ones have not come yet, one for each channel of a stream."""

    def __init__(self) -> None:
        self._halves: dict[object, str] = {}

    def mend(self, channel: object, text: str) -> str:
        """`text` with its halves joined; one at its end is kept for the channel's next piece."""
        text = self._halves.pop(channel, "") + text
        if "\ud800" <= text[-1:] <= "\udbff":
            self._halves[channel], text = text[-1], text[:-1]
        return joined(text)


def joined(text: str) -> str:
    """`text` that can be encoded: pairs are joined, a half alone becomes U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def with_whole_surrogates(value: Any) -> Any:  # noqa: ANN401 - whatever JSON holds
    """A value of JSON with every text in it `joined`."""
    return json.loads(joined(json.dumps(value, ensure_ascii=False)))
