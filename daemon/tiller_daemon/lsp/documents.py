"""The files that a server has open, and the diagnostics of each."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import trio

from tiller_daemon.lsp.messages import Diagnostic

OPEN_MAX: Final = 32
"""Maximum number of files that a server keeps open; of others it learns only our own changes."""

PUBLISH_DEBOUNCE_S: Final = 0.15
"""How long to wait for more published diagnostics: servers send syntax errors before types."""

Diagnostics = tuple[Diagnostic, ...]


class Document:
    """A file as a server knows it.

    `diagnostics` are those of the current `version`; they are valid once `checked` is set, and
    `None` if the server failed to provide them. `disk_state` is the modification time and size of
    the file on disk when it was last compared with `text`.
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
        """Replace the text; tasks that wait for the previous version stop waiting."""
        self.close()
        self.text = text
        self.version += 1
        self.diagnostics = None
        self.checked = trio.Event()
        self._published, self._publish_event = None, trio.Event()

    def close(self) -> None:
        """Wake all tasks that wait for this version."""
        self.checked.set()
        self._publish_event.set()

    def set_diagnostics(self, version: int, diagnostics: Diagnostics | None) -> None:
        """Store the diagnostics of `version`, unless the text has changed since."""
        if version == self.version:
            self.diagnostics = diagnostics
            self.checked.set()

    def publish(self, version: int | None, diagnostics: Diagnostics) -> None:
        """Store published diagnostics, unless they are of an older version."""
        if version is not None and version < self.version:
            return
        self._published = diagnostics
        self._publish_event.set()
        if self.checked.is_set():
            # Some servers publish again after a deeper analysis; the next report compares with it.
            self.diagnostics = diagnostics

    async def wait_published(self, version: int) -> Diagnostics | None:
        """Wait until the server has published diagnostics, and a moment for more."""
        await self._publish_event.wait()
        await trio.sleep(PUBLISH_DEBOUNCE_S)
        return self._published if version == self.version else None

    def did_open_params(self) -> dict[str, Any]:
        """The parameters of `textDocument/didOpen`."""
        item = {"uri": self.uri, "languageId": self.language}
        return {"textDocument": {**item, "version": self.version, "text": self.text}}

    def did_change_params(self) -> dict[str, Any]:
        """The parameters of `textDocument/didChange`: the full text, which every server accepts."""
        name = {"uri": self.uri, "version": self.version}
        return {"textDocument": name, "contentChanges": [{"text": self.text}]}

    def document_params(self) -> dict[str, Any]:
        """Parameters that only name the file."""
        return {"textDocument": {"uri": self.uri}}


class Documents:
    """The open files of one server, least recently used first."""

    def __init__(self) -> None:
        self._open: dict[Path, Document] = {}

    def __iter__(self) -> Iterator[Document]:
        return iter(tuple(self._open.values()))

    def get(self, path: Path) -> Document | None:
        """The file, if it is open; marks it as used."""
        if document := self._open.pop(path, None):
            self._open[path] = document
        return document

    def add(self, document: Document) -> Document | None:
        """Add a file; over `OPEN_MAX`, removes and returns the least recently used one."""
        self._open[document.path] = document
        if len(self._open) <= OPEN_MAX:
            return None
        return self.remove(next(iter(self._open)))

    def remove(self, path: Path) -> Document | None:
        """Remove a file; tasks that wait for it stop waiting."""
        if document := self._open.pop(path, None):
            document.close()
        return document
