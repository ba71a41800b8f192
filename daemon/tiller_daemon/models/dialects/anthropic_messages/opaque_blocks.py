"""Stores, in `Reasoning.opaque`, blocks that the Messages API wants back unchanged. Pure.

Thinking has a signature; redacted thinking is encrypted; calls of server tools must be next to
their results; text may have citations. The blocks are stored in order. The text of thinking is
already in the item, so only the length of that text is stored.
"""

from typing import Any

import msgspec
from msgspec import Struct

from tiller_daemon.models.decoding import DECODING_FAILS
from tiller_daemon.models.dialects.opaque import Origin
from tiller_protocol.items import Reasoning

API = "anthropic_messages"

THINKING = frozenset({"thinking", "redacted_thinking"})

PAUSE = "pause"
"""The type of our own block that marks where the API has paused. This block is never sent."""

Block = dict[str, Any]


class OpaqueBlocks(Struct, frozen=True):
    """Blocks of one response in order.

    `prefix` is the digest of the request for that response. A block of type `text` describes the
    text before it: `texts` has the length and the citations of each original block. In older logs,
    the block has the citations of the last original block instead.
    """

    prefix: str
    blocks: tuple[Block, ...]


_decode = msgspec.json.Decoder(OpaqueBlocks).decode


def origin_of(base_url: str, model: str) -> Origin:
    """Return the origin for blocks of a model. Only that model at that URL gets the blocks back."""
    return Origin(API, base_url, model)


def is_server_use(block: Block) -> bool:
    """Whether a block is a call of a tool that the provider runs itself."""
    kind: object = block.get("type")
    return isinstance(kind, str) and kind != "tool_use" and kind.endswith("tool_use")


def seal_blocks(origin: Origin, prefix: str, blocks: list[Block]) -> str:
    """Return the `opaque` of an item that stores `blocks`, without the text of thinking."""
    short = tuple(
        block | {"thinking": len(block["thinking"])} if block["type"] == "thinking" else block
        for block in blocks
    )
    return origin.seal(msgspec.json.encode(OpaqueBlocks(prefix, short)).decode())


def unseal_blocks(item: Reasoning, origin: Origin) -> OpaqueBlocks | None:
    """Return the blocks that an item stores, with the text of thinking restored.

    Returns None if they have another origin or can't be decoded.
    """
    content = origin.unseal(item.opaque)
    if content is None:
        return None
    try:
        stored = _decode(content)
    except DECODING_FAILS:
        return None
    position, restored = 0, list[Block]()
    for block in stored.blocks:
        if block["type"] == "thinking":
            end = position + block["thinking"]
            restored.append(block | {"thinking": item.text[position:end]})
            position = end
        else:
            restored.append(block)
    return OpaqueBlocks(stored.prefix, tuple(restored))
