"""The state of one chat, which the screen draws and the actions change; `app` wires them."""

from collections.abc import Callable, Coroutine
from pathlib import Path

from tiller_client.chat.asking import Asking
from tiller_client.chat.completing import InputCompleter
from tiller_client.chat.conversation import Conversation
from tiller_client.chat.editor import Editor
from tiller_client.chat.files import WorkspaceFiles
from tiller_client.chat.menu import Menu
from tiller_client.chat.status import Notes
from tiller_client.rendering.text import one_line
from tiller_protocol.answers import CatalogResult
from tiller_protocol.snapshot import Snapshot, is_working


class ChatState:
    """What one chat knows, whatever shows it."""

    def __init__(
        self,
        conversation: Conversation,
        *,
        changed: Callable[[], None],
        leave: Callable[[], None],
        start: Callable[[Coroutine[object, object, None]], None],
    ) -> None:
        """`changed` is called when a frame is to be drawn, `leave` when the user leaves.

        `start` does something that takes longer than a key may take.
        """
        self.conversation = conversation
        self.changed = changed
        self.leave = leave
        self.start = start
        self.catalog = CatalogResult(models=(), tools=(), agents=())
        """The daemon's catalog; empty until it is loaded, and loaded anew for each menu."""
        self.files = WorkspaceFiles(Path(self.snapshot.workspace))
        self.editor = Editor(InputCompleter(self.files, lambda: self.catalog.commands))
        self.menu: Menu | None = None
        self.notes = Notes()
        self.asking = Asking()
        self.next_session: str | None = None
        """The session to open after this one."""

    @property
    def snapshot(self) -> Snapshot:
        """The session after the events so far."""
        return self.conversation.snapshot

    @property
    def session_id(self) -> str:
        """The id of the session."""
        return self.snapshot.session_id

    @property
    def is_busy(self) -> bool:
        """Whether a turn is running."""
        return is_working(self.snapshot)

    def say(self, text: str) -> None:
        """Show a sentence in the status line, until the next key."""
        self.notes.said = one_line(text)
        self.changed()

    def choose(self, menu: Menu) -> None:
        """Show a menu."""
        self.menu = menu
        self.changed()
