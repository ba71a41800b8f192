"""One language server for one root directory: start, open files, diagnostics, end.

All tasks of a server belong to the daemon. A turn only waits for events, so the turn can be
interrupted at any time.
"""

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import structlog
import trio
from msgspec import Raw

from tiller_daemon.isolation import set_inside
from tiller_daemon.lsp.definitions import ServerMatch
from tiller_daemon.lsp.documents import OPEN_MAX, Diagnostics, Document, Documents
from tiller_daemon.lsp.json_rpc import ConnectionLost, ErrorResponse, Handler, JsonRpcConnection
from tiller_daemon.lsp.messages import (
    CLIENT_CAPABILITIES,
    CONTENT_MODIFIED,
    SERVER_CANCELLED,
    ConfigurationParams,
    DocumentDiagnosticReport,
    InitializeResult,
    MalformedMessage,
    PublishDiagnosticsParams,
    RegistrationParams,
    decode,
    path_of,
    section_of,
)
from tiller_daemon.processes.command import CommandProblem
from tiller_daemon.processes.server_process import ServerProcess
from tiller_daemon.sandbox.base import CommandSandbox, SandboxError, SandboxProfile
from tiller_daemon.sandbox.known_paths import root_of

log = structlog.get_logger()

IDLE_S: Final = 600.0
"""How long a server may be idle before it is ended; some servers take 200 MiB."""

LATE_S: Final = 3.0
"""A server whose last check took longer is late; the start of the server does not count."""

RETRY_S: Final = 0.1
RETRIES_MAX: Final = 50
"""How often to repeat a request that a server has postponed, and the pause between attempts."""

FILE_CREATED: Final = 1
FILE_CHANGED: Final = 2
FILE_DELETED: Final = 3

_PULL: Final = "textDocument/diagnostic"


class View(NamedTuple):
    """What a server in a sandbox may see.

    A hidden file that is replaced, as editors do, is no longer hidden from a server that runs.
    """

    may: SandboxProfile
    hidden: tuple[int, ...]
    """The inodes of hidden files in visible directories."""


class Launch(NamedTuple):
    """How a server is started."""

    variables: Mapping[str, str]
    directory: Path
    sandbox: CommandSandbox | None = None
    view: View | None = None
    """What the server sees in its sandbox."""


def view_of(sandbox: CommandSandbox | None) -> View | None:
    """Return what a server that starts now sees in a sandbox."""
    if sandbox is None:
        return None
    may = sandbox.profile
    seen = (path for path in may.hidden if root_of(path, (may.workspace, *may.visible)))
    return View(may, tuple(map(_inode, seen)))


def _inode(path: Path) -> int:
    try:
        return path.lstat().st_ino
    except OSError:
        return 0


@dataclass
class Baseline:
    """A text of a file, and its diagnostics once they are known."""

    text: str
    diagnostics: Diagnostics | None


