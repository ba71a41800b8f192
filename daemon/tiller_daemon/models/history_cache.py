"""What adapters built from a history for one request, so that the next request continues from it.

A history grows at its end. Without the cache every step of a long session would convert and encode
all of it again.
"""

from collections.abc import Callable, Hashable
from typing import Any, Final, Protocol, TypeVar, cast

import msgspec
from msgspec import Raw, Struct

from tiller_protocol.items import Item

BUILDERS_MAX: Final = 2
"""How many builders a cache has. A session uses one, and another one after a change of its model or
its system prompt."""

CHANGING_MAX: Final = 8
"""How many messages at the end of a request are compared one by one. Only the last one or two
change."""


class HistoryBuilder(Protocol):
    """Converts a history to a provider's format, item by item."""

    def add(self, item: Item) -> None:
        """Append the next item."""
        ...


B = TypeVar("B", bound=HistoryBuilder)


class _CachedBuilder(Struct):
    builder: HistoryBuilder
    items: tuple[Item, ...]


class HistoryCache:
    """The builders and encoded messages of one history. The history owns it; adapters fill it."""

    def __init__(self) -> None:
        self._builders: dict[Hashable, _CachedBuilder] = {}
        self._messages: dict[Hashable, tuple[list[Any], list[Raw]]] = {}
        self.encoded_bytes = 0
        """How long all encoded messages are."""

    def builder(self, key: Hashable, items: tuple[Item, ...], create: Callable[[], B]) -> B:
        """Return a builder to which exactly `items` have been added.

        The builder last returned for `key` is continued if its items are the beginning of `items`;
        otherwise a new one is made with `create`. `key` must contain everything else that the
        builder's output depends on.
        """
        cached = self._builders.pop(key, None)
        if cached is None or items[: len(cached.items)] != cached.items:
            cached = _CachedBuilder(create(), ())
        # Put at the end, so that the first one is the one to drop.
        self._builders[key] = cached
        if len(self._builders) > BUILDERS_MAX:
            del self._builders[next(iter(self._builders))]
        for item in items[len(cached.items) :]:
            cached.builder.add(item)
        cached.items = items
        return cast("B", cached.builder)

    def encode(
        self, key: Hashable, messages: list[Any], encode: Callable[[Any], Raw] | None = None
    ) -> list[Raw]:
        """Return each message as JSON; encodes only those after the first that has changed.

        `encode` returns a message as JSON, if msgspec can't do that alone.
        """
        encode = encode or _encode
        before, known = self._messages.get(key, ([], []))
        # Lists compare by identity first, and almost all messages are the same objects.
        same = max(min(len(messages), len(before)) - CHANGING_MAX, 0)
        if messages[:same] != before[:same]:
            same = 0
        for one, other in zip(messages[same:], before[same:], strict=False):
            if one is not other and one != other:
                break
            same += 1
        added = [encode(one) for one in messages[same:]]
        self.encoded_bytes += _bytes_of(added) - _bytes_of(known[same:])
        encoded = known[:same] + added
        self._messages[key] = (messages, encoded)
        return encoded


def _bytes_of(encoded: list[Raw]) -> int:
    return sum(memoryview(one).nbytes for one in encoded)


def _encode(message: object) -> Raw:
    return Raw(msgspec.json.encode(message))
