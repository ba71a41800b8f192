"""Finds the delay that a server asks for before a retry, in its headers or its body. Pure."""

import math
import re
from collections.abc import Mapping
from datetime import datetime
from email.utils import parsedate_to_datetime

from tiller_daemon.models.http.error_body import ErrorDetails

_LIMIT_HEADERS = (
    ("x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"),
    ("x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"),
    ("anthropic-ratelimit-requests-remaining", "anthropic-ratelimit-requests-reset"),
    ("anthropic-ratelimit-tokens-remaining", "anthropic-ratelimit-tokens-reset"),
    ("anthropic-ratelimit-input-tokens-remaining", "anthropic-ratelimit-input-tokens-reset"),
    ("anthropic-ratelimit-output-tokens-remaining", "anthropic-ratelimit-output-tokens-reset"),
    ("x-ratelimit-remaining", "x-ratelimit-reset"),
)
"""Pairs of headers: the remaining amount of a limit, and the time when the limit is reset."""

MILLISECONDS_FROM = 1e12
"""A larger number is a Unix time in milliseconds: in seconds, it would be millennia away."""

_DURATION = re.compile(
    r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s)?(?:(\d+(?:\.\d+)?)ms)?"
)
_RETRY_SENTENCE = re.compile(
    r"(?:try again|retry|resets?) (?:in|after) ((?:\d+(?:\.\d+)?\s*[a-z]+\s*)+)"
)
_UNIT = re.compile(r"(millisecond|ms|sec|s|minute|min|m|hour|h|day|d)[a-z]*")
_UNITS = {"millisecond": "ms", "sec": "s", "minute": "m", "min": "m", "hour": "h", "day": "d"}


def retry_after_s(
    headers: Mapping[str, str], now: float, details: ErrorDetails | None = None
) -> float | None:
    """Return the delay in seconds, 0 or more, or None if the server asks for no delay.

    The first source that is present counts: `retry-after-ms`, `retry-after` (seconds or a date),
    the latest reset of an exhausted limit, a field in the body, a sentence in the body.
    Header names must be in lower case; `now` is Unix time in seconds.
    """
    milliseconds = _number(headers.get("retry-after-ms", ""))
    if milliseconds is not None:
        return milliseconds / 1000
    text = headers.get("retry-after", "").strip()
    if (asked := _number(text)) is not None or (asked := _until_date(text, now)) is not None:
        return asked
    resets = [
        wait
        for remaining, reset in _LIMIT_HEADERS
        if _number(headers.get(remaining, "")) == 0
        and (wait := seconds_until(headers.get(reset, ""), now)) is not None
    ]
    if resets:
        return max(resets)
    return _from_body(details) if details else None


def _from_body(details: ErrorDetails) -> float | None:
    for text in details.delays:
        if (wait := _duration(text)) is not None:
            return wait
    for sentence in details.sentences:
        if found := _RETRY_SENTENCE.search(sentence.lower()):
            text = _UNIT.sub(lambda unit: _UNITS.get(unit[1], unit[1]), "".join(found[1].split()))
            return _duration(text)
    return None


def seconds_until(text: str, now: float) -> float | None:
    """Return the seconds until a time given as a duration, a Unix time or a date."""
    number = _number(text)
    # Servers send durations or Unix times. A large number is a time: no duration lasts decades.
    if number is not None and number > now / 2:
        return max(0.0, (number / 1000 if number > MILLISECONDS_FROM else number) - now)
    wait = _duration(text)
    return _until_date(text, now) if wait is None else wait


def _until_date(text: str, now: float) -> float | None:
    """Return the seconds until a date in the format of HTTP or RFC 3339."""
    if not text:
        return None
    for parse in (parsedate_to_datetime, datetime.fromisoformat):
        try:
            return max(0.0, parse(text).timestamp() - now)
        except (ValueError, OverflowError):
            continue
    return None


def _duration(text: str) -> float | None:
    """Parse a number of seconds or a duration such as `6m0s`, `1.5s` or `20ms`."""
    number = _number(text)
    if number is not None:
        return number
    match = _DURATION.fullmatch(text.strip())
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
