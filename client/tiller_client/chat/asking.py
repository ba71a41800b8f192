"""Answers requests by keys, so that text typed for another purpose never answers a request.

A letter chooses an answer, Enter gives it. A letter counts only while the editor is empty and the
request is on the screen. If another letter follows, both go to the editor. A text answers a
question if the question was on the screen before the text was begun.
"""

from collections.abc import Sequence
from typing import NamedTuple

from tiller_protocol.items import Decision, Request

SEEN_S_MIN = 0.3
"""How long a request must be on the screen before keys count: nobody reads it faster."""


class Choice(NamedTuple):
    """An answer that the user can choose."""

    key: str
    """The key that chooses the answer."""
    label: str
    """The answer's name on the screen."""
    decision: Decision
    """The decision to submit."""
    text: str = ""
    """The text to submit; empty if there is none, or if the user types it."""
    wants_text: bool = False
    """Whether the user types a text before the answer is given."""


def choices(request: Request) -> list[Choice]:
    """The possible answers to a request."""
    if request.kind == "question":
        return [
            Choice(str(number), text, "answer", text)
            for number, text in enumerate(request.choices[:9], 1)
        ]
    answers = [Choice("y", "yes, once", "once")]
    if request.always:
        answers.append(Choice("a", "always in this session", "always"))
    if request.always_here:
        answers.append(Choice("h", "always here", "always_here"))
    return [
        *answers,
        Choice("n", "no, and stop", "reject"),
        Choice("r", "no, with a reason", "reject", wants_text=True),
    ]


class Asking:
    """The request that is asked now, which is the oldest open one, and the chosen answer."""

    def __init__(self) -> None:
        self.request: Request | None = None
        self.chosen: Choice | None = None
        self.typing: Choice | None = None
        """The answer whose text is being typed in the editor."""
        self._seen_at: float | None = None
        self._answered = ""
        """The id of the request that was answered here."""
        self._is_pressed = False
        """Whether the answer was chosen by its letter, which may begin a text."""
        self._is_answer = False
        """Whether the text in the editor was begun as an answer to the question."""
        self._late: Sequence[str] = ()
        """The keys of a request that others answered, as the user may be about to press one."""

    def show(self, request: Request | None) -> None:
        """Ask this request from now on, and forget the answer chosen for another request."""
        if (request and request.id) == (self.request and self.request.id):
            return
        if self.request is not None and self.request.id != self._answered:
            self._late = [one.key for one in choices(self.request)]
        self.request = request
        self.chosen = self.typing = None
        self._is_answer = False
        self._seen_at = None

    def seen(self, now: float) -> None:
        """Note that the request is on the screen since `now`, in seconds of any clock."""
        if self.request and self._seen_at is None:
            self._seen_at = now

    def key_came(self, *, editor_is_empty: bool) -> None:
        """Note whether what is written from this key on answers the question."""
        if editor_is_empty:
            self._is_answer = self._is_question and self._seen_at is not None

    @property
    def takes_text(self) -> bool:
        """Whether the text in the editor, if there is one, answers the question."""
        return self._is_question and self._is_answer

    @property
    def _is_question(self) -> bool:
        return self.request is not None and self.request.kind == "question"

    def answered(self) -> None:
        """Note that the request was answered here."""
        self._answered = self.request.id if self.request is not None else ""

    def is_mine(self, request_id: str) -> bool:
        """Whether the request was answered here."""
        return request_id == self._answered

    def is_late(self, text: str) -> bool:
        """Whether a text seems to answer a request that is no longer open; true only once."""
        late, self._late = self._late, ()
        return text in late

    def takes_keys(self, now: float, *, editor_is_empty: bool) -> bool:
        """Whether keys can answer the request now."""
        if self._seen_at is None or self.typing is not None:
            return False
        return editor_is_empty and now - self._seen_at >= SEEN_S_MIN

    def press(self, key: str) -> str:
        """Choose an answer by its key; otherwise return the text that goes to the editor.

        A blank after the key of an answer with a text begins the text, as Enter does.
        """
        assert self.request is not None
        found = next((one for one in choices(self.request) if one.key == key), None)
        if self._is_pressed and self.chosen and self.chosen.wants_text and key == " ":
            self.confirm()
            return ""
        before = self.chosen.key if self.chosen and self._is_pressed else ""
        self.chosen = None if before else found
        self._is_pressed = self.chosen is not None
        return before + key if self.chosen is None else ""

    def move(self, step: int) -> None:
        """Choose the next or the previous answer."""
        assert self.request is not None
        answers = choices(self.request)
        if not answers:
            return
        self._is_pressed = False
        at = answers.index(self.chosen) + step if self.chosen else min(0, step)
        self.chosen = answers[at % len(answers)]

    def confirm(self) -> Choice | None:
        """Return the chosen answer, for Enter; if it needs a text, let the user type the text."""
        chosen, self.chosen = self.chosen, None
        if chosen is not None and chosen.wants_text:
            self.typing = chosen
            return None
        return chosen

    def finish(self, text: str) -> Choice:
        """Return the answer with the typed text."""
        assert self.typing is not None
        answer, self.typing = self.typing._replace(text=text), None
        return answer

    def cancel(self) -> bool:
        """Forget the chosen answer; return whether there was one."""
        was = self.chosen is not None or self.typing is not None
        self.chosen = self.typing = None
        return was
