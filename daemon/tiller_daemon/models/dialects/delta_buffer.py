"""Events in the making: pieces of the same text that follow each other become one event. Pure.

A chunk of a fast stream holds many pieces, and every event costs the turn more than a piece does.
"""

from tiller_daemon.models.base import ModelEvent, ReasoningDelta, TextDelta, ToolCallDelta

TEXT = -1
THINKING = -2
"""Of what a piece is, if not of the arguments of the call with that number."""


class DeltaBuffer:
    """The events since they were last taken."""

    def __init__(self) -> None:
        self._events: list[ModelEvent] = []
        self._run: list[str] = []
        self._run_of = TEXT

    def taken(self) -> list[ModelEvent]:
        """The events since the last time."""
        self._end_run()
        events, self._events = self._events, []
        return events

    def put(self, event: ModelEvent) -> None:
        """An event as it is."""
        self._end_run()
        self._events.append(event)

    def add(self, of: int, piece: str) -> None:
        """A piece, which is not empty."""
        if self._run_of != of:
            self._end_run()
            self._run_of = of
        self._run.append(piece)

    def _end_run(self) -> None:
        if not self._run:
            return
        text, self._run = "".join(self._run), []
        if self._run_of == TEXT:
            self._events.append(TextDelta(text))
        elif self._run_of == THINKING:
            self._events.append(ReasoningDelta(text))
        else:
            self._events.append(ToolCallDelta(self._run_of, text))
