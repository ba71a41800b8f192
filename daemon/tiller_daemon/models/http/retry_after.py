"""How long a server asks to be left alone: by headers, else by its body. Pure."""

import math
import re
from collections.abc import Mapping
from datetime import datetime
from email.utils import parsedate_to_datetime

from tiller_daemon.models.http.error_body import ErrorDetails

_LIMITED = (
    ("x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"),
    ("x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"),
    ("anthropic-ratelimit-requests-remaining", "anthropic-ratelimit-requests-reset"),
    ("anthropic-ratelimit-tokens-remaining", "anthropic-ratelimit-tokens-reset"),
    ("anthropic-ratelimit-input-tokens-remaining", "anthropic-ratelimit-input-tokens-reset"),
    ("anthropic-ratelimit-output-tokens-remaining", "anthropic-ratelimit-output-tokens-reset"),
    ("x-ratelimit-remaining", "x-ratelimit-reset"),
)
"""Headers that say what is left of a limit, and when it is whole again."""

MILLISECONDS_FROM = 1e12
"""A larger number is a time in milliseconds since 1970, of which there are no seconds yet."""

_SPAN = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s)?(?:(\d+(?:\.\d+)?)ms)?")
_ASKED = re.compile(r"(?:try again|retry|resets?) (?:in|after) ((?:\d+(?:\.\d+)?\s*[a-z]+\s*)+)")
_UNIT = re.compile(r"(millisecond|ms|sec|s|minute|min|m|hour|h|day|d)[a-z]*")
_UNITS = {"millisecond": "ms", "sec": "s", "minute": "m", "min": "m", "hour": "h", "day": "d"}


def retry_after_s(
    headers: Mapping[str, str], now: float, said: ErrorDetails | None = None
) -> float | None:
    """Seconds to wait, 0 or more, or None when nothing is asked for.

    Said by `retry-after-ms`, else by `retry-after` (seconds or a date), else by the limits that are
    used up, else by the body in a field or in its sentence. `headers` have lower-case names, `now`
    is Unix seconds.
    """
    milliseconds = _number(headers.get("retry-after-ms", ""))
    if milliseconds is not None:
        return milliseconds / 1000
    text = headers.get("retry-after", "").strip()
    if (asked := _number(text)) is not None or (asked := _until_date(text, now)) is not None:
        return asked
    resets = [
        wait
        for remaining, reset in _LIMITED
        if _number(headers.get(remaining, "")) == 0
        and (wait := _until(headers.get(reset, ""), now)) is not None
    ]
    if resets:
        return max(resets)
    return _in_body(said) if said else None


def _in_body(said: ErrorDetails) -> float | None:
    for text in said.delays:
        if (wait := _span(text)) is not None:
            return wait
    for sentence in said.sentences:
        if found := _ASKED.search(sentence.lower()):
            return _span(_UNIT.sub(_short, "".join(found[1].split())))
    return None


def _short(unit: re.Match[str]) -> str:
    return _UNITS.get(unit[1], unit[1])


def _until(text: str, now: float) -> float | None:
    """A span, a time of the Unix clock, or a date."""
    number = _number(text)
    if number is not None and number > now / 2:
        return max(0.0, (number / 1000 if number > MILLISECONDS_FROM else number) - now)
    wait = _span(text)
    return _until_date(text, now) if wait is None else wait


def _until_date(text: str, now: float) -> float | None:
    """Seconds to a date as in HTTP or in RFC 3339."""
    if not text:
        return None
    for parse in (parsedate_to_datetime, datetime.fromisoformat):
        try:
            return max(0.0, parse(text).timestamp() - now)
        except (ValueError, OverflowError):
            continue
    return None


def _span(text: str) -> float | None:
    """A number of seconds, or such as `6m0s`, `1.5s`, `20ms`."""
    number = _number(text)
    if number is not None:
        return number
    match = _SPAN.fullmatch(text.strip())
    if match is None or not any(match.groups()):
        return None
    units = (86_400.0, 3_600.0, 60.0, 1.0, 0.001)
    return sum(float(part) * unit for part, unit in zip(match.groups(), units, strict=True) if part)


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) and number >= 0 else None
