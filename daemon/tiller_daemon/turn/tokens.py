"""How full the context is: the provider's own count first, an estimate for the rest. Pure."""

from collections.abc import Callable, Iterable, Sequence

from tiller_protocol.items import (
    AssistantMessage,
    Compaction,
    Item,
    Notice,
    Patch,
    Reasoning,
    ToolCall,
    UserMessage,
)

CHARS_PER_TOKEN = 4.0
"""First guess for English and code; the meter learns the true factor from the provider's counts."""

IMAGE_TOKENS = 1_500
"""About what providers count for an image of one megapixel."""

FACTOR_MIN, FACTOR_MAX = 0.25, 4.0
"""Bounds of what the meter believes: beyond them a count is of something else."""


def estimate_tokens(items: Iterable[Item]) -> int:
    """Tokens of items by their length, without what the provider adds around them."""
    return sum(_item_tokens(item) for item in items)


class TokenMeter:
    """Counts the context of one turn. Feed it each step's usage; ask it before each request."""

    def __init__(self, fixed_chars: int) -> None:
        """`fixed_chars` is the length of prompt and tools, sent with every request."""
        self._fixed = int(fixed_chars / CHARS_PER_TOKEN)
        self._counted = 0
        self._position: int | None = None
        self._factor = 1.0
        self._sent: tuple[Item, ...] = ()
        self._sent_tokens = 0

    def tokens(self, items: Sequence[Item], sent: Callable[[], tuple[Item, ...]]) -> int:
        """Tokens of the next request: what was counted as counted, the rest estimated.

        `items` is all of history; `sent` returns what of it a model is sent, and is called only
        when nothing was counted since history got shorter.
        """
        if self._position is None:
            return int(self._factor * (self._fixed + self._estimate(sent())))
        return self._counted + int(self._factor * estimate_tokens(items[self._position :]))

    def count(self, tokens: int, sent: tuple[Item, ...], position: int) -> None:
        """Take the provider's count of a request and its response; 0 is no count.

        `sent` are the items of the request. From `position` of history on items are new, or had no
        output yet when the tokens were counted.
        """
        if tokens:
            estimated = self._fixed + self._estimate(sent)
            self._factor = min(max(tokens / max(estimated, 1), FACTOR_MIN), FACTOR_MAX)
            self._counted, self._position = tokens, position

    def discard_count(self) -> None:
        """History got shorter: what was counted is void, what was learned is not."""
        self._position = None

    def _estimate(self, sent: tuple[Item, ...]) -> int:
        """As `estimate_tokens`; of what was sent the last time it knows the sum."""
        known = len(self._sent)
        if sent[:known] != self._sent:
            known = self._sent_tokens = 0
        self._sent_tokens += estimate_tokens(sent[known:])
        self._sent = sent
        return self._sent_tokens


def _item_tokens(item: Item) -> int:
    match item:
        case UserMessage():
            chars = len(item.text) + sum(len(path) for path in item.files)
            return int(chars / CHARS_PER_TOKEN) + IMAGE_TOKENS * len(item.images)
        case ToolCall():
            chars = len(item.name) + len(item.arguments) + len(item.output)
            return int(chars / CHARS_PER_TOKEN) + IMAGE_TOKENS * len(item.images)
        case AssistantMessage() | Reasoning() | Notice():
            return int(len(item.text) / CHARS_PER_TOKEN)
        case Compaction():
            return int(len(item.summary) / CHARS_PER_TOKEN)
        case Patch():
            return 0
