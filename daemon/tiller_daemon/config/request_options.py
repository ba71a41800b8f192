"""Options: fields of a provider's own request, in layers. Pure; their meaning is not known here."""

import math
from functools import reduce
from typing import Any, cast

from tiller_daemon.config.source import merge

Options = dict[str, Any]

RESERVED = frozenset({"messages", "model", "stream", "stream_options", "system", "tools"})
"""What the daemon says itself in every request; no option takes its place."""


def merge_options(*layers: Options) -> Options:
    """Join the layers, weakest first.

    Tables are joined key by key; any other value takes the place of what is below it. The layers
    stay as they are.
    """
    empty: Options = {}
    return reduce(merge, layers, empty)


def options_problem(options: Options) -> str:
    """Say why these can't be options, or nothing: they must be JSON, and not what is reserved."""
    for name, value in options.items():
        if name in RESERVED:
            return f"`{name}` is set by the daemon"
        if not _is_json(value):
            return f"`{name}` holds a value that JSON has not, such as a date"
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
