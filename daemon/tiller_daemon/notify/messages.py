"""Words what a user is told. Pure."""

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

from tiller_daemon.config import NotifyMoment
from tiller_daemon.notify.news import News
from tiller_daemon.redaction.text import redact
from tiller_daemon.redaction.urls import without_url_secrets
from tiller_protocol.events import TurnEnded
from tiller_protocol.items import Request
from tiller_protocol.snapshot import last_words

TEXT_CHARS_MAX: Final = 500
"""Longest text about one request or turn; phones show about so much."""

TITLE_CHARS_MAX: Final = 100


WORDS: Final[Mapping[NotifyMoment, str]] = {
    "needs_answer": "Needs an answer",
    "ended": "Done",
    "failed": "Failed",
    "limit": "At a limit",
}
"""How the titles of messages begin."""


class Message(Struct, frozen=True):
    """What a target is told of a session. It replaces what it was told before."""

    session_id: str
    """The session."""
    moment: NotifyMoment
    """The moment of the newest of its news."""
    title: str
    """What has happened to which session, in one line."""
    text: str
    """What happened, in a few lines."""
    workspace: str
    """The absolute path of the workspace."""
    request_id: str = ""
    """The newest open request, if the session needs an answer."""


def text_of_request(request: Request, secrets: Sequence[str]) -> str:
    """Return what is told of a request. A diff is not sent, as it is code."""
    detail = request.detail if request.detail_kind != "diff" else ""
    shown = request.title if detail in request.title else f"{request.title}\n{detail}"
    return _safe(shown, secrets)


def text_of_end(body: TurnEnded, secrets: Sequence[str]) -> str:
    """Return what is told of a turn that has ended."""
    if body.outcome == "completed":
        return _safe(last_words(body.last_message) or "The turn has completed.", secrets)
    return _safe(body.error.message if body.error else "The turn has failed.", secrets)


def message_about(
    session_id: str, title: str, workspace: str, news: Sequence[News], secrets: Sequence[str]
) -> Message:
    """Return one message about all `news` of a session, of which the last is the newest."""
    newest = news[-1]
    others = len(news) - 1
    more = f"\n(and {others} more)" if others else ""
    name = _safe(title or workspace.rpartition("/")[2], secrets)
    shown = f"{WORDS[newest.moment]}: {_cut(' '.join(name.split()), TITLE_CHARS_MAX)}"
    request_id = newest.key if newest.moment == "needs_answer" else ""
    return Message(session_id, newest.moment, shown, newest.text + more, workspace, request_id)


def _safe(text: str, secrets: Sequence[str]) -> str:
    """Remove secrets, and then the end: a cut secret would not be recognised."""
    return _cut(without_url_secrets(redact(text, secrets)).strip(), TEXT_CHARS_MAX)


def _cut(text: str, chars_max: int) -> str:
    return text if len(text) <= chars_max else f"{text[: chars_max - 1]}…"
