"""Stores, in `Reasoning.opaque`, the fields that Chat servers want back with a message. Pure.

Thinking is sent back in the field in which it arrived. OpenRouter wants its `reasoning_details`
back unchanged, and Gemini wants the signatures in `extra_content`.
"""

from typing import Any

import msgspec
from msgspec import Struct

from tiller_daemon.models.decoding import DECODING_FAILS
from tiller_daemon.models.dialects.opaque import Origin
from tiller_protocol.items import Reasoning

API = "openai_chat"


Detail = dict[str, Any]

_JOINED = ("text", "summary", "data")
"""The fields of a detail that are streamed in pieces."""


class OpaqueFields(Struct, frozen=True, omit_defaults=True):
    """The fields to send back with a message."""

    field: str = ""
    """The field for the thinking; empty means that the thinking is not sent back."""

    details: tuple[Detail, ...] = ()
    """`reasoning_details` of the message."""

    extra: Any = None
    """`extra_content` of the message."""

    calls: dict[str, Any] = {}
    """`extra_content` of the message's calls, by call id."""

    after: str = ""
    """The id of the last call before these fields, which belong to the message of that call."""


_decode = msgspec.json.Decoder(OpaqueFields).decode


def origin_of(base_url: str, model: str) -> Origin:
    """Return the origin for fields of a model. Only that model at that URL gets the fields back."""
    return Origin(API, base_url, model)


def seal_fields(origin: Origin, fields: OpaqueFields) -> str:
    """Return the `opaque` of an item that stores `fields`."""
    return origin.seal(msgspec.json.encode(fields).decode())


def unseal_fields(item: Reasoning, origin: Origin) -> OpaqueFields | None:
    """Return the fields that an item stores; None if they have another origin."""
    content = origin.unseal(item.opaque)
    try:
        return None if content is None else _decode(content)
    except DECODING_FAILS:
        return None


def join_details(details: list[Detail], more: list[Detail]) -> None:
    """Append pieces of details to `details`. The pieces of one detail are consecutive."""
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