class LanguageServerProcess:
    """A running server. The daemon runs `run`, which returns when the server has ended."""

    def __init__(self, match: ServerMatch, launch: Launch) -> None:
        self.match: Final = match
        self.launch: Final = launch
        self.name: Final = match.definition.name
        self.documents: Final = Documents()
        self.was_up = False
        """Whether the server was ever ready."""
        self.is_late = False
        """Whether the last check took longer than `LATE_S`, or a turn has waited for it in vain.

        An answer to a model's request for diagnostics clears this.
        """
        self.unreported: Final[dict[Path, Baseline]] = {}
        """Per file, its state before the first change whose new errors are not reported yet."""
        self.is_over = False
        self.problem = ""
        """Why the server ended, as a sentence; empty after a normal end."""
        self.used_at = trio.current_time()
        self._ready = trio.Event()
        self._pulls = False
        self._connection: JsonRpcConnection | None = None
        self._nursery: trio.Nursery | None = None
        self._scope = trio.CancelScope()

    async def run(self) -> None:
        """Start the server. Return when it exits, is idle for `IDLE_S`, or `end` is called."""
        try:
            with self._scope:
                await self._serve()
        except (CommandProblem, SandboxError) as problem:
            self.problem = str(problem)
        except Exception as error:
            log.exception("language_server_crashed", server=self.name)
            self.problem = f"The daemon has a bug: {type(error).__name__}: {error}."
        finally:
            self.is_over, self._connection = True, None
            self._ready.set()
            self.unreported.clear()
            for document in self.documents:
                self.documents.remove(document.path)
        if self.problem:
            log.warning("language_server_ended", server=self.name, reason=self.problem)

    @property
    def is_usable(self) -> bool:
        """Whether the server is alive and `end` was not called."""
        return not self.is_over and not self._scope.cancel_called

    def end(self) -> None:
        """End the server in the background."""
        self._scope.cancel()

    def baseline(self, path: Path, before: str) -> Baseline:
        """Return the state of a file before its first unreported change, by default `before`."""
        if path not in self.unreported:
            if len(self.unreported) >= OPEN_MAX:
                del self.unreported[next(iter(self.unreported))]
            document = self.documents.get(path)
            told = document.told if document and document.text == before else None
            known = self.known(path, before) if told is None else told
            self.unreported[path] = Baseline(before, known)
        return self.unreported[path]

    def known(self, path: Path, text: str) -> Diagnostics | None:
        """Return the diagnostics of `text` if the server has already sent them."""
        if not text:
            return ()
        document = self.documents.get(path)
        return document.diagnostics if document and document.text == text else None

    def told(self, path: Path, text: str, diagnostics: Diagnostics) -> None:
        """Note that a model has been told the diagnostics of `text`."""
        self.unreported.pop(path, None)
        if (document := self.documents.get(path)) and document.text == text:
            document.told = diagnostics

    async def diagnostics(
        self, path: Path, text: str, *, fresh: bool = False
    ) -> Diagnostics | None:
        """Return the diagnostics of `text` in a file; `None` if the server can't provide them.

        With `fresh`, the server checks the file again even if the text has not changed.
        """
        self.used_at = trio.current_time()
        await self._ready.wait()
        if self._connection is None or self._nursery is None:
            return None
        document = self._sync(self._connection, self._nursery, path, text, fresh=fresh)
        version = document.version
        await document.checked.wait()
        return document.diagnostics if document.version == version else None

    def file_changed(self, path: Path, text: str | None, *, created: bool = False) -> None:
        """Notify the server that a file on disk has a new text, or is gone if `text` is `None`."""
        if self._connection is None or self._nursery is None:
            return
        how = FILE_DELETED if text is None else FILE_CREATED if created else FILE_CHANGED
        # Servers also cache files that are not open, such as imported modules.
        changes = [{"uri": path.as_uri(), "type": how}]
        self._connection.notify("workspace/didChangeWatchedFiles", {"changes": changes})
        if text is None:
            self._close(self.documents.remove(path))
        elif self.documents.get(path):
            self._sync(self._connection, self._nursery, path, text, fresh=False)

    async def _serve(self) -> None:
        definition = self.match.definition
        command = (self.match.program, *(definition.command or ())[1:])
        with ExitStack() as stack:
            service = self._start(command, stack)
            connection = JsonRpcConnection(self.name, service, self._handlers())
            try:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._initialize, connection, nursery)
                    nursery.start_soon(self._end_when_idle, nursery)
                    await connection.run()
                    self.problem = connection.end_reason()
                    nursery.cancel_scope.cancel()
            finally:
                await service.end()

    def _start(self, command: Sequence[str], stack: ExitStack) -> ServerProcess:
        variables, directory, sandbox, _ = self.launch
        if sandbox is None:
            return ServerProcess(command, directory, variables)
        inside, outside = set_inside(command, variables)
        wrapped = stack.enter_context(sandbox.wrap(inside))
        return ServerProcess(wrapped.arguments, directory, outside, wrapped.descriptors)

    async def _initialize(self, connection: JsonRpcConnection, nursery: trio.Nursery) -> None:
        definition, root = self.match.definition, self.match.root
        params = {
            # A server ends if it does not see this process, as in a sandbox.
            "processId": None if self.launch.sandbox else os.getpid(),
            "clientInfo": {"name": "tiller"},
            # Servers differ in which of these three they read.
            "rootUri": root.as_uri(),
            "rootPath": str(root),
            "workspaceFolders": self._folders(),
            "capabilities": CLIENT_CAPABILITIES,
            "initializationOptions": definition.initialization or None,
        }
        try:
            answer = await connection.request("initialize", params)
            capabilities = decode(answer, InitializeResult, "an `initialize` result").capabilities
        except ConnectionLost:
            return
        except (ErrorResponse, MalformedMessage) as error:
            reason = str(error).rstrip(".")
            connection.close(f"It could not be initialized: {reason}.")
            return
        self._pulls = self._pulls or capabilities.diagnostic_provider is not None
        connection.notify("initialized", {})
        # Some servers never request their settings and wait for this notification.
        connection.notify("workspace/didChangeConfiguration", {"settings": definition.settings})
        self._connection, self._nursery = connection, nursery
        self.was_up = True
        self._ready.set()
        log.info("language_server_up", server=self.name, root=str(root), pulls=self._pulls)

    async def _end_when_idle(self, nursery: trio.Nursery) -> None:
        while (until := self.used_at + IDLE_S) > trio.current_time():  # noqa: ASYNC110 - the end moves
            await trio.sleep_until(until)
        log.info("language_server_idle", server=self.name)
        nursery.cancel_scope.cancel()

    def _handlers(self) -> Mapping[str, Handler]:
        def acknowledge(_: Raw) -> None:
            """Accept the request without doing anything."""

        return {
            "workspace/configuration": self._settings,
            "workspace/workspaceFolders": lambda _: self._folders(),
            "client/registerCapability": self._register,
            "client/unregisterCapability": acknowledge,
            "window/workDoneProgress/create": acknowledge,
            "workspace/diagnostic/refresh": acknowledge,
            "workspace/semanticTokens/refresh": acknowledge,
            "workspace/inlayHint/refresh": acknowledge,
            "workspace/codeLens/refresh": acknowledge,
            "window/showMessageRequest": acknowledge,
            "window/showDocument": lambda _: {"success": False},
            "workspace/applyEdit": lambda _: {"applied": False},
            "textDocument/publishDiagnostics": self._published,
        }

    def _folders(self) -> list[dict[str, str]]:
        root = self.match.root
        return [{"uri": root.as_uri(), "name": root.name}]

    def _settings(self, params: Raw) -> list[Any]:
        requested = decode(params, ConfigurationParams, "a request for settings")
        return [section_of(self.match.definition.settings, one.section) for one in requested.items]

    def _register(self, params: Raw) -> None:
        registered = decode(params, RegistrationParams, "a registration").registrations
        if self._pulls or not any(one.method == _PULL for one in registered):
            return
        self._pulls = True
        if self._connection is not None and self._nursery is not None:
            # The open files still wait for published diagnostics, which may never come.
            for one in self.documents:
                self._nursery.start_soon(self._check, self._connection, one, one.version)

    def _published(self, params: Raw) -> None:
        published = decode(params, PublishDiagnosticsParams, "diagnostics")
        path = path_of(published.uri)
        for document in self.documents:
            if document.path == path:
                document.publish(published.version, published.diagnostics)

    def _sync(
        self,
        connection: JsonRpcConnection,
        nursery: trio.Nursery,
        path: Path,
        text: str,
        *,
        fresh: bool,
    ) -> Document:
        document = self.documents.get(path)
        if document is None:
            document = Document(path, self.match.definition.language_of(path) or "", text)
            self._close(self.documents.add(document))
            connection.notify("textDocument/didOpen", document.did_open_params())
        elif text == document.text and not (fresh and document.checked.is_set()):
            return document
        else:
            is_same = text == document.text
            document.change(text)
            if is_same and document.has_versions:
                # clangd sends nothing after a change that changes nothing. A server without
                # versions must not be treated like this: its diagnostics could be the old file's.
                connection.notify("textDocument/didClose", document.document_params())
                connection.notify("textDocument/didOpen", document.did_open_params())
            else:
                connection.notify("textDocument/didChange", document.did_change_params())
        nursery.start_soon(self._check, connection, document, document.version)
        return document

    def _close(self, document: Document | None) -> None:
        if document is not None and self._connection is not None:
            self._connection.notify("textDocument/didClose", document.document_params())

    async def _check(self, connection: JsonRpcConnection, document: Document, version: int) -> None:
        began = trio.current_time()
        if self._pulls:
            diagnostics = await self._pull(connection, document, version)
        else:
            diagnostics = await document.wait_published(version)
        document.set_diagnostics(version, diagnostics)
        if document.version == version:
            self.is_late = trio.current_time() - began > LATE_S

    async def _pull(
        self, connection: JsonRpcConnection, document: Document, version: int
    ) -> Diagnostics | None:
        for _ in range(RETRIES_MAX):
            try:
                answer = await connection.request(_PULL, document.document_params())
                return decode(answer, DocumentDiagnosticReport, "diagnostics").items
            except ConnectionLost:
                return None
            except MalformedMessage as problem:
                connection.close(str(problem))
                return None
            except ErrorResponse as error:
                postponed = error.code in (CONTENT_MODIFIED, SERVER_CANCELLED)
                if not postponed or document.version != version:
                    return None
            await trio.sleep(RETRY_S)
        return None
