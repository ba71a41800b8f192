"""What Chat servers want back with a message beside its text and calls, and how an item keeps it.

Pure. Thinking goes back under the name under which it came; OpenRouter wants its details as they
were, Gemini the signatures in `extra_content`. `Reasoning.opaque` keeps them.
"""

from typing import Any

import msgspec
from msgspec import Struct

from tiller_daemon.models.dialects.opaque import Origin
from tiller_protocol.items import Reasoning

API = "openai_chat"


Detail = dict[str, Any]

_JOINED = ("text", "summary", "data")
"""What of a detail comes in pieces."""


class OpaqueFields(Struct, frozen=True, omit_defaults=True):
    """What goes back with a message.

    `field` is the name of its thinking, `extra` its `extra_content`, `calls` those of its calls by
    their ids. With `after` it came behind that call, of whose message it is.
    """

    field: str = ""
    details: tuple[Detail, ...] = ()
    extra: Any = None
    calls: dict[str, Any] = {}
    after: str = ""


_decode = msgspec.json.Decoder(OpaqueFields).decode


def origin_of(base_url: str, model: str) -> Origin:
    """Who may have it back: the same model at the same place."""
    return Origin(API, base_url, model)


def seal_fields(origin: Origin, kept: OpaqueFields) -> str:
    """The `opaque` of an item."""
    return origin.seal(msgspec.json.encode(kept).decode())


def unseal_fields(item: Reasoning, origin: Origin) -> OpaqueFields | None:
    """What an item keeps; None if it is not for `origin`."""
    content = origin.unseal(item.opaque)
    try:
        return None if content is None else _decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def join_details(details: list[Detail], more: list[Detail]) -> None:
    """Add pieces of details; those of one detail follow each other."""
    for piece in more:
        last = details[-1] if details else {}
        same = all(last.get(k) == piece.get(k) for k in ("type", "index")) and not (
            last.get("id") and piece.get("id") and last["id"] != piece["id"]
        )
        if not (last and same):
            details.append(dict(piece))
            continue
        for name, value in piece.items():
            if name in _JOINED and isinstance(value, str) and isinstance(last.get(name), str):
                last[name] += value
            elif value is not None:
                last[name] = value
