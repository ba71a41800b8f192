"""The screen of a chat: lines that stay, and the frame below them, made of the chat's state."""

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tiller_client.chat.frame import Parts, compose
from tiller_client.chat.rows import answer_rows, completion_rows, how_to_answer, queue_rows
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
        self.pace = Pace(self.draw)

    def begin(self) -> None:
        """Draw on the terminal from now on; it is raw already."""
        self.painter.begin()
        self.pace.begin()

    def fit(self) -> None:
        """Lines made from now on are as wide as the terminal is now, images as its cells are."""
        look = self.look
        look.width = self.painter.size[0] - 1
        if look.theme.pictures == "sixel":
            look.theme = replace(look.theme, cell=self.painter.cell or look.theme.cell)

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
        self.fit()
        columns, rows = self.painter.size
        chat = self._chat
        self.add(chat.conversation.advance())
        above, self._above = self._above, []
        self.pace.drawn()
        frame = compose(self._parts(), rows)
        recoloured = self.look.theme.recoloured
        above = [recoloured(line) for line in above]
        frame = frame._replace(rows=[recoloured(row) for row in frame.rows])
        ask = ASK if self.pace.asks else ""
        if (
            self.painter.paint(above, frame, columns, self.notifier.take(chat.snapshot), ask)
            and ask
        ):
            self.pace.asked()
        if chat.asking.request is not None:
            chat.asking.seen(time.monotonic())

    def _parts(self) -> Parts:
        chat, now = self._chat, time.time()
        width, paint = self.look.width, self.look.paint
        shown = chat.editor.shown(width)
        editor = [on_screen(row) for row in shown.rows]
        if chat.editor.is_empty and chat.menu is None:
            editor[0] += on_screen(paint.dim(self._hint()))
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

    def _hint(self) -> str:
        """What is said where nothing is written yet."""
        chat = self._chat
        if chat.asking.typing is not None:
            is_reason = chat.asking.typing.decision == "reject"
            return "the reason, then Enter" if is_reason else "your answer, then Enter"
        if chat.asking.request is not None:
            return ""
        if chat.is_busy:
            return "steer with Enter, queue with Alt-Enter"
        goes_on = chat.snapshot.queue or chat.snapshot.last_outcome not in (None, "completed")
        return "write a message" + (", or /continue" if goes_on else "")

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
