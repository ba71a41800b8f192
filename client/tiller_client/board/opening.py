"""Opens the window of a board and draws its first frame, before the import of what reads keys."""

import contextlib
import queue
import termios
import time
from collections.abc import Callable, Mapping

from tiller_client.board.frame import compose
from tiller_client.board.state import BoardState
from tiller_client.chat.terminal.abilities import follows_background, theme_for
from tiller_client.chat.terminal.look import Look
from tiller_client.chat.terminal.notifying import Attention
from tiller_client.chat.terminal.painter import Painter
from tiller_client.following.overview import News
from tiller_client.rendering.style import Kind

FIRST_S_MAX = 1.0
"""How long the first frame waits for the sessions: longer than a daemon takes that runs already."""


class Inbox:
    """The news that the board has not taken yet; any thread may put them."""

    def __init__(self) -> None:
        self.notify: Callable[[], object] = lambda: None
        """Called in the thread that puts news."""
        self._news: queue.SimpleQueue[News] = queue.SimpleQueue()

    def put(self, news: News) -> None:
        """Keep the news until they are taken."""
        self._news.put(news)
        self.notify()

    def move(self, state: BoardState, wait_s: float = 0.0) -> None:
        """Let the board take all news; without any, wait this long for the first."""
        with contextlib.suppress(queue.Empty):
            state.take(self._news.get(timeout=wait_s) if wait_s else self._news.get_nowait())
            while True:
                state.take(self._news.get_nowait())


class Opening:
    """A window with the first frame of a board, and the objects that draw the next ones."""

    def __init__(self, state: BoardState, environ: Mapping[str, str], descriptor: int) -> None:
        """Do not draw yet."""
        self.state = state
        self.inbox = Inbox()
        self.attention = Attention()
        self._descriptor = descriptor
        self.painter = Painter(descriptor, environ, fills=True)
        self.look = Look(self.painter.size[0] - 1, theme_for(environ))
        self.look.follows_background = follows_background(environ)

    def draw(self, kind: Kind | None) -> None:
        """Open the window, and draw the sessions unless they are late.

        `kind` is for the background of the terminal, if that is known.
        """
        if kind is not None:
            self.look.be(kind)
        self.painter.open_window()
        self.inbox.move(self.state, FIRST_S_MAX)
        # What was typed before is about nothing on the board.
        termios.tcflush(self._descriptor, termios.TCIFLUSH)
        self.look.fit(self.painter)
        size = self.painter.size
        drawn = compose(self.state, size, time.time(), time.monotonic(), self.look.theme)
        self.painter.paint((), drawn.frame, size)
