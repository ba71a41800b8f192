"""Draws a chat: lines that stay, and below them a frame with the chat's present state."""

import os
import time
from collections.abc import Sequence

from tiller_client.chat.attaching import named_images
from tiller_client.chat.frame import Parts, compose
from tiller_client.chat.rows import (
    CHOSEN,
    PROMPT,
    answer_rows,
    chip_rows,
    completion_rows,
    hint,
    how_to_answer,
    queue_rows,
)
from tiller_client.chat.state import ChatState
from tiller_client.chat.status import Facts, status_rows
from tiller_client.chat.terminal.look import Look
from tiller_client.chat.terminal.notifying import Notifier
from tiller_client.chat.terminal.pace import Pace
from tiller_client.chat.terminal.painter import ASK, Painter
from tiller_client.program_status.changes import StatusChanges
from tiller_client.program_status.records import SessionRecords
from tiller_client.program_status.report import is_wanted
from tiller_client.rendering.requests import request_block
from tiller_client.rendering.text import cells, cut
from tiller_protocol.items import Request
from tiller_protocol.snapshot import is_working


class Screen:
    """The part of the terminal that shows one chat."""

    def __init__(self, state: ChatState, painter: Painter, look: Look) -> None:
        self.painter = painter
        self.look = look
        self.notifier = Notifier()
        self.records = SessionRecords()
        self._status = StatusChanges(is_wanted=is_wanted(os.environ))
        self._state = state
        self._above: list[str] = []
        """Lines to print with the next frame."""
        self._escapes = ""
        self._asked = ""
        """The id of the request in the frame that was drawn last."""
        self.pace = Pace(self.draw, self._seen)

    def begin(self) -> None:
        """Begin to draw on the terminal, which is already in raw mode."""
        self.painter.begin()
        self.pace.begin()
        snapshot = self._state.snapshot
        self.records.start_from(
            snapshot.requests,
            busy=is_working(snapshot),
            open_items=(item for item in snapshot.items if item.id in snapshot.open_items),
            background=snapshot.background,
        )

    def end(self) -> None:
        """Remove the frame, and what the terminal knows of this chat, and leave raw mode."""
        self.pace.stop()
        self.painter.erase()
        self.painter.end(self._status.end())

    def add(self, lines: Sequence[str]) -> None:
        """Print lines that stay, with the next frame; their text must be safe."""
        self._above += lines

    def print(self, lines: Sequence[str]) -> None:
        """Print lines that stay, below a blank line, now; their text must be safe."""
        self.add(["", *lines])
        self._state.changed()

    def tell(self, escape: str) -> None:
        """Write an escape that shows nothing, with the next frame."""
        self._escapes += escape
        self._state.changed()

    def add_request(self, request: Request) -> None:
        """Print a whole request in lines that stay."""
        block = request_block(request, self.look.theme, self.look.width)
        self.add(["", *block.split("\n")])
        self._state.conversation.set_apart()

    def draw(self) -> None:
        """Draw the chat's state, unless another program has the terminal or it is too early."""
        if not self.painter.is_ours or not self.pace.may_draw():
            return
        self.look.fit(self.painter)
        size = self.painter.size
        state = self._state
        self.add(state.conversation.advance())
        above, self._above = self._above, []
        self.pace.drawn()
        frame = compose(self._parts(), size[1])
        status = self._status.update(self.records.records())
        extra, self._escapes = self._escapes + self.notifier.take(state.snapshot) + status, ""
        ask = ASK if self.pace.asks else ""
        self._asked = state.asking.request.id if state.asking.request else ""
        is_written = self.painter.paint(above, frame, size, extra, ask)
        self.pace.written(asked=is_written and bool(ask))

    def _seen(self) -> None:
        """Note that the last frame is on the screen, so that keys may now answer its request."""
        asking = self._state.asking
        if asking.request is not None and asking.request.id == self._asked:
            asking.seen(time.monotonic())

    def _parts(self) -> Parts:
        state, now = self._state, time.time()
        width, theme = self.look.width, self.look.theme
        shown = state.editor.shown(width)
        editor = [*shown.rows]
        if state.editor.is_empty and state.menu is None:
            columns, _ = self.painter.size
            shown_hint = cut(hint(state.snapshot, state.asking), columns - cells(PROMPT))
            editor[0] += theme.dim(shown_hint)
        question = self._question()
        return Parts(
            state.conversation.live(now),
            queue_rows(state.snapshot.queue, width, theme),
            question,
            next((at for at, row in enumerate(question) if CHOSEN in row), 0),
            editor,
            shown.cursor,
            [*self._chips(), *completion_rows(state.editor.buffer.complete_state, width, theme)],
            [theme.dim(row) for row in status_rows(state.snapshot, self.facts(), now, width)],
        )

    def _chips(self) -> list[str]:
        state = self._state
        images = named_images(state.editor.buffer.text, state.snapshot.workspace)
        return chip_rows(images, self.look.width, self.look.theme)

    def facts(self) -> Facts:
        """What the status says besides the snapshot."""
        state = self._state
        model = next((one.name for one in state.catalog.models), "")
        agent = next((one.name for one in state.catalog.agents), "")
        notes = state.notes
        return Facts(model, agent, notes.away or notes.said, notes.beside, bool(notes.away))

    def _question(self) -> list[str]:
        """The rows of the menu, or else of the answers to the open request."""
        state, width, theme = self._state, self.look.width, self.look.theme
        if state.menu is not None:
            return state.menu.rows(width, theme)
        request = state.asking.request
        if request is None:
            return []
        others = max(0, len(state.snapshot.requests) - 1)
        empty = state.editor.is_empty
        how_to = how_to_answer(state.asking, time.monotonic(), editor_is_empty=empty)
        return answer_rows(state.asking, request, others, how_to, width, theme)
