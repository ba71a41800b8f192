"""Detects errors that may mean that a model does not accept images or documents. Pure."""

from collections.abc import Iterable

from tiller_daemon.models.base import ModelError
from tiller_protocol.items import Image, Item, ToolCall, UserMessage

HINT = (
    " The request contained {kind}. If the model does not accept {kind}, set `{kind} = false` for "
    "it in `config.toml`."
)

REFUSALS = frozenset({"bad_request", "not_found", "server"})
"""The kinds of errors with which providers refuse images. Their messages differ too much to match.
"""


def images_hint(error: ModelError, items: Iterable[Item]) -> str:
    """Return a hint to append to an error that images may have caused; empty otherwise."""
    if error.kind not in REFUSALS:
        return ""
    attached = [image for item in items for image in _attached(item)]
    kinds = ["documents"] * any(image.is_document for image in attached)
    kinds += ["images"] * any(not image.is_document for image in attached)
    return "".join(HINT.format(kind=kind) for kind in kinds)


def _attached(item: Item) -> tuple[Image, ...]:
    return item.images if isinstance(item, UserMessage | ToolCall) else ()
