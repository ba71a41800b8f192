"""Caches the messages that an adapter built from a history, so that the next request reuses them.

A history grows only at its end. Without the cache, every step of a long session would convert and
encode the whole history again.
"""

from collections.abc import Callable, Hashable
from typing import Any, Final, TypeVar, cast

import msgspec
from msgspec import Raw

from tiller_daemon.models.history_builder import HistoryBuilder
from tiller_protocol.items import Item

BUILDERS_MAX: Final = 2
"""Maximum number of builders in a cache. A session uses one builder, and a second one after the
model or the system prompt has changed."""

CHANGING_MAX: Final = 8
"""How many messages at the end of a request are compared one by one. Only the last message or two
change."""


B = TypeVar("B", bound=HistoryBuilder)


def _encode(message: object) -> Raw:
    return Raw(msgspec.json.encode(message))


class HistoryCache:
    """The builders and encoded messages of one history. The history owns it; adapters fill it."""

    def __init__(self) -> None:
        self._builders: dict[Hashable, tuple[HistoryBuilder, tuple[Item, ...]]] = {}
        self._messages: dict[Hashable, tuple[list[Any], list[Raw]]] = {}
        self.encoded_bytes = 0
        """The total length of all encoded messages."""

    def builder(self, key: Hashable, items: tuple[Item, ...], create: Callable[[], B]) -> B:
        """Return a builder to which exactly `items` have been added.

        The last builder for `key` is reused if its items are the beginning of `items`; otherwise
        `create` makes a new builder. `key` must contain everything else that the builder's output
        depends on.
        """
        builder, added = self._builders.pop(key, (None, ()))
        if builder is None or items[: len(added)] != added:
            builder, added = create(), ()
        for item in items[len(added) :]:
            builder.add(item)
        # Insert at the end, so that the first builder is the one to drop.
        self._builders[key] = builder, items
        if len(self._builders) > BUILDERS_MAX:
            del self._builders[next(iter(self._builders))]
        return cast("B", builder)

    def encode(
        self, key: Hashable, messages: list[Any], encode: Callable[[Any], Raw] = _encode
    ) -> list[Raw]:
        """Return each message as JSON. Only the first changed message and later ones are encoded.

        `encode` returns a message as JSON; it is needed if msgspec alone can't encode the message.
        """
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
