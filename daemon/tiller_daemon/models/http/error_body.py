"""What a server said when it failed: its sentences and codes, wherever they stand. Pure.

Providers, gateways and frameworks each put them into another place, some in several, and gateways
put the whole body of the one behind them into a field of theirs. What it means is in
`failure_kind`.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple, cast

import msgspec

DEPTH_MAX = 6
FIELDS_MAX = 200
"""How deep and how far a body is looked through; real ones have some dozen fields."""

TEXT_CHARS_MAX = 8_000
"""How much of one text is looked at; a sentence stands at its beginning."""

_SENTENCES = ("message", "msg", "detail", "error_description", "error", "raw", "title", "errors")
_CODES = ("code", "type", "status", "reason", "__type", "error_code", "status_code", "quotaId")
_DELAYS = ("retryDelay", "retry_after", "retry_after_seconds", "resets_in_seconds")

_DECODING_FAILS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class ErrorDetails(NamedTuple):
    """What a body says.

    `sentences` are in order, without repetition; `codes` in lower case; `delays` are the waits that
    it names, as it wrote them.
    """

    sentences: tuple[str, ...] = ()
    codes: tuple[str, ...] = ()
    delays: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """For people: the first sentence, and one behind it that a gateway was told."""
        return ": ".join(self.sentences[:2])

    @property
    def text(self) -> str:
        """All of it in lower case, for looking through."""
        return "\n".join((*self.codes, *self.sentences)).lower()


def parse_error_body(body: bytes) -> ErrorDetails:
    """What a body says, JSON or not; nothing for an HTML page, which is for people."""
    text = body.decode(errors="replace").strip()
    if text.startswith("<"):
        return ErrorDetails()
    try:
        told = msgspec.json.decode(body)
    except _DECODING_FAILS:
        return ErrorDetails((text[:TEXT_CHARS_MAX],) if text else ())
    found = list(_found_in(told, 0))[:FIELDS_MAX]
    if not found and isinstance(told, str | int | float):
        return ErrorDetails((str(told),))
    by_place = {
        place: tuple(dict.fromkeys(value for name, value in found if name in place))
        for place in (_SENTENCES, _CODES, _DELAYS)
    }
    codes = tuple(code.lower() for code in by_place[_CODES])
    return ErrorDetails(by_place[_SENTENCES], codes, by_place[_DELAYS])


def _found_in(told: object, depth: int) -> Iterator[tuple[str, str]]:
    """Every field of interest, with its name: those of a table before those of tables in it."""
    if depth > DEPTH_MAX:
        return
    if isinstance(told, list):
        for one in cast("list[object]", told):
            yield from _found_in(one, depth + 1)
    if not isinstance(told, dict):
        return
    table = cast("dict[str, Any]", told)
    for name in (*_SENTENCES, *_CODES, *_DELAYS):
        value = table.get(name)
        if isinstance(value, str):
            yield from _found_in_text(name, value.strip()[:TEXT_CHARS_MAX], depth)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield name, str(value)
    for value in table.values():
        yield from _found_in(value, depth + 1)


def _found_in_text(name: str, text: str, depth: int) -> Iterator[tuple[str, str]]:
    """A text, or what it holds if it is the body of another server."""
    if name in _SENTENCES and text.startswith(("{", "[")):
        try:
            inner = list(_found_in(msgspec.json.decode(text), depth + 1))
        except _DECODING_FAILS:
            inner = []
        if inner:
            yield from inner
            return
    if text:
        yield name, text
