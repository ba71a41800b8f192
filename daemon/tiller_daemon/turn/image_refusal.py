"""Detects failures that may mean that a model does not accept images. Pure."""

from collections.abc import Iterable

from tiller_daemon.models.base import ModelError
from tiller_protocol.items import Item, ToolCall, UserMessage

HINT = (
    " The request contained images. If the model does not accept images, set `images = false` "
    "for it in `config.toml`."
)

REFUSALS = frozenset({"bad_request", "not_found", "server"})
"""Error kinds with which providers refuse images. Their wording differs too much to be matched."""


def images_hint(error: ModelError, items: Iterable[Item]) -> str:
    """Return a hint to append to an error that images may have caused, or an empty text."""
    if error.kind not in REFUSALS or not any(_has_images(item) for item in items):
        return ""
    return HINT


def _has_images(item: Item) -> bool:
    return isinstance(item, UserMessage | ToolCall) and bool(item.images)
