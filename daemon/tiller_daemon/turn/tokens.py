"""Measures how full the context is, by the provider's count plus an estimate of the rest. Pure."""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence

from tiller_protocol.items import (
    AssistantMessage,
    Compaction,
    Image,
    Item,
    Notice,
    Patch,
    Reasoning,
    ToolCall,
    UserMessage,
)

CHARS_PER_TOKEN = 4.0
"""A first guess for English and code; the meter corrects it with the provider's counts."""

IMAGE_TOKENS = 1_500
"""Roughly the number that providers count for an image of one megapixel."""

FACTOR_MIN, FACTOR_MAX = 0.25, 4.0
"""Bounds of the correction; beyond them, the provider must have counted something else."""


PRUNED_OUTPUT = "[Old output was removed to save context. Call the tool again if you need it.]"


def estimate_tokens(items: Iterable[Item]) -> int:
    """Estimate the tokens of items by their length, without the provider's text around them."""
    return sum(_item_tokens(item) for item in items)


def _output_tokens(item: Item) -> int:
    """Estimate how many tokens pruning the item would save; 0 for all items but unpruned calls."""
    if not isinstance(item, ToolCall) or item.output == PRUNED_OUTPUT:
        return 0
    chars = len(item.name) + len(item.output)
    return int(chars / CHARS_PER_TOKEN) + _image_tokens(item.images)


class TokenEstimator:
    """Estimates the tokens of the items sent; estimates no item twice if items are only added."""

    def __init__(self) -> None:
        self._sent: tuple[Item, ...] = ()
        self._tokens = [0]
        """The tokens of the first n items, for each n."""
        self._outputs = [0]
        """The tokens that pruning the first n items could save, for each n."""

    def tokens(self, sent: tuple[Item, ...]) -> int:
        """Return the same estimate as `estimate_tokens`, but faster."""
        self._add(sent)
        return self._tokens[len(sent)]

    def prunable(self, sent: tuple[Item, ...], protect: int) -> tuple[int, int]:
        """Return how many of the oldest items can be pruned, and how many tokens that saves.

        The newest `protect` tokens of output stay.
        """
        self._add(sent)
        outputs = self._outputs[: len(sent) + 1]
        # The call that exceeds the limit is pruned, too.
        count = bisect_left(outputs, outputs[-1] - protect)
        return count, outputs[count]

    def _add(self, sent: tuple[Item, ...]) -> None:
        known = min(len(sent), len(self._sent))
        # Items are compared by identity first, so this takes hardly any time.
        if sent[:known] != self._sent[:known]:
            known, self._sent = 0, ()
            del self._tokens[1:], self._outputs[1:]
        for item in sent[len(self._sent) :]:
            self._tokens.append(self._tokens[-1] + _item_tokens(item))
            self._outputs.append(self._outputs[-1] + _output_tokens(item))
        if len(sent) > len(self._sent):
            self._sent = sent


class TokenMeter:
    """Measures the context of one turn. Takes each step's usage; is read before each request."""

    def __init__(self, fixed_chars: int, estimator: TokenEstimator) -> None:
        """Start without a count.

        `fixed_chars` is the length of prompt and tools, which every request contains. `estimator`
        belongs to the history.
        """
        self._estimator = estimator
        self._fixed = int(fixed_chars / CHARS_PER_TOKEN)
        self._counted = 0
        self._position: int | None = None
        self._factor = 1.0

    def tokens(self, items: Sequence[Item], sent: Callable[[], tuple[Item, ...]]) -> int:
        """Return the tokens of the next request: the last count plus an estimate of new items.

        `items` is the whole history. `sent` returns the items to send; it is called only if there
        has been no count since history got shorter.
        """
        if self._position is None:
            return int(self._factor * (self._fixed + self._estimator.tokens(sent())))
        return self._counted + int(self._factor * estimate_tokens(items[self._position :]))

    def count(self, tokens: int, sent: tuple[Item, ...], position: int) -> None:
        """Record the provider's count for a request and its response; 0 means that there is none.

        `sent` are the items of the request. `position` is the index in history of the first item
        that was not counted, or that was counted without its output.
        """
        if tokens:
            estimated = self._fixed + self._estimator.tokens(sent)
            self._factor = min(max(tokens / max(estimated, 1), FACTOR_MIN), FACTOR_MAX)
            self._counted, self._position = tokens, position

    def distrust_count(self) -> None:
        """Discard the count because the provider refuses what it counted as short."""
        self.discard_count()
        self._factor = max(self._factor, 1.0)

    def discard_count(self) -> None:
        """Discard the count, for example because history got shorter; the factor stays."""
        self._position = None


def _image_tokens(images: Iterable[Image]) -> int:
    # A provider gives its model each page of a document as text and as an image.
    return sum(
        image.pages * IMAGE_TOKENS + int(len(image.text) / CHARS_PER_TOKEN)
        if image.is_document
        else IMAGE_TOKENS
        for image in images
    )


def _item_tokens(item: Item) -> int:
    match item:
        case UserMessage():
            chars = len(item.text) + sum(len(path) for path in item.files)
            return int(chars / CHARS_PER_TOKEN) + _image_tokens(item.images)
        case ToolCall(by_provider=True):
            return 0
        case ToolCall():
            chars = len(item.name) + len(item.arguments) + len(item.output)
            return int(chars / CHARS_PER_TOKEN) + _image_tokens(item.images)
        case AssistantMessage() | Reasoning() | Notice():
            return int(len(item.text) / CHARS_PER_TOKEN)
        case Compaction():
            return int(len(item.summary) / CHARS_PER_TOKEN)
        case Patch():
            return 0
