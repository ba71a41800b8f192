"""The screen of a chat: lines that stay, and the frame below them, made of the chat's state."""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tiller_client.chat.frame import Parts, compose
from tiller_client.chat.rows import (
    answer_rows,
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
from tiller_client.rendering.text import on_screen
from tiller_protocol.items import Request

if TYPE_CHECKING:
    from tiller_client.chat.app import Chat


class Screen:
    """What the terminal shows of one chat."""

    def __init__(self, chat: "Chat", painter: Painter, look: Look) -> None:
        self.painter = painter
        self.look = look
        self.notifier = Notifier()
        self._chat = chat
        self._above: list[str] = []
        """Lines to print with the next frame."""
        self._asked = ""
        """The request that the frame asks that was drawn last."""
        self.pace = Pace(self.draw, self._seen)

    def begin(self) -> None:
        """Draw on the terminal from now on; it is raw already."""
        self.painter.begin()
        self.pace.begin()

    def add(self, lines: Sequence[str]) -> None:
        """Print lines that stay, with the next frame; their text is safe already."""
        self._above += lines

    def add_request(self, request: Request) -> None:
        """Print what is asked, all of it, where it stays."""
        block = request_block(request, self.look.paint, self.look.width)
        self.add(["", *on_screen(block).split("\n")])
        self._chat.conversation.set_apart()

    def draw(self) -> None:
        """Draw the state of the chat now, or once no other program has the terminal."""
        if not self.painter.is_ours or not self.pace.may_draw():
            return
        self.look.fit(self.painter)
        columns, rows = self.painter.size
        chat = self._chat
        self.add(chat.conversation.advance())
        above, self._above = self._above, []
        self.pace.drawn()
        frame = compose(self._parts(), rows)
        above = self.look.recoloured(above)
        frame = frame._replace(rows=self.look.recoloured(frame.rows))
        extra, ask = self.notifier.take(chat.snapshot), ASK if self.pace.asks else ""
        self._asked = chat.asking.request.id if chat.asking.request else ""
        is_written = self.painter.paint(above, frame, columns, extra, ask)
        self.pace.written(asked=is_written and bool(ask))

    def _seen(self) -> None:
        """The last frame is on the terminal, so keys that come from now on may be about it."""
        asking = self._chat.asking
        if asking.request is not None and asking.request.id == self._asked:
            asking.seen(time.monotonic())

    def _parts(self) -> Parts:
        chat, now = self._chat, time.time()
        width, paint = self.look.width, self.look.paint
        shown = chat.editor.shown(width)
        editor = [on_screen(row) for row in shown.rows]
        if chat.editor.is_empty and chat.menu is None:
            editor[0] += on_screen(paint.dim(hint(chat.snapshot, chat.asking)))
        return Parts(
            chat.conversation.live(now),
            queue_rows(chat.snapshot.queue, width, paint),
            self._question(),
            editor,
            shown.cursor,
            completion_rows(chat.editor.buffer.complete_state, width, paint),
            [
                on_screen(paint.dim(row))
                for row in status_rows(chat.snapshot, self._facts(), now, width)
            ],
        )

    def _facts(self) -> Facts:
        chat = self._chat
        model = next((one.name for one in chat.catalog.models), "")
        agent = next((one.name for one in chat.catalog.agents), "")
        return Facts(model, agent, chat.notes.away or chat.notes.said, chat.notes.beside)

    def _question(self) -> list[str]:
        """The menu, or else the answers to what is asked."""
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
