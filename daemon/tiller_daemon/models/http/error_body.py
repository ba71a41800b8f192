"""Extracts messages and codes from the body of an error response. Pure.

Every provider, gateway and framework uses different fields for messages and codes, and some use
several. Gateways embed the whole body from the server behind them. `failure_kind` interprets the
result.
"""

from collections.abc import Iterator
from datetime import datetime
from typing import Any, NamedTuple, cast

import msgspec

from tiller_daemon.models.decoding import DECODING_FAILS

DEPTH_MAX = 6
FIELDS_MAX = 200
"""Limits for the search through a body; real bodies have some dozen fields."""

TEXT_CHARS_MAX = 8_000
"""How much of a text is examined; messages are at the beginning."""

TIME_MIN, TIME_MAX = 1.5e9, 4e9
"""The times that count as the end of a limit, in Unix seconds: the years 2017 to 2096."""

_SENTENCES = ("message", "msg", "detail", "error_description", "error", "raw", "title", "errors")
_CODES = ("code", "type", "status", "reason", "__type", "error_code", "status_code", "quotaId")
_RESETS = "resets_at"
_DELAYS = ("retryDelay", "retry_after", "retry_after_seconds", "resets_in_seconds")


class ErrorDetails(NamedTuple):
    """The details in the body of an error.

    `sentences` are the messages in order, without duplicates. `codes` are in lower case. `delays`
    are the unparsed values of fields that ask for a delay. `resets_at` is when a limit ends, in
    Unix seconds.
    """

    sentences: tuple[str, ...] = ()
    codes: tuple[str, ...] = ()
    delays: tuple[str, ...] = ()
    resets_at: float | None = None

    @property
    def summary(self) -> str:
        """The text for the user: the first message, and a second one that a gateway embeds."""
        return ": ".join(self.sentences[:2])

    @property
    def text(self) -> str:
        """Codes and messages in lower case, for searching."""
        return "\n".join((*self.codes, *self.sentences)).lower()


def parse_error_body(body: bytes) -> ErrorDetails:
    """Return the details in a body, which is JSON or plain text. An HTML page has no details."""
    text = body.decode(errors="replace").strip()
    if text.startswith("<"):
        return ErrorDetails()
    try:
        content = msgspec.json.decode(body)
    except DECODING_FAILS:
        return ErrorDetails((text[:TEXT_CHARS_MAX],) if text else ())
    found = list(_search(content, 0))[:FIELDS_MAX]
    if not found and isinstance(content, str | int | float):
        return ErrorDetails((str(content),))
    by_place = {
        place: tuple(dict.fromkeys(value for name, value in found if name in place))
        for place in (_SENTENCES, _CODES, _DELAYS)
    }
    codes = tuple(code.lower() for code in by_place[_CODES])
    resets = next((value for name, value in found if name == _RESETS), "")
    return ErrorDetails(by_place[_SENTENCES], codes, by_place[_DELAYS], _seconds(resets))


def is_error(body: bytes) -> bool:
    """Whether a body is a JSON object that says of itself that it is an error."""
    try:
        content = msgspec.json.decode(body)
    except DECODING_FAILS:
        return False
    match content:
        case {"error": error}:
            return bool(error)
        case {"object": "error"} | {"type": "error"}:
            return True
        case _:
            return False


def _search(content: object, depth: int) -> Iterator[tuple[str, str]]:
    """Yield the names and values of relevant fields; an object's own fields precede nested ones."""
    if depth > DEPTH_MAX:
        return
    if isinstance(content, list):
        for one in cast("list[object]", content):
            yield from _search(one, depth + 1)
    if not isinstance(content, dict):
        return
    table = cast("dict[str, Any]", content)
    for name in (*_SENTENCES, *_CODES, *_DELAYS, _RESETS):
        value = table.get(name)
        if isinstance(value, str):
            yield from _search_text(name, value.strip()[:TEXT_CHARS_MAX], depth)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield name, str(value)
    for value in table.values():
        yield from _search(value, depth + 1)


def _search_text(name: str, text: str, depth: int) -> Iterator[tuple[str, str]]:
    """Yield a text; if the text is the body of another server's error, yield its fields instead."""
    if name in _SENTENCES and text.startswith(("{", "[")):
        try:
            inner = list(_search(msgspec.json.decode(text), depth + 1))
        except DECODING_FAILS:
            inner = []
        if inner:
            yield from inner
            return
    if text:
        yield name, text


def _seconds(text: str) -> float | None:
    """Parse a time near ours, as Unix seconds or a date; None for anything else."""
    try:
        seconds = float(text) if text.replace(".", "").isdecimal() else _date(text)
    except ValueError:
        return None
    return seconds if TIME_MIN < seconds < TIME_MAX else None


def _date(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
