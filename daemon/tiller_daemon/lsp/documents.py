"""The files that a server is shown, and what it has found in each."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import trio

from tiller_daemon.lsp.messages import Diagnostic

OPEN_MAX: Final = 32
"""How many files a server keeps open; it is told of no changes in others but those we make."""

PUBLISH_DEBOUNCE_S: Final = 0.15
"""How long after what a server said by itself it may say more: syntax first, then types."""

Diagnostics = tuple[Diagnostic, ...]


class Document:
    """A file as a server knows it. `diagnostics` is what is wrong with this `version`, once known.

    `disk_state` says of which state of the disk the text is: time and size.
    """

    def __init__(self, path: Path, language: str, text: str) -> None:
        self.path: Final = path
        self.uri: Final = path.as_uri()
        self.language: Final = language
        self.text = text
        self.version = 1
        self.diagnostics: Diagnostics | None = None
        self.checked = trio.Event()
        self.disk_state: tuple[int, int] | None = None
        self._published: Diagnostics | None = None
        self._publish_event = trio.Event()

    def change(self, text: str) -> None:
        """Make another text the file's; whoever waits for the one before waits no more."""
        self.close()
        self.text = text
        self.version += 1
        self.diagnostics = None
        self.checked = trio.Event()
        self._published, self._publish_event = None, trio.Event()

    def close(self) -> None:
        """Let whoever waits wait no more."""
        self.checked.set()
        self._publish_event.set()

    def set_diagnostics(self, version: int, diagnostics: Diagnostics | None) -> None:
        """Note what was found in that version, if it is still this one."""
        if version == self.version:
            self.diagnostics = diagnostics
            self.checked.set()

    def publish(self, version: int | None, diagnostics: Diagnostics) -> None:
        """Note what the server says by itself; of an older version it is of no use."""
        if version is not None and version < self.version:
            return
        self._published = diagnostics
        self._publish_event.set()
        if self.checked.is_set():
            self.diagnostics = diagnostics

    async def wait_published(self, version: int) -> Diagnostics | None:
        """Wait for what the server says of that version, and a moment for more."""
        await self._publish_event.wait()
        await trio.sleep(PUBLISH_DEBOUNCE_S)
        return self._published if version == self.version else None

    def did_open_params(self) -> dict[str, Any]:
        """The file as it is opened."""
        item = {"uri": self.uri, "languageId": self.language}
        return {"textDocument": {**item, "version": self.version, "text": self.text}}

    def did_change_params(self) -> dict[str, Any]:
        """The file as it is changed: as a whole, which every server takes."""
        name = {"uri": self.uri, "version": self.version}
        return {"textDocument": name, "contentChanges": [{"text": self.text}]}

    def document_params(self) -> dict[str, Any]:
        """The file by its name alone."""
        return {"textDocument": {"uri": self.uri}}


class Documents:
    """The open files of one server, the one that was used last at the end."""

    def __init__(self) -> None:
        self._open: dict[Path, Document] = {}

    def __iter__(self) -> Iterator[Document]:
        return iter(tuple(self._open.values()))

    def get(self, path: Path) -> Document | None:
        """The file, if it is open; it is the one that was used last."""
        if document := self._open.pop(path, None):
            self._open[path] = document
        return document

    def add(self, document: Document) -> Document | None:
        """Take a file; returns the one that is to be closed for it."""
        self._open[document.path] = document
        if len(self._open) <= OPEN_MAX:
            return None
        return self.remove(next(iter(self._open)))

    def remove(self, path: Path) -> Document | None:
        """Let go of a file; whoever waits for it waits no more."""
        if document := self._open.pop(path, None):
            document.close()
        return document
