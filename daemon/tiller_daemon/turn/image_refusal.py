"""Failures that may mean that a model takes no images. Pure."""

from collections.abc import Iterable

from tiller_daemon.models.base import ModelError
from tiller_protocol.items import Item, ToolCall, UserMessage

HINT = " It was sent images: if the model takes none, set `images = false` for it in `config.toml`."

REFUSALS = frozenset({"bad_request", "not_found", "server"})
"""The kinds of error with which providers refuse images; their wording differs."""


def images_hint(error: ModelError, items: Iterable[Item]) -> str:
    """Return what to add to a failure that may be about images in the request; often nothing."""
    if error.kind not in REFUSALS or not any(_has_images(item) for item in items):
        return ""
    return HINT


def _has_images(item: Item) -> bool:
    return isinstance(item, UserMessage | ToolCall) and bool(item.images)
