"""The application: events, keys and frames of one session in one terminal.

prompt-toolkit reads the keyboard and edits the text; the screen is drawn by `Painter`, as a
function of the conversation, the editor and what is asked.
"""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Coroutine, Sequence

from prompt_toolkit.application import Application
from prompt_toolkit.input import Input
from prompt_toolkit.layout import BufferControl, Layout, Window
from prompt_toolkit.output import DummyOutput

from tiller_client.api.for_asyncio import Client
from tiller_client.chat.actions import Actions
from tiller_client.chat.asking import Asking, choices
from tiller_client.chat.catalog import LoadedCatalog
from tiller_client.chat.completing import InputCompleter
from tiller_client.chat.conversation import Conversation
from tiller_client.chat.editor import GOES_ON, Editor
from tiller_client.chat.frame import Parts, compose
from tiller_client.chat.keys import bindings, input_of
from tiller_client.chat.live_session import LiveSession
from tiller_client.chat.look import Look
from tiller_client.chat.menu import Menu
from tiller_client.chat.notifying import Notifier
from tiller_client.chat.pace import Pace
from tiller_client.chat.painter import Painter
from tiller_client.chat.reading.style import theme_for
from tiller_client.chat.status import Facts, Notes, status_line
from tiller_client.console import say
from tiller_client.render_item import input_line
from tiller_client.render_request import request_block
from tiller_client.runtime import my_places
from tiller_client.text import SHORT_ID_CHARS, cut, on_screen, one_line
from tiller_protocol.answers import CatalogResult
from tiller_protocol.events import Event, RequestOpened, TurnEnded
from tiller_protocol.items import Request
from tiller_protocol.ops import Catalog
from tiller_protocol.searching import InputHistory, InputHistoryResult
from tiller_protocol.snapshot import Snapshot

TICK_S = 0.25
"""Between two frames in which only clocks move, while a turn is running."""

ESCAPE_S = 0.05
"""How long a lone Esc may be the beginning of another key."""

COMPLETIONS_SHOWN = 8
QUEUED_SHOWN = 5

HISTORY_INPUTS = 500
"""What the user wrote before, in all sessions, that Up and Ctrl-R go through."""

HELP_HINT = "/help for keys · Enter sends · Ctrl-D leaves"


