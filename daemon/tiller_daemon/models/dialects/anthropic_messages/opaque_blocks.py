"""Blocks that the Messages API wants back as they were, and how an item keeps them. Pure.

Thinking has a signature, redacted thinking is nothing but sealed data, what server tools did must
stay beside their results, and text may hold citations. `Reasoning.opaque` keeps them in order; the
text of thinking is not kept twice, only its length.
"""

from typing import Any

import msgspec
from msgspec import Struct

from tiller_daemon.models.dialects.opaque import Origin
from tiller_protocol.items import Reasoning

API = "anthropic_messages"

THINKING = frozenset({"thinking", "redacted_thinking"})

Block = dict[str, Any]


class OpaqueBlocks(Struct, frozen=True):
    """Blocks of one response in order.

    `prefix` is the digest of all that the request of that response held. A block of type `text`
    has only its citations and belongs to the text before it.
    """

    prefix: str
    blocks: tuple[Block, ...]


_decode = msgspec.json.Decoder(OpaqueBlocks).decode


def origin_of(base_url: str, model: str) -> Origin:
    """Who may have such blocks back: the same model at the same place."""
    return Origin(API, base_url, model)


def seal_blocks(origin: Origin, prefix: str, blocks: list[Block]) -> str:
    """The `opaque` for the blocks; of thinking the text is left to the item."""
    short = tuple(
        block | {"thinking": len(block["thinking"])} if block["type"] == "thinking" else block
        for block in blocks
    )
    return origin.seal(msgspec.json.encode(OpaqueBlocks(prefix, short)).decode())


def unseal_blocks(item: Reasoning, origin: Origin) -> OpaqueBlocks | None:
    """The blocks that an item keeps, whole again; None if they are not for `origin`."""
    content = origin.unseal(item.opaque)
    if content is None:
        return None
    try:
        kept = _decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    position, whole = 0, list[Block]()
    for block in kept.blocks:
        if block["type"] == "thinking":
            end = position + block["thinking"]
            whole.append(block | {"thinking": item.text[position:end]})
            position = end
        else:
            whole.append(block)
    return OpaqueBlocks(kept.prefix, tuple(whole))
