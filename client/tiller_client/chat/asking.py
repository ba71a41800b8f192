"""Answering requests by keys, so that nothing typed for another purpose can answer one.

A letter chooses an answer, Enter gives it. Letters count only while the editor is empty and the
request is on the screen; where more than that letter is typed, all of it goes to the editor.
"""

from collections.abc import Sequence
from typing import NamedTuple

from tiller_protocol.items import Decision, Request

SEEN_S_MIN = 0.3
"""How long a request is on the screen before a key can be about it: faster than anyone reads."""


class Choice(NamedTuple):
    """One answer to choose from."""

    key: str
    """The key that gives it."""
    label: str
    """What it is called on the screen."""
    decision: Decision
    """What it decides."""
    text: str = ""
    """The text that goes with it; empty for none, or if it is typed."""
    wants_text: bool = False
    """Whether a text is typed before the answer is given."""


def choices(request: Request) -> list[Choice]:
    """The answers to a request."""
    if request.kind == "question":
        suggested = [
            Choice(str(number), text, "answer", text)
            for number, text in enumerate(request.choices[:9], 1)
        ]
        return [*suggested, Choice("t", "type an answer", "answer", wants_text=True)]
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
    """Which request is asked now, and which answer is chosen. `request` is the oldest open one."""

    def __init__(self) -> None:
        self.request: Request | None = None
        self.chosen: Choice | None = None
        self.typing: Choice | None = None
        """The answer whose text is being typed in the editor."""
        self._seen_at: float | None = None
        self._answered = ""
        """The request that was answered here."""
        self._late: Sequence[str] = ()
        """The keys of a request that was not answered here: the user may be about to press one."""

    def show(self, request: Request | None) -> None:
        """Ask this request from now on; what was chosen for another one is forgotten."""
        if (request and request.id) == (self.request and self.request.id):
            return
        if self.request is not None and self.request.id != self._answered:
            self._late = [one.key for one in choices(self.request)]
        self.request = request
        self.chosen = self.typing = None
        self._seen_at = None

    def seen(self, now: float) -> None:
        """Note when (seconds of any clock) the request was on the screen for the first time."""
        if self.request and self._seen_at is None:
            self._seen_at = now

    def answered(self) -> None:
        """The request was answered here."""
        self._answered = self.request.id if self.request is not None else ""

    def is_late(self, text: str) -> bool:
        """Whether a text seems to answer what is asked no more; says so only once."""
        late, self._late = self._late, ()
        return text in late

    def takes_keys(self, now: float, *, editor_is_empty: bool) -> bool:
        """Whether a key may be about the request."""
        if self._seen_at is None or self.typing is not None:
            return False
        return editor_is_empty and now - self._seen_at >= SEEN_S_MIN

    def press(self, key: str) -> str:
        """Take a key; returns what goes to the editor instead if it is about no answer."""
        assert self.request is not None
        found = next((one for one in choices(self.request) if one.key == key), None)
        if self.chosen is None and found is not None:
            self.chosen = found
            return ""
        before, self.chosen = self.chosen, None
        return (before.key if before else "") + key

    def move(self, step: int) -> None:
        """Choose the next answer, or the one before."""
        assert self.request is not None
        answers = choices(self.request)
        at = answers.index(self.chosen) + step if self.chosen else min(0, step)
        self.chosen = answers[at % len(answers)]

    def confirm(self) -> Choice | None:
        """Enter was pressed: return the answer to give, if one is chosen that needs no text."""
        chosen, self.chosen = self.chosen, None
        if chosen is not None and chosen.wants_text:
            self.typing = chosen
            return None
        return chosen

    def finish(self, text: str) -> Choice:
        """The answer whose text was typed."""
        assert self.typing is not None
        answer, self.typing = self.typing._replace(text=text), None
        return answer

    def cancel(self) -> bool:
        """Choose nothing; return whether something was chosen or was being typed."""
        was = self.chosen is not None or self.typing is not None
        self.chosen = self.typing = None
        return was