class Chat:
    """One session on the screen, until the user leaves it."""

    def __init__(
        self, client: Client, session_id: str, painter: Painter, look: Look, keyboard: Input
    ) -> None:
        self.client = client
        self.session = LiveSession(client, session_id)
        self.painter = painter
        self.look = look
        self.catalog = LoadedCatalog()
        self.menu: Menu | None = None
        self.notes = Notes()
        self.asking = Asking()
        self.editor = Editor(InputCompleter(self))
        self.actions = Actions(self)
        self.next_session: str | None = None
        """The session to open after this one."""
        self._notifier = Notifier()
        self._above: list[str] = []
        self._pace = Pace()
        self._tasks: list[asyncio.Task[None]] = []
        self.app: Application[None] = Application(
            layout=Layout(Window(BufferControl(self.editor.buffer))),
            key_bindings=bindings(self),
            output=DummyOutput(),
            input=keyboard,
            after_render=lambda _: self._draw(),
        )
        self.app.ttimeoutlen = ESCAPE_S
        self.app.timeoutlen = ESCAPE_S

    @property
    def snapshot(self) -> Snapshot:
        """The session as the events so far make it."""
        return self.conversation.snapshot

    @property
    def is_busy(self) -> bool:
        """Whether a turn is running."""
        return self.snapshot.turn is not None

    async def run(self) -> None:
        """Show the session until the user leaves it; raises `TillerError` if it can't be opened."""
        columns, _ = self.painter.size
        self.look.width = columns - 1
        self.conversation = Conversation(await self.session.snapshot(), self.look)
        self._above += self._heading()
        self._above += self.conversation.begin()
        self._show_request()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGHUP, signal.SIGTERM):
            loop.add_signal_handler(number, self.leave)
        self._start(self.session.send())
        self._start(self.session.follow(self.snapshot.seq, self))
        self._start(self._tick())
        self._start(self._load())
        self.painter.begin()
        try:
            await self.app.run_async(set_exception_handler=False, handle_sigint=False)
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            self.painter.erase()
            self.painter.end()
            for number in (signal.SIGHUP, signal.SIGTERM):
                loop.remove_signal_handler(number)

    def take(self, event: Event) -> None:
        """Show the next event."""
        self._above += self.conversation.take(event)
        match event.body:
            case TurnEnded():
                self._notifier.happened()
                refreshed = self.catalog.refresh_files(self.snapshot.workspace)
                self.app.create_background_task(refreshed)
            case RequestOpened():
                self._notifier.happened()
            case _:
                pass
        self._show_request()
        self._pace.soon(self.app.invalidate)

    def say(self, text: str) -> None:
        """Say a sentence in the status line, until the next key."""
        self.notes.said = one_line(text)
        self.app.invalidate()

    def print(self, lines: Sequence[str]) -> None:
        """Print lines that stay; their text is safe already."""
        self._above += ["", *lines]
        self.app.invalidate()

    def away(self, text: str) -> None:
        """Say why no events come, or nothing once they do."""
        self.notes.away = one_line(text)
        self.app.invalidate()

    def end(self, reason: str) -> None:
        """Leave, as the session can't be followed any more."""
        self.print([on_screen(self.look.paint.asking(f"! {one_line(reason)}"))])
        self.leave()

    def leave(self) -> None:
        """End the application; a running turn goes on."""
        if self.app.is_running and not self.app.is_done:
            self._draw()
            self.app.exit()

    def focus(self, *, gained: bool) -> None:
        """The terminal's window got or lost the focus."""
        self._notifier.has_focus = gained

    def choose(self, menu: Menu) -> None:
        """Show a menu."""
        self.menu = menu
        self.app.invalidate()

    def _start(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.create_task(work)
        task.add_done_callback(self._finished)
        self._tasks.append(task)

    def _finished(self, task: "asyncio.Task[None]") -> None:
        """A task that fails ends the application, which raises its error."""
        if task.cancelled() or (error := task.exception()) is None:
            return
        if self.app.is_running and not self.app.is_done:
            self.app.exit(exception=error)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            if self.is_busy:
                self.app.invalidate()

    async def _load(self) -> None:
        """What completions and menus need, and the first frame does not."""
        op = Catalog(self.snapshot.workspace)
        self.catalog.load(await self.client.ask(op, CatalogResult))
        written = await self.client.ask(InputHistory(limit=HISTORY_INPUTS), InputHistoryResult)
        await self.catalog.refresh_files(self.snapshot.workspace)
        self.editor.recall([one.text for one in reversed(written.inputs)])
        self.app.invalidate()

    def _heading(self) -> list[str]:
        snapshot = self.snapshot
        title = one_line(snapshot.title) or "new session"
        line = f"tiller · {title} · {one_line(snapshot.workspace)}"
        paint = self.look.paint
        return [
            on_screen(paint.bold(cut(line, self.look.width))),
            on_screen(paint.dim(cut(HELP_HINT, self.look.width))),
        ]

    def _show_request(self) -> None:
        """Print the request that is asked next, all of it, where it stays."""
        request = next(iter(self.snapshot.requests), None)
        before = self.asking.request
        self.asking.show(request)
        if request is not None and (before is None or before.id != request.id):
            block = request_block(request, self.look.paint, self.look.width)
            self._above += ["", *on_screen(block).split("\n")]

    def _draw(self) -> None:
        columns, rows = self.painter.size
        self.look.width = columns - 1
        self._above += self.conversation.advance()
        above, self._above = self._above, []
        self._pace.drawn()
        frame = compose(self._parts(), rows)
        extra = self._notifier.take(self.snapshot)
        self.painter.paint(above, frame, columns, extra)
        if self.asking.request is not None:
            self.asking.seen(time.monotonic())

    def _parts(self) -> Parts:
        now = time.time()
        width, paint = self.look.width, self.look.paint
        shown = self.editor.shown(width)
        status = status_line(self.snapshot, self._facts(), now, width)
        editor, cursor = [on_screen(row) for row in shown.rows], shown.cursor
        if self.editor.is_empty and self.menu is None:
            editor[0] += on_screen(paint.dim(self._hint()))
        question = self._question(width)
        return Parts(
            self.conversation.live(now),
            self._queue(width),
            [on_screen(row) for row in question],
            editor,
            cursor,
            [on_screen(row) for row in self._completions(width)],
            on_screen(paint.dim(status)),
        )

    def _facts(self) -> Facts:
        model = next((one.name for one in self.catalog.models), "")
        agent = next((one.name for one in self.catalog.agents), "")
        return Facts(model, agent, self.notes.away or self.notes.said)

    def _hint(self) -> str:
        if self.asking.typing is not None:
            return "your answer, then Enter"
        if self.asking.request is not None:
            return ""
        return "steer with Enter, queue with Alt-Enter" if self.is_busy else "what is to be done?"

    def _queue(self, width: int) -> list[str]:
        paint = self.look.paint
        rows = [
            cut(
                f"  ⏳ {'steers' if one.delivery == 'steer' else 'queued'}: {input_line(one)}",
                width,
            )
            for one in self.snapshot.queue
        ]
        more = [f"  … {len(rows) - QUEUED_SHOWN} more"] if len(rows) > QUEUED_SHOWN else []
        return [on_screen(paint.dim(row)) for row in [*rows[:QUEUED_SHOWN], *more]]

    def _question(self, width: int) -> list[str]:
        if self.menu is not None:
            return self.menu.rows(width, self.look.paint)
        if self.asking.request is None:
            return []
        return self._answers(self.asking.request, width)

    def _answers(self, request: Request, width: int) -> list[str]:
        paint = self.look.paint
        others = len(self.snapshot.requests) - 1
        head = f"? {one_line(request.title)}" + (f"  (and {others} more)" if others else "")
        rows = [paint.asking(cut(head, width))]
        for choice in choices(request):
            chosen = choice in (self.asking.chosen, self.asking.typing)
            row = cut(f"{'▸' if chosen else ' '} {choice.key}  {one_line(choice.label)}", width)
            rows.append(paint.bold(row + "  (Enter)") if chosen else row)
        rows.append(paint.dim(cut(f"  {self._how_to_answer()}", width)))
        return rows

    def _how_to_answer(self) -> str:
        if self.asking.typing is not None:
            return "type it, then Enter; Esc: back"
        if not self.editor.is_empty:
            return "to answer, first send or clear what you are writing"
        if self.asking.takes_keys(time.monotonic(), editor_is_empty=True):
            return "a letter chooses, Enter answers"
        return "…"

    def _completions(self, width: int) -> list[str]:
        state = self.editor.buffer.complete_state
        if state is None or not state.completions:
            return []
        paint = self.look.paint
        at = state.complete_index or 0
        first = max(0, min(at - COMPLETIONS_SHOWN // 2, len(state.completions) - COMPLETIONS_SHOWN))
        rows: list[str] = []
        for number, one in enumerate(state.completions[first : first + COMPLETIONS_SHOWN], first):
            detail = one_line(one.display_meta_text)
            row = cut(f"{GOES_ON}{one_line(one.display_text)}  {detail}".rstrip(), width)
            rows.append(paint.bold(row) if number == state.complete_index else paint.dim(row))
        return rows


async def run_chat(session_id: str) -> int:
    """Show sessions, one after another, until the user leaves."""
    descriptor = sys.stdout.fileno()
    painter = Painter(descriptor, os.environ)
    look = Look(painter.size[0] - 1, theme_for(os.environ))
    async with Client("tiller chat", places=my_places()) as client:
        while True:
            chat = Chat(client, session_id, painter, look, input_of(sys.stdin))
            await chat.run()
            if chat.next_session is None:
                break
            session_id = chat.next_session
    turn = "the turn goes on; " if chat.is_busy else ""
    say(f"{turn}to return: tiller chat {session_id[-SHORT_ID_CHARS:]}")
    return 0
