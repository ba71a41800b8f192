"""One server for one directory: its start, what it is shown, its end.

All its tasks are the daemon's. A turn only waits for `settled` events, so it can leave at any time.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import structlog
import trio
from msgspec import Raw

from tiller_daemon.lsp.connection import Answer, Connection, Lost, Refused
from tiller_daemon.lsp.documents import OPEN_MAX, Diagnostics, Document, Documents
from tiller_daemon.lsp.messages import (
    CLIENT,
    CONTENT_MODIFIED,
    SERVER_CANCELLED,
    BadMessage,
    Initialized,
    Published,
    Registrations,
    Report,
    WantedSettings,
    decode,
    path_of,
    section_of,
)
from tiller_daemon.lsp.recipes import Found
from tiller_daemon.processes.command import CommandProblem
from tiller_daemon.processes.server_process import ServerProcess

log = structlog.get_logger()

IDLE_S: Final = 600.0
"""A server that nobody has asked for so long is ended: some take 200 MiB."""

AGAIN_S: Final = 0.1
AGAIN_MAX: Final = 50
"""How often a server that puts off its answer is asked again."""

FILE_CREATED: Final = 1
FILE_CHANGED: Final = 2
FILE_DELETED: Final = 3

_PULL: Final = "textDocument/diagnostic"


class Server:
    """A server that lives as long as `live` runs; `is_over` when it has gone, `problem` says why.

    `was_up` says whether it ever could be asked, `used_at` when it was asked last. It `is_late`
    when somebody has waited for it in vain. `untold` are files as they were before changes of which
    nobody was told yet what they broke.
    """

    def __init__(self, found: Found, variables: Mapping[str, str], directory: Path) -> None:
        self.found: Final = found
        self.name: Final = found.recipe.name
        self.documents: Final = Documents()
        self.was_up = False
        self.is_late = False
        self.untold: Final[dict[Path, str]] = {}
        self.is_over = False
        self.problem = ""
        self.used_at = trio.current_time()
        self._variables = variables
        self._directory = directory
        self._ready = trio.Event()
        self._pulls = False
        self._connection: Connection | None = None
        self._nursery: trio.Nursery | None = None
        self._life = trio.CancelScope()

    async def live(self) -> None:
        """Start the server and stay with it until it has gone, is idle or is ended."""
        try:
            with self._life:
                await self._serve()
        except CommandProblem as problem:
            self.problem = str(problem).rstrip(".")
        except Exception as error:
            log.exception("language_server_crashed", server=self.name)
            self.problem = f"a defect of the daemon: {type(error).__name__}: {error}"
        finally:
            self.is_over, self._connection = True, None
            self._ready.set()
            self.untold.clear()
            for document in self.documents:
                self.documents.remove(document.path)
        if self.problem:
            log.warning("language_server_ended", server=self.name, reason=self.problem)

    @property
    def is_of_use(self) -> bool:
        """Whether it lives, and was not told to end."""
        return not self.is_over and not self._life.cancel_called

    def end(self) -> None:
        """Begin to end it."""
        self._life.cancel()

    def owe(self, path: Path, before: str) -> str:
        """Note how a file was before a change; returns how it was when something was last told."""
        if len(self.untold) >= OPEN_MAX and path not in self.untold:
            del self.untold[next(iter(self.untold))]
        return self.untold.setdefault(path, before)

    async def diagnose(self, path: Path, text: str, *, fresh: bool = False) -> Diagnostics | None:
        """What is wrong in a file with that text; `None` if the server can't say.

        With `fresh` it has to look again though the text is the one that it knows.
        """
        self.used_at = trio.current_time()
        await self._ready.wait()
        if self._connection is None or self._nursery is None:
            return None
        document = self._show(self._connection, self._nursery, path, text, fresh=fresh)
        version = document.version
        await document.settled.wait()
        return document.found if document.version == version else None

    def tell(self, path: Path, text: str | None, *, created: bool = False) -> None:
        """Say that a file is another one on the disk now, or gone; nobody waits for this."""
        if self._connection is None or self._nursery is None:
            return
        how = FILE_DELETED if text is None else FILE_CREATED if created else FILE_CHANGED
        changes = [{"uri": path.as_uri(), "type": how}]
        self._connection.notify("workspace/didChangeWatchedFiles", {"changes": changes})
        if text is None:
            self._close(self.documents.remove(path))
        elif self.documents.get(path):
            self._show(self._connection, self._nursery, path, text, fresh=False)

    async def _serve(self) -> None:
        recipe = self.found.recipe
        command = (self.found.program, *recipe.command[1:])
        service = ServerProcess(command, self._directory, self._variables)
        connection = Connection(self.name, service, self._answers())
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._introduce, connection, nursery)
                nursery.start_soon(self._end_when_idle, nursery)
                await connection.run()
                self.problem = connection.how_it_ended()
                nursery.cancel_scope.cancel()
        finally:
            await service.end()

    async def _introduce(self, connection: Connection, nursery: trio.Nursery) -> None:
        recipe, root = self.found.recipe, self.found.root
        asked = {
            "processId": os.getpid(),
            "clientInfo": {"name": "tiller"},
            "rootUri": root.as_uri(),
            "rootPath": str(root),
            "workspaceFolders": self._folders(),
            "capabilities": CLIENT,
            "initializationOptions": recipe.initialization or None,
        }
        try:
            answer = await connection.request("initialize", asked)
            can = decode(answer, Initialized, "an introduction").capabilities
        except Lost:
            return
        except (Refused, BadMessage) as error:
            connection.end(f"it could not begin: {error}")
            return
        self._pulls = self._pulls or can.diagnostic_provider is not None
        connection.notify("initialized", {})
        connection.notify("workspace/didChangeConfiguration", {"settings": recipe.settings})
        self._connection, self._nursery = connection, nursery
        self.was_up = True
        self._ready.set()
        log.info("language_server_up", server=self.name, root=str(root), pulls=self._pulls)

    async def _end_when_idle(self, nursery: trio.Nursery) -> None:
        while (until := self.used_at + IDLE_S) > trio.current_time():  # noqa: ASYNC110 - put off
            await trio.sleep_until(until)
        log.info("language_server_idle", server=self.name)
        nursery.cancel_scope.cancel()

    def _answers(self) -> Mapping[str, Answer]:
        def nothing(_: Raw) -> None:
            """Take note."""

        return {
            "workspace/configuration": self._settings,
            "workspace/workspaceFolders": lambda _: self._folders(),
            "client/registerCapability": self._register,
            "client/unregisterCapability": nothing,
            "window/workDoneProgress/create": nothing,
            "workspace/diagnostic/refresh": nothing,
            "workspace/semanticTokens/refresh": nothing,
            "workspace/inlayHint/refresh": nothing,
            "workspace/codeLens/refresh": nothing,
            "window/showMessageRequest": nothing,
            "window/showDocument": lambda _: {"success": False},
            "workspace/applyEdit": lambda _: {"applied": False},
            "textDocument/publishDiagnostics": self._published,
        }

    def _folders(self) -> list[dict[str, str]]:
        root = self.found.root
        return [{"uri": root.as_uri(), "name": root.name}]

    def _settings(self, params: Raw) -> list[Any]:
        wanted = decode(params, WantedSettings, "a question for settings")
        return [section_of(self.found.recipe.settings, one.section) for one in wanted.items]

    def _register(self, params: Raw) -> None:
        registered = decode(params, Registrations, "a registration").registrations
        if self._pulls or not any(one.method == _PULL for one in registered):
            return
        self._pulls = True
        if self._connection is not None and self._nursery is not None:
            for one in self.documents:
                self._nursery.start_soon(self._look, self._connection, one, one.version)

    def _published(self, params: Raw) -> None:
        said = decode(params, Published, "diagnostics")
        path = path_of(said.uri)
        for document in self.documents:
            if document.path == path:
                document.published(said.version, said.diagnostics)

    def _show(
        self,
        connection: Connection,
        nursery: trio.Nursery,
        path: Path,
        text: str,
        *,
        fresh: bool,
    ) -> Document:
        document = self.documents.get(path)
        if document is None:
            document = Document(path, self.found.recipe.language_of(path) or "", text)
            self._close(self.documents.add(document))
            connection.notify("textDocument/didOpen", document.shown())
        elif text == document.text and not (fresh and document.settled.is_set()):
            return document
        else:
            document.change(text)
            connection.notify("textDocument/didChange", document.changed())
        nursery.start_soon(self._look, connection, document, document.version)
        return document

    def _close(self, document: Document | None) -> None:
        if document is not None and self._connection is not None:
            self._connection.notify("textDocument/didClose", document.named())

    async def _look(self, connection: Connection, document: Document, version: int) -> None:
        if self._pulls:
            found = await self._pull(connection, document, version)
        else:
            found = await document.until_published(version)
        document.settle(version, found)

    async def _pull(
        self, connection: Connection, document: Document, version: int
    ) -> Diagnostics | None:
        for _ in range(AGAIN_MAX):
            try:
                answer = await connection.request(_PULL, document.named())
                return decode(answer, Report, "diagnostics").items
            except Lost:
                return None
            except BadMessage as problem:
                connection.end(str(problem))
                return None
            except Refused as error:
                put_off = error.code in (CONTENT_MODIFIED, SERVER_CANCELLED)
                if not put_off or document.version != version:
                    return None
            await trio.sleep(AGAIN_S)
        return None
