"""What adapters built from a history for one request, so that the next request continues from it.

A history grows at its end. Without the cache every step of a long session would convert and encode
all of it again.
"""

from collections.abc import Callable, Hashable
from typing import Any, Protocol, TypeVar, cast

import msgspec
from msgspec import Raw, Struct

from tiller_protocol.items import Item


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

    def builder(self, key: Hashable, items: tuple[Item, ...], create: Callable[[], B]) -> B:
        """Return a builder to which exactly `items` have been added.

        The builder last returned for `key` is continued if its items are the beginning of `items`;
        otherwise a new one is made with `create`. `key` must contain everything else that the
        builder's output depends on.
        """
        cached = self._builders.get(key)
        if cached is None or items[: len(cached.items)] != cached.items:
            cached = self._builders[key] = _CachedBuilder(create(), ())
        for item in items[len(cached.items) :]:
            cached.builder.add(item)
        cached.items = items
        return cast("B", cached.builder)

    def encode(self, key: Hashable, messages: list[Any]) -> list[Raw]:
        """Return each message as JSON; encodes only those after the first that has changed."""
        before, known = self._messages.get(key, ([], []))
        same = 0
        for one, other in zip(messages, before, strict=False):
            # Most messages are the same object, which is much cheaper to see than equality.
            if one is not other and one != other:
                break
            same += 1
        encoded = known[:same] + [Raw(msgspec.json.encode(one)) for one in messages[same:]]
        self._messages[key] = (messages, encoded)
        return encoded
