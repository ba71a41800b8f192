"""Parses the rate limits that a provider reports in the headers of its responses. Pure."""

from collections.abc import Mapping

from tiller_daemon.models.http.retry_after import seconds_until
from tiller_protocol.catalog import RateLimit

PREFIXES = ("x-ratelimit-", "anthropic-ratelimit-", "ratelimit-")
"""The prefixes used by OpenAI and most others, by Anthropic, and by the draft standard."""

LIMITS_MAX = 12
"""How many limits are kept per model; providers report up to five."""

NAME_CHARS_MAX = 40


def parse_rate_limits(headers: Mapping[str, str], now: float) -> tuple[RateLimit, ...]:
    """Return the limits in the headers of a response, sorted by name; empty if there are none.

    After the prefix, a header's name consists of the limited resource and of `limit`, `remaining`
    or `reset`, in either order. Header names must be in lower case. `now` is Unix time in seconds.
    """
    found: dict[str, dict[str, str]] = {}
    for name, value in headers.items():
        prefix = next((one for one in PREFIXES if name.startswith(one)), None)
        if prefix is None:
            continue
        words = name.removeprefix(prefix).split("-")
        for field in ("limit", "remaining", "reset"):
            if field in words:
                words.remove(field)
                found.setdefault("-".join(words) or "requests", {})[field] = value
                break
    limits = (_limit(name, fields, now) for name, fields in sorted(found.items()))
    return tuple(one for one in limits if one)[:LIMITS_MAX]


def _limit(name: str, fields: Mapping[str, str], now: float) -> RateLimit | None:
    remaining = _count(fields.get("remaining", ""))
    if remaining is None or len(name) > NAME_CHARS_MAX:
        return None
    wait = seconds_until(fields.get("reset", ""), now)
    return RateLimit(
        name, remaining, _count(fields.get("limit", "")), None if wait is None else now + wait
    )


def _count(text: str) -> int | None:
    """Parse a non-negative number; return None for anything else that a server may send."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else None
