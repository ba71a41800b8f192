"""Draws a chat: lines that stay, and below them a frame with the chat's present state."""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

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
from tiller_client.chat.status import Facts, status_rows
from tiller_client.chat.terminal.look import Look
from tiller_client.chat.terminal.notifying import Notifier
from tiller_client.chat.terminal.pace import Pace
from tiller_client.chat.terminal.painter import ASK, Painter
from tiller_client.rendering.requests import request_block
from tiller_client.rendering.text import cells, cut, on_screen
from tiller_protocol.items import Request

if TYPE_CHECKING:
    from tiller_client.chat.app import Chat


class Screen:
    """The part of the terminal that shows one chat."""

    def __init__(self, chat: "Chat", painter: Painter, look: Look) -> None:
        self.painter = painter
        self.look = look
        self.notifier = Notifier()
        self._chat = chat
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

    def add(self, lines: Sequence[str]) -> None:
        """Print lines that stay, with the next frame; their text must be safe."""
        self._above += lines

    def tell(self, escape: str) -> None:
        """Write an escape that shows nothing, with the next frame."""
        self._escapes += escape
        self._chat.app.invalidate()

    def add_request(self, request: Request) -> None:
        """Print a whole request in lines that stay."""
        block = request_block(request, self.look.paint, self.look.width)
        self.add(["", *on_screen(block).split("\n")])
        self._chat.conversation.set_apart()

    def draw(self) -> None:
        """Draw the chat's state, unless another program has the terminal or it is too early."""
        if not self.painter.is_ours or not self.pace.may_draw():
            return
        self.look.fit(self.painter)
        size = self.painter.size
        chat = self._chat
        self.add(chat.conversation.advance())
        above, self._above = self._above, []
        self.pace.drawn()
        frame = compose(self._parts(), size[1])
        above = self.look.recoloured(above)
        frame = frame._replace(rows=self.look.recoloured(frame.rows))
        extra, self._escapes = self._escapes + self.notifier.take(chat.snapshot), ""
        ask = ASK if self.pace.asks else ""
        self._asked = chat.asking.request.id if chat.asking.request else ""
        is_written = self.painter.paint(above, frame, size, extra, ask)
        self.pace.written(asked=is_written and bool(ask))

    def _seen(self) -> None:
        """Note that the last frame is on the screen, so that keys may now answer its request."""
        asking = self._chat.asking
        if asking.request is not None and asking.request.id == self._asked:
            asking.seen(time.monotonic())

    def _parts(self) -> Parts:
        chat, now = self._chat, time.time()
        width, paint = self.look.width, self.look.paint
        shown = chat.editor.shown(width)
        editor = [on_screen(row) for row in shown.rows]
        if chat.editor.is_empty and chat.menu is None:
            columns, _ = self.painter.size
            shown_hint = cut(hint(chat.snapshot, chat.asking), columns - cells(PROMPT))
            editor[0] += on_screen(paint.dim(shown_hint))
        question = self._question()
        return Parts(
            chat.conversation.live(now),
            queue_rows(chat.snapshot.queue, width, paint),
            question,
            next((at for at, row in enumerate(question) if CHOSEN in row), 0),
            editor,
            shown.cursor,
            [*self._chips(), *completion_rows(chat.editor.buffer.complete_state, width, paint)],
            [
                on_screen(paint.dim(row))
                for row in status_rows(chat.snapshot, self.facts(), now, width)
            ],
        )

    def _chips(self) -> list[str]:
        chat = self._chat
        images = named_images(chat.editor.buffer.text, chat.snapshot.workspace)
        return chip_rows(images, self.look.width, self.look.paint)

    def facts(self) -> Facts:
        """What the status says besides the snapshot."""
        chat = self._chat
        model = next((one.name for one in chat.catalog.models), "")
        agent = next((one.name for one in chat.catalog.agents), "")
        notes = chat.notes
        return Facts(model, agent, notes.away or notes.said, notes.beside, bool(notes.away))

    def _question(self) -> list[str]:
        """The rows of the menu, or else of the answers to the open request."""
        chat, width, paint = self._chat, self.look.width, self.look.paint
        if chat.menu is not None:
            return [on_screen(row) for row in chat.menu.rows(width, paint)]
        request = chat.asking.request
        if request is None:
            return []
        others = len(chat.snapshot.requests) - 1
        empty = chat.editor.is_empty
        how_to = how_to_answer(chat.asking, time.monotonic(), editor_is_empty=empty)
        return answer_rows(chat.asking, request, others, how_to, width, paint)
