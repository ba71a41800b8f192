"""Histories grow at their end: what was made of one for a request is kept for the next request.

For adapters that take items one by one. What is kept lives as long as the turn that asks.
"""

from collections.abc import Callable, Hashable
from typing import Any, Generic, Protocol, TypeVar, cast

import msgspec
from msgspec import Raw, Struct

from tiller_daemon.models.base import ModelRequest
from tiller_protocol.items import Item


class Conversation(Protocol):
    """What an adapter makes of history, item by item."""

    def add(self, item: Item) -> None:
        """Take the next item."""
        ...


C = TypeVar("C", bound=Conversation)


class _Kept(Struct, Generic[C]):
    conversation: C
    items: tuple[Item, ...]


def conversation_of(request: ModelRequest, fixed: Hashable, begin: Callable[[], C]) -> C:
    """Return the conversation that has taken all items of `request`.

    It is the one of the request before, if that was made with the same `fixed` and this request
    only adds to its items; else a new one from `begin`.
    """
    kept = cast("_Kept[C] | None", request.kept.get(fixed))
    if kept is None or request.items[: len(kept.items)] != kept.items:
        kept = request.kept[fixed] = _Kept(begin(), ())
    for item in request.items[len(kept.items) :]:
        kept.conversation.add(item)
    kept.items = request.items
    return kept.conversation


def encode_messages(request: ModelRequest, fixed: Hashable, messages: list[Any]) -> list[Raw]:
    """Return each message as JSON; one that is as in the request before is not encoded again."""
    before, known = cast(
        "tuple[list[Any], list[Raw]]", request.kept.get((fixed, "encoded"), ([], []))
    )
    same = 0
    for one, other in zip(messages, before, strict=False):
        if one is not other and one != other:
            break
        same += 1
    encoded = known[:same] + [Raw(msgspec.json.encode(one)) for one in messages[same:]]
    request.kept[fixed, "encoded"] = (messages, encoded)
    return encoded
