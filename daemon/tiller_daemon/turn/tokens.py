"""How full the context is: the provider's own count first, an estimate for the rest. Pure."""

from collections.abc import Iterable

from tiller_protocol.items import (
    AssistantMessage,
    Compaction,
    Item,
    Notice,
    Patch,
    Reasoning,
    ToolCall,
    Usage,
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


def without_calls(items: Iterable[Item], ordinal: int) -> tuple[Item, ...]:
    """The items but for the calls of request `ordinal`: when it was counted they had no output."""
    return tuple(
        item for item in items if not (isinstance(item, ToolCall) and item.ordinal == ordinal)
    )


class TokenMeter:
    """Counts the context of one turn. Feed it each step's usage; ask it before each request."""

    def __init__(
        self, fixed_chars: int, counted_tokens: int, counted_items: tuple[Item, ...]
    ) -> None:
        """`fixed_chars` is the length of prompt and tools, sent with every request.

        `counted_tokens` is the provider's last count (0: none yet) of a request with
        `counted_items`.
        """
        self._fixed = int(fixed_chars / CHARS_PER_TOKEN)
        self._counted_tokens = 0
        self._counted: frozenset[str] = frozenset()
        self._factor = 1.0
        if counted_tokens:
            self._learn(counted_tokens, counted_items)

    def tokens(self, items: tuple[Item, ...]) -> int:
        """Tokens of a request with `items`: counted ones as counted, the others estimated."""
        ids = {item.id for item in items}
        if self._counted and self._counted <= ids:
            new = [item for item in items if item.id not in self._counted]
            return self._counted_tokens + int(self._factor * estimate_tokens(new))
        return int(self._factor * (self._fixed + estimate_tokens(items)))

    def count(self, usage: Usage, items: tuple[Item, ...]) -> None:
        """Take the usage of a response; `items` are those sent and those of the response."""
        if usage.input_tokens:
            self._learn(usage.input_tokens + usage.output_tokens, items)

    def _learn(self, tokens: int, items: tuple[Item, ...]) -> None:
        estimated = self._fixed + estimate_tokens(items)
        if estimated:
            self._factor = min(max(tokens / estimated, FACTOR_MIN), FACTOR_MAX)
        self._counted_tokens = tokens
        self._counted = frozenset(item.id for item in items)


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
