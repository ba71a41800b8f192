"""Joins consecutive pieces of the same text into one event. Pure.

A chunk of a fast stream contains many pieces, and the turn spends more time on an event than the
decoder spends on a piece.
"""

from tiller_daemon.models.base import ModelEvent, ReasoningDelta, TextDelta, ToolCallDelta

TEXT = -1
THINKING = -2
"""Kinds of pieces. Any other kind is the number of a call, to whose arguments the piece belongs."""


class DeltaBuffer:
    """Collects events until they are drained."""

    def __init__(self) -> None:
        self._events: list[ModelEvent] = []
        self._run: list[str] = []
        self._run_kind = TEXT

    def drain(self) -> list[ModelEvent]:
        """Return and remove the events collected so far."""
        self._end_run()
        events, self._events = self._events, []
        return events

    def add_event(self, event: ModelEvent) -> None:
        """Append an event unchanged."""
        self._end_run()
        self._events.append(event)

    def add_text(self, kind: int, piece: str) -> None:
        """Append a piece of text, which must not be empty."""
        if self._run_kind != kind:
            self._end_run()
            self._run_kind = kind
        self._run.append(piece)

    def _end_run(self) -> None:
        if not self._run:
            return
        text, self._run = "".join(self._run), []
        if self._run_kind == TEXT:
            self._events.append(TextDelta(text))
        elif self._run_kind == THINKING:
            self._events.append(ReasoningDelta(text))
        else:
            self._events.append(ToolCallDelta(self._run_kind, text))
