"""The application: a board in one terminal, from its first frame until the user leaves."""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable, Sequence
from typing import Any

from prompt_toolkit.key_binding import KeyPress
from prompt_toolkit.keys import Keys

from tiller_client.api.for_asyncio import Client
from tiller_client.board.acting import Actor, run_here
from tiller_client.board.acts import Do
from tiller_client.board.frame import compose
from tiller_client.board.keys import close_request_if_gone, press
from tiller_client.board.opening import Opening
from tiller_client.board.sessions import Row
from tiller_client.chat.asking import SEEN_S_MIN
from tiller_client.chat.terminal.backdrop import kind_of
from tiller_client.chat.terminal.keyboard import LINE_BREAK, Keyboard
from tiller_client.chat.terminal.pace import Pace
from tiller_client.chat.terminal.painter import ASK
from tiller_client.chat.terminal.sequences import FOCUS_IN, FOCUS_OUT, LONE_ESC
from tiller_client.following.overview import FollowedHost
from tiller_client.program_status.changes import StatusChanges
from tiller_client.program_status.records import records_of_sessions
from tiller_client.program_status.report import is_wanted

NAME = "tiller board"
"""The name of this frontend."""

TICK_S = 1.0
"""Time between two frames if nothing happens, so that ages advance."""

NAMES = {
    Keys.Enter: "enter",
    Keys.Tab: "tab",
    Keys.Backspace: "backspace",
    LONE_ESC: "esc",
    Keys.BracketedPaste: "paste",
    Keys.Any: "paste",
}
"""The names of keys in `keys.py`, where they differ from prompt-toolkit's."""


