"""Options: extra fields of a provider's request, in layers. Pure; nothing here interprets them."""

from functools import reduce
from typing import Any, cast

Options = dict[str, Any]

RESERVED = frozenset({"messages", "model", "stream", "stream_options", "system", "tools"})
"""Fields of every request that the daemon sets itself; options can't override them."""


def merge_options(*layers: Options) -> Options:
    """Merge layers, weakest first, without changing them.

    Tables are merged key by key; any other value replaces the value of a weaker layer.
    """
    empty: Options = {}
    return reduce(_merge, layers, empty)


def _merge(below: Options, above: Options) -> Options:
    merged = dict(below)
    for key, value in above.items():
        old = merged.get(key)
        both = isinstance(old, dict) and isinstance(value, dict)
        merged[key] = _merge(cast("Options", old), cast("Options", value)) if both else value
    return merged
