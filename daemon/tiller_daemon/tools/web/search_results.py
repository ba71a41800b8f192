"""Reads the JSON answers of search engines: SearXNG's and Brave's. Pure.

The result is text for a model: a number, title, address and snippet for each result. All of it was
written by strangers, so tags and line breaks are removed and lengths are bounded.
Formats: https://docs.searxng.org/dev/search_api.html,
https://api-dashboard.search.brave.com/api-reference/web/search/get
"""

import html
import re
from collections.abc import Iterator
from typing import Final, TypeVar

import msgspec
from msgspec import Struct

from tiller_daemon.tools.base import ToolFailure

RESULTS_MAX: Final = 10
"""How many results are shown: a first page, as on any engine."""

LINE_CHARS_MAX: Final = 300
"""The longest title or address."""

SNIPPET_CHARS_MAX: Final = 600
"""The longest snippet; engines send some 200 characters."""

ANSWERS_MAX: Final = 3
"""How many direct answers of SearXNG are shown."""

_TAG: Final = re.compile(r"</?[a-zA-Z][^<>]*>")


class _Hit(Struct, frozen=True):
    """A result: SearXNG calls the snippet `content`, Brave `description`."""

    url: str | None = None
    """The address of the page."""
    title: str | None = None
    """The title of the page; may contain tags."""
    content: str | None = None
    """The snippet of SearXNG."""
    description: str | None = None
    """The snippet of Brave."""
    published: str | None = msgspec.field(default=None, name="publishedDate")
    """When the page was published, from SearXNG."""
    page_age: str | None = None
    """When the page was published, from Brave."""


class _SearxngAnswer(Struct, frozen=True):
    results: list[_Hit] = []
    answers: list[object] = []
    suggestions: list[str] = []
    unresponsive_engines: list[tuple[str, ...]] = []


class _BraveWeb(Struct, frozen=True):
    results: list[_Hit] = []


class _BraveAnswer(Struct, frozen=True):
    web: _BraveWeb | None = None


_Answer = TypeVar("_Answer", bound=Struct)


def read_searxng(body: bytes) -> str:
    """Return the results of SearXNG as text. Raises `ToolFailure`."""
    answer = _decode(body, _SearxngAnswer)
    lines = [f"Answer: {text}" for text in _answers(answer.answers)]
    lines += _results(answer.results)
    if not answer.results:
        if answer.suggestions:
            lines.append(f"(Perhaps: {_clean(' | '.join(answer.suggestions), LINE_CHARS_MAX)})")
        names = ", ".join(one[0] for one in answer.unresponsive_engines if one)
        if names:
            lines.append(f"(No answer from {_clean(names, LINE_CHARS_MAX)}.)")
    return "\n".join(lines)


def read_brave(body: bytes) -> str:
    """Return the results of Brave as text. Raises `ToolFailure`."""
    web = _decode(body, _BraveAnswer).web
    return "\n".join(_results(web.results if web else []))


def _decode(body: bytes, kind: type[_Answer]) -> _Answer:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ToolFailure(f"The engine's answer can't be decoded: {error}") from None


def _answers(answers: list[object]) -> Iterator[str]:
    """Yield direct answers, which are texts or, since 2024, objects."""
    for answer in answers[:ANSWERS_MAX]:
        match answer:
            case str(text) | {"answer": str(text)} if shown := _clean(text, SNIPPET_CHARS_MAX):
                yield shown
            case _:
                pass


def _results(hits: list[_Hit]) -> list[str]:
    shown = [hit for hit in hits if hit.url][:RESULTS_MAX]
    return [_result(number, hit) for number, hit in enumerate(shown, 1)] or ["Nothing was found."]


def _result(number: int, hit: _Hit) -> str:
    url = _clean(hit.url or "", LINE_CHARS_MAX)
    lines = [f"{number}. {_clean(hit.title or '', LINE_CHARS_MAX) or url}", f"   {url}"]
    if day := (hit.published or hit.page_age or "")[:10]:
        lines.append(f"   {_clean(day, LINE_CHARS_MAX)}")
    if snippet := _clean(hit.content or hit.description or "", SNIPPET_CHARS_MAX):
        lines.append(f"   {snippet}")
    return "\n".join(lines)


def _clean(text: str, chars_max: int) -> str:
    """Return `text` as one line, cut to `chars_max`, without tags and control characters."""
    plain = html.unescape(_TAG.sub("", text))
    line = " ".join("".join(c if c.isprintable() else " " for c in plain).split())
    return line if len(line) <= chars_max else f"{line[:chars_max].rstrip()} [...]"