class Board:
    """The board on the screen, until the user leaves it."""

    def __init__(self, opening: Opening, keyboard: Keyboard) -> None:
        self._state = opening.state
        self._opening = opening
        self._painter = opening.painter
        self._look = opening.look
        self._keyboard = keyboard
        self._pace = Pace(self.draw, self._seen)
        self._asked = ""
        """The request whose whole text is in the frame that was drawn last."""
        self._title = ""
        self._ended = asyncio.Event()
        self._actor: Actor | None = None
        self._is_lent = False
        self._after_escape = False
        self._failure: BaseException | None = None
        self._status = StatusChanges(is_wanted=is_wanted(os.environ))
        self._told: Sequence[Row] | None = None
        """The rows when the terminal was last told what the sessions do."""

    async def run(self, hosts: Sequence[FollowedHost]) -> None:
        """Show the board until the user leaves it."""
        loop = asyncio.get_running_loop()
        keyboard, pace = self._keyboard, self._pace
        keyboard.answered, keyboard.reported = pace.answered, self._reported
        for number, react in (
            (signal.SIGHUP, self._ended.set),
            (signal.SIGTERM, self._ended.set),
            (signal.SIGINT, lambda: None),  # is for the program that has the terminal
            (signal.SIGWINCH, pace.soon),
        ):
            loop.add_signal_handler(number, react)
        clients = {host.label: Client(NAME, places=host.pool.places) for host in hosts}
        by_label = {host.label: host for host in hosts}
        self._actor = Actor(self._state, by_label, clients, self._lend, pace.soon)

        def notify() -> None:
            with contextlib.suppress(RuntimeError):  # the loop has just ended
                loop.call_soon_threadsafe(pace.soon)

        self._opening.inbox.notify = notify
        loop.set_exception_handler(self._fail)
        tick = asyncio.create_task(self._tick())
        try:
            with keyboard.raw_mode(), keyboard.attach(self._read_keys):
                self._begin()
                await self._ended.wait()
                await pace.settle()
        finally:
            self._opening.inbox.notify = lambda: None
            tick.cancel()
            self._actor.end()
            pace.stop()
            self._painter.end(self._status.end())
            for client in clients.values():
                client.blocking.close()
        if self._failure is not None:
            raise self._failure

    def _fail(self, _loop: object, context: dict[str, Any]) -> None:
        """End the board after a defect, so that it is reported."""
        self._failure = context.get("exception") or RuntimeError(context["message"])
        self._ended.set()

    def draw(self) -> None:
        """Draw the state, unless another program has the terminal or it is too early."""
        if not self._painter.is_ours or not self._pace.may_draw():
            return
        state, painter, look = self._state, self._painter, self._look
        self._opening.inbox.move(state)
        close_request_if_gone(state)
        look.fit(painter)
        size = painter.size
        drawn = compose(state, size, time.time(), time.monotonic(), look.theme)
        self._pace.drawn()
        self._asked = drawn.asked
        ask = ASK if self._pace.asks else ""
        escapes = self._new_title() + self._new_status()
        written = painter.paint((), drawn.frame, size, escapes, ask)
        self._pace.written(asked=written and bool(ask))

    def _begin(self) -> None:
        """Take the terminal, at first or after another program had it."""
        self._opening.attention.key_came(time.monotonic())
        self._painter.begin()
        self._pace.begin()
        self.draw()

    def _new_title(self) -> str:
        """The escape that changes the window's title; empty if it stays."""
        asking = self._state.counts().get("needs_you", 0)
        title = f"{f'? {asking} · ' if asking else ''}tiller board"
        if title == self._title:
            return ""
        self._title = title
        return f"\x1b]2;{title}\x1b\\"

    def _new_status(self) -> str:
        """The escapes that tell the terminal what the sessions do; empty if nothing is new."""
        rows = self._state.rows
        if rows is self._told:
            return ""
        self._told = rows
        sessions = (one for host in self._state.sessions.values() for one in host.values())
        return self._status.update(records_of_sessions(sessions))

    def _seen(self) -> None:
        """Note that the last frame is on the screen, so that keys may answer its request."""
        asking = self._state.asking
        if asking.request is not None and asking.request.id == self._asked:
            asking.seen(time.monotonic())
            asyncio.get_running_loop().call_later(SEEN_S_MIN, self._pace.soon)

    def _reported(self, report: str) -> None:
        kind = kind_of(report)
        if kind is not None and self._look.follows_background:
            self._look.be(kind)
            self._pace.soon()

    def _read_keys(self) -> None:
        """Carry out the keys that have come."""
        keys = self._keyboard.read_keys()
        for key in keys:
            self._press(key)
        if self._keyboard.closed:
            self._ended.set()
        if keys:
            self._pace.key_came()
            self.draw()

    def _press(self, pressed: KeyPress) -> None:
        key, text = pressed.key, pressed.data
        is_alt, self._after_escape = self._after_escape, key is Keys.Escape
        if key in (FOCUS_IN, FOCUS_OUT):
            self._opening.attention.has_focus = key is FOCUS_IN
            return
        self._opening.attention.key_came(time.monotonic())
        if key is Keys.Escape or is_alt:  # no key with Alt does anything
            return
        if not isinstance(key, Keys):
            name, text = "text", key
        elif text == LINE_BREAK:
            name = "paste"
        else:
            name = NAMES.get(key, key.value)
        for act in press(self._state, name, text, time.monotonic()):
            if not isinstance(act, Do):
                assert self._actor is not None
                self._actor.start(act)
            elif act.what == "leave":
                self._ended.set()
            elif act.what == "redraw":
                self._painter.forget()
            else:
                asyncio.get_running_loop().create_task(self._suspend())

    async def _lend(self, command: Sequence[str]) -> int:
        """Run a command in the terminal, and draw everything anew afterwards."""
        return await self._give_away(lambda: run_here(command))

    async def _suspend(self) -> None:
        await self._give_away(lambda: os.kill(0, signal.SIGTSTP))

    async def _give_away(self, use: Callable[[], object]) -> int:
        if self._is_lent:
            return 0
        self._is_lent = True
        keyboard, painter = self._keyboard, self._painter
        await self._pace.settle()
        try:
            with keyboard.detach(), keyboard.cooked_mode():
                painter.end(self._status.end())
                painter.close_window()
                status = await asyncio.to_thread(use)
                painter.open_window()
        finally:
            self._is_lent = False
            self._title, self._told = "", None
        self._begin()
        return status if isinstance(status, int) else 0

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            self.draw()
