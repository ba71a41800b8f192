"""The files that a server has open, and the diagnostics of each."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import trio

from tiller_daemon.lsp.messages import Diagnostic

OPEN_MAX: Final = 32
"""Maximum number of files that are open in a server. The server is notified of other files only
when a tool changes them."""

PUBLISH_DEBOUNCE_S: Final = 0.15
"""How long to wait for more diagnostics: servers publish syntax errors before type errors."""

EMPTY_DEBOUNCE_S: Final = 1.0
"""How long to wait for more after an empty list without a version: it may belong to an older text,
or to a first pass. typescript-language-server takes 0.5 s."""

Diagnostics = tuple[Diagnostic, ...]


class Document:
    """A file as a server knows it.

    `diagnostics` belong to the current `version` and are valid once `checked` is set; `None` then
    means that the server failed to provide them. `told` are the diagnostics of this text that were
    last reported to a model. `disk_state` is the modification time and size of the file on disk
    when the file was last compared with `text`.
    """

    def __init__(self, path: Path, language: str, text: str) -> None:
        self.path: Final = path
        self.uri: Final = path.as_uri()
        self.language: Final = language
        self.text = text
        self.version = 1
        self.diagnostics: Diagnostics | None = None
        self.checked = trio.Event()
        self.told: Diagnostics | None = None
        self.disk_state: tuple[int, int] | None = None
        self.has_versions = False
        """Whether the server has published diagnostics of this file with a version."""
        self._published: Diagnostics | None = None
        self._publish_event = trio.Event()

    def change(self, text: str) -> None:
        """Replace the text; tasks that wait for the previous version stop waiting."""
        self.close()
        if text != self.text:
            self.told = None
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
        """Store published diagnostics, unless they belong to an older version."""
        if version is None and self.has_versions and not diagnostics:
            return  # sent for a file that was closed, to remove its diagnostics from an editor
        if version is not None and version < self.version:
            return
        self.has_versions = self.has_versions or version is not None
        self._published = diagnostics
        self._publish_event.set()
        if self.checked.is_set():
            # Some servers publish again after a deeper analysis; the next report uses that result.
            self.diagnostics = diagnostics

    async def wait_published(self, version: int) -> Diagnostics | None:
        """Wait for published diagnostics, and briefly for more. None if the text has changed."""
        await self._publish_event.wait()
        if not self.has_versions:
            with trio.move_on_after(EMPTY_DEBOUNCE_S):
                while not self._published and version == self.version:
                    self._publish_event = trio.Event()
                    await self._publish_event.wait()
        await trio.sleep(PUBLISH_DEBOUNCE_S)
        return self._published if version == self.version else None

    def did_open_params(self) -> dict[str, Any]:
        """Return the parameters of `textDocument/didOpen`."""
        item = {"uri": self.uri, "languageId": self.language}
        return {"textDocument": {**item, "version": self.version, "text": self.text}}

    def did_change_params(self) -> dict[str, Any]:
        """Return the parameters of `textDocument/didChange`, with the full text of the file.

        Every server accepts full texts.
        """
        name = {"uri": self.uri, "version": self.version}
        return {"textDocument": name, "contentChanges": [{"text": self.text}]}

    def document_params(self) -> dict[str, Any]:
        """Return parameters that only name the file, as for `textDocument/didClose`."""
        return {"textDocument": {"uri": self.uri}}


class Documents:
    """The open files of one server, least recently used first."""

    def __init__(self) -> None:
        self._open: dict[Path, Document] = {}

    def __iter__(self) -> Iterator[Document]:
        return iter(tuple(self._open.values()))

    def get(self, path: Path) -> Document | None:
        """Return a file if it is open, and mark it as the most recently used."""
        if document := self._open.pop(path, None):
            self._open[path] = document
        return document

    def add(self, document: Document) -> Document | None:
        """Add a file. Beyond `OPEN_MAX` files, remove and return the least recently used one."""
        self._open[document.path] = document
        if len(self._open) <= OPEN_MAX:
            return None
        return self.remove(next(iter(self._open)))

    def remove(self, path: Path) -> Document | None:
        """Remove a file; tasks that wait for its diagnostics stop waiting."""
        if document := self._open.pop(path, None):
            document.close()
        return document
