"""Measures how full the context is: the provider's count, plus an estimate of the rest. Pure."""

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
"""First guess for English and code; the meter corrects it with the provider's counts."""

IMAGE_TOKENS = 1_500
"""Roughly what providers count for an image of one megapixel."""

FACTOR_MIN, FACTOR_MAX = 0.25, 4.0
"""Bounds of the correction: beyond them the provider must have counted something else."""


def estimate_tokens(items: Iterable[Item]) -> int:
    """Estimate the tokens of items by their length, without what the provider adds around them."""
    return sum(_item_tokens(item) for item in items)


class TokenMeter:
    """Measures the context of one turn. Takes each step's usage; is read before each request."""

    def __init__(self, fixed_chars: int) -> None:
        """`fixed_chars` is the length of prompt and tools, which every request contains."""
        self._fixed = int(fixed_chars / CHARS_PER_TOKEN)
        self._counted = 0
        self._position: int | None = None
        self._factor = 1.0
        self._sent: tuple[Item, ...] = ()
        self._sent_tokens = 0

    def tokens(self, items: Sequence[Item], sent: Callable[[], tuple[Item, ...]]) -> int:
        """Return the tokens of the next request: the last count plus an estimate of new items.

        `items` is the whole history. `sent` returns the items to send; it is called only if there
        is no count since history got shorter.
        """
        if self._position is None:
            return int(self._factor * (self._fixed + self._estimate(sent())))
        return self._counted + int(self._factor * estimate_tokens(items[self._position :]))

    def count(self, tokens: int, sent: tuple[Item, ...], position: int) -> None:
        """Record the provider's count of a request and its response; 0 means that it has none.

        `sent` are the items of the request. `position` in history is where the items begin that
        are new, or had no output when the tokens were counted.
        """
        if tokens:
            estimated = self._fixed + self._estimate(sent)
            self._factor = min(max(tokens / max(estimated, 1), FACTOR_MIN), FACTOR_MAX)
            self._counted, self._position = tokens, position

    def discard_count(self) -> None:
        """Discard the count because history got shorter; the learned factor stays."""
        self._position = None

    def _estimate(self, sent: tuple[Item, ...]) -> int:
        """Estimate as `estimate_tokens`; reuses the sum of the items that were sent last time."""
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
