"""Options: extra fields of a provider's request, in layers. Pure; nothing here interprets them."""

import math
from functools import reduce
from typing import Any, cast

from tiller_daemon.config.source import merge

Options = dict[str, Any]

RESERVED = frozenset({"messages", "model", "stream", "stream_options", "system", "tools"})
"""Fields of every request that the daemon sets itself; options can't override them."""


def merge_options(*layers: Options) -> Options:
    """Merge layers, weakest first, without changing them.

    Tables are merged key by key; any other value replaces the value of a weaker layer.
    """
    empty: Options = {}
    return reduce(merge, layers, empty)


def options_problem(options: Options) -> str:
    """Return why these are no valid options, or "".

    Options must be valid JSON without reserved names.
    """
    for name, value in options.items():
        if name in RESERVED:
            return f"`{name}` is set by the daemon"
        if not _is_json(value):
            return f"`{name}` contains a value that JSON can't represent, such as a date"
    return ""


def _is_json(value: object) -> bool:
    match value:
        case dict():
            return all(_is_json(inner) for inner in cast("Options", value).values())
        case list():
            return all(_is_json(inner) for inner in cast("list[object]", value))
        case float():
            return math.isfinite(value)
        case _:
            return value is None or isinstance(value, str | int)
