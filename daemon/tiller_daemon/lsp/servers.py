"""All language servers of the daemon. They start when a file is first changed; sessions share them.

Implements `tools.base.Diagnostics`. Whatever a server does, a turn waits for a limited time only.
"""

import stat
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import trio

from tiller_daemon.files.paths import text_of
from tiller_daemon.files.whole_files import SMALL_BYTES
from tiller_daemon.isolation import isolated
from tiller_daemon.lsp.definitions import (
    ServerDefinition,
    ServerMatch,
    find_servers,
    server_program,
)
from tiller_daemon.lsp.diagnostics import format_diagnostics, new_errors
from tiller_daemon.lsp.documents import Diagnostics
from tiller_daemon.lsp.messages import Diagnostic
from tiller_daemon.lsp.server_process import (
    LATE_S,
    Baseline,
    LanguageServerProcess,
    Launch,
    view_of,
)
from tiller_daemon.sandbox.base import CommandSandbox
from tiller_protocol.catalog import LanguageServerSummary

CHANGE_WAIT_S: Final = LATE_S
"""How long the result of a change waits for new diagnostics; most servers take 0.3 s."""

LATE_WAIT_S: Final = 0.3
"""The wait for a late server, which is probably still loading the project."""

REPORT_WAIT_S: Final = 20.0
"""How long a model's request for diagnostics waits: the first check of a large project is slow."""

FILES_MAX: Final = 10
"""Maximum number of files checked per change."""

FILE_BYTES_MAX: Final = 1024 * 1024
"""Largest file sent to a server; larger ones are usually generated."""

SERVERS_MAX: Final = 8
"""Maximum number of servers running at once; another one replaces the least recently used."""

CRASHES_MAX: Final = 3
CRASH_FORGOTTEN_S: Final = 600.0
"""After `CRASHES_MAX` crashes within this time, a server is not restarted until one is older."""

WARNING: Final = 2

CHECK_FAILED: Final = "It failed to check the file."

MakeSandbox = Callable[[], Awaitable[CommandSandbox | None]]
"""Makes the sandbox in which a server sees no more than the model's commands; None if there is no
sandbox."""


async def no_sandbox() -> None:
    """Make no sandbox; see `MakeSandbox`."""


class _ChangedFile(NamedTuple):
    """A file before a change, and its servers. The `text` of a missing file is empty."""

    path: Path
    text: str
    was_there: bool
    servers: tuple[LanguageServerProcess, ...]


class ChangeCheck:
    """Compares diagnostics before and after one change; see `tools.base.FileCheck`."""

    def __init__(
        self, workspace: Path, files: Sequence[_ChangedFile], nursery: trio.Nursery
    ) -> None:
        self._workspace = workspace
        self._files = files
        self._nursery = nursery
        self._reports: list[str] = []

    async def new_errors(self) -> str:
        """Return the errors that the change has caused, as text; empty if there are none."""
        async with trio.open_nursery() as nursery:
            for file in self._files:
                after = await _read(file.path)
                for server in file.servers:
                    nursery.start_soon(self._check, server, file, after)
        return "".join(f"\n\n{report}" for report in sorted(self._reports))

    async def _check(
        self, server: LanguageServerProcess, file: _ChangedFile, after: str | None
    ) -> None:
        if after is None:
            server.file_changed(file.path, None)
            return
        before = server.known(file.path, file.text)
        baseline = server.baseline(file.path, file.text)
        current: Diagnostics | None = None
        wait_s = LATE_WAIT_S if server.is_late else CHANGE_WAIT_S
        with trio.move_on_after(wait_s) as limit:
            current = await _check_change(server, file, baseline, after)
        if current is not None and baseline.diagnostics is not None:
            new = new_errors(baseline.diagnostics, baseline.text, current, after)
            self._report("New errors in", server, file, new)
            server.told(file.path, after, current)
            return
        shown = text_of(self._workspace, file.path)
        if limit.cancelled_caught:
            why = f"yet: {server.name} has not answered within {wait_s:g} s."
            server.is_late = True
            # Let the server finish, so that the next change gets its diagnostics sooner.
            self._nursery.start_soon(server.diagnostics, file.path, after)
        else:
            why = f"from {server.name}. {server.problem or CHECK_FAILED}"
        self._reports.append(f"(No diagnostics for {shown} {why})")
        if before is not None:
            late = new_errors(baseline.diagnostics or (), baseline.text, before, file.text)
            self._report("Errors before this change in", server, file, late)
            baseline.text, baseline.diagnostics = file.text, before

    def _report(
        self,
        what: str,
        server: LanguageServerProcess,
        file: _ChangedFile,
        errors: Sequence[Diagnostic],
    ) -> None:
        if errors:
            shown = text_of(self._workspace, file.path)
            self._reports.append(f"{what} {shown} ({server.name}):\n{format_diagnostics(errors)}")


class LanguageServers:
    """The servers of the current configuration. `run` owns the servers' tasks."""

    def __init__(
        self, definitions: Sequence[ServerDefinition], variables: Mapping[str, str], directory: Path
    ) -> None:
        """`variables` is the environment of each server, `directory` its working directory."""
        self._definitions = definitions
        self._variables = variables
        self._directory = directory
        self._search = variables.get("PATH", "")
        self._servers: dict[tuple[Path, str], LanguageServerProcess] = {}
        self._crashes: defaultdict[tuple[Path, str], deque[float]] = defaultdict(deque)
        self._nursery: trio.Nursery | None = None

    def configure(
        self, definitions: Sequence[ServerDefinition], variables: Mapping[str, str]
    ) -> None:
        """Apply a new configuration and end the servers that it changes or removes."""
        kept = {definition.name: definition for definition in definitions}
        for (_, name), server in list(self._servers.items()):
            if server.match.definition != kept.get(name):
                server.end()
        self._definitions, self._variables = definitions, variables

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Own the servers until cancelled, then end them and all their descendant processes."""
        async with trio.open_nursery() as self._nursery:
            task_status.started()
            await trio.sleep_forever()

    async def before_change(
        self, workspace: Path, files: Sequence[Path], make_sandbox: MakeSandbox = no_sandbox
    ) -> ChangeCheck | None:
        """Read files that are about to change; see `tools.base.Diagnostics`."""
        nursery, checked = self._nursery, list[_ChangedFile]()
        given = files[:FILES_MAX] if nursery else ()
        for path, servers in (await self._servers_for(given, workspace, make_sandbox)).items():
            if servers:
                text = await _read(path)
                checked.append(_ChangedFile(path, text or "", text is not None, servers))
        return ChangeCheck(workspace, checked, nursery) if nursery and checked else None

    async def report(
        self, workspace: Path, path: Path | None, make_sandbox: MakeSandbox = no_sandbox
    ) -> str:
        """Return the diagnostics of a file, or of all open files; see `tools.base.Diagnostics`."""
        targets: list[tuple[LanguageServerProcess, Path]] = []
        if path is not None:
            servers = (await self._servers_for((path,), workspace, make_sandbox))[path]
            targets += [(server, path) for server in servers]
            if not targets:
                end = path.suffix or path.name
                return f"There is no language server for {end} files: no diagnostics are available."
        else:
            opened = [
                document.path
                for server in self._servers.values()
                for document in server.documents
                if workspace in document.path.parents
            ]
            found = await self._servers_for(opened, workspace, make_sandbox)
            targets += [(server, file) for file, servers in found.items() for server in servers]
            if not targets:
                return "No file has been checked yet. Name one with `path`."
        lines: dict[Path, list[str]] = {file: [] for _, file in targets}
        async with trio.open_nursery() as nursery:
            for server, file in targets:
                nursery.start_soon(_check_file, server, file, workspace, lines[file])
        return "\n".join(line for file in sorted(lines) for line in sorted(lines[file]))

    def summaries(self) -> tuple[LanguageServerSummary, ...]:
        """Return, for each known server, whether it is installed, runs, or has failed."""
        return tuple(self._summary(definition) for definition in self._definitions)

    def _summary(self, definition: ServerDefinition) -> LanguageServerSummary:
        mine = [one for one in self._servers.values() if one.name == definition.name]
        return LanguageServerSummary(
            definition.name,
            tuple(sorted(set(definition.files.values()))),
            server_program(definition, self._search) or "",
            definition.configured,
            sum(one.was_up and not one.is_over for one in mine),
            next((one.problem for one in mine if one.problem), ""),
        )

    async def _servers_for(
        self, files: Sequence[Path], workspace: Path, make_sandbox: MakeSandbox
    ) -> dict[Path, tuple[LanguageServerProcess, ...]]:
        """Return the servers of each file; start those that do not run."""
        matches = {
            path: find_servers(self._definitions, path, workspace, self._search) for path in files
        }
        is_sandboxed = any(
            one.definition.is_sandboxed for found in matches.values() for one in found
        )
        sandbox = await make_sandbox() if is_sandboxed else None
        return {
            path: tuple(server for one in found if (server := self._server(one, sandbox)))
            for path, found in matches.items()
        }

    def _server(
        self, match: ServerMatch, sandbox: CommandSandbox | None
    ) -> LanguageServerProcess | None:
        key = (match.root, match.definition.name)
        sandbox = sandbox if match.definition.is_sandboxed else None
        if match.definition.is_sandboxed and not (sandbox or match.definition.configured):
            return None
        server, view = self._servers.get(key), view_of(sandbox)
        if server and server.is_usable:
            if server.launch.view == view:
                return server
            server.end()
        crashes = self._crashes[key]
        while crashes and crashes[0] < trio.current_time() - CRASH_FORGOTTEN_S:
            crashes.popleft()
        if len(crashes) >= CRASHES_MAX or self._nursery is None:
            return server  # it says why nothing is checked
        self._make_slot()
        launch = Launch(isolated(self._variables), self._directory, sandbox, view)
        server = self._servers[key] = LanguageServerProcess(match, launch)
        self._nursery.start_soon(self._run_server, key, server)
        return server

    async def _run_server(self, key: tuple[Path, str], server: LanguageServerProcess) -> None:
        await server.run()
        if server.problem:
            self._crashes[key].append(trio.current_time())

    def _make_slot(self) -> None:
        alive = [one for one in self._servers.values() if one.is_usable]
        if len(alive) >= SERVERS_MAX:
            min(alive, key=lambda one: one.used_at).end()
        # Failed servers stay, so that `summaries` can report their problems.
        gone = [key for key, one in self._servers.items() if one.is_over and not one.problem]
        for key in gone:
            del self._servers[key]


async def _check_change(
    server: LanguageServerProcess, file: _ChangedFile, baseline: Baseline, after: str
) -> Diagnostics | None:
    """Return the diagnostics of a changed file, and complete its `baseline`."""
    try:
        await _refresh(server, file.path)
        if baseline.diagnostics is None:
            # Check the old text first, so that errors already in it are not reported.
            baseline.diagnostics = await server.diagnostics(file.path, baseline.text)
    finally:
        # Even if the wait was cancelled, the server needs the new text.
        server.file_changed(file.path, after, created=not file.was_there)
    return await server.diagnostics(file.path, after)


async def _check_file(
    server: LanguageServerProcess, file: Path, workspace: Path, lines: list[str]
) -> None:
    text = await _read(file)
    shown = text_of(workspace, file)
    if text is None:
        server.file_changed(file, None)
        lines.append(f"{shown}: there is no text file with this name.")
        return
    current: Diagnostics | None = None
    with trio.move_on_after(REPORT_WAIT_S) as limit:
        await _refresh(server, file)
        current = await server.diagnostics(file, text, fresh=True)
    if limit.cancelled_caught:
        lines.append(f"{shown}: {server.name} has not answered within {REPORT_WAIT_S:g} s.")
        return
    if current is None:
        why = server.problem or CHECK_FAILED
        lines.append(f"{shown}: no diagnostics from {server.name}. {why}")
        return
    server.is_late = False
    server.told(file, text, current)
    if reported := [one for one in current if one.severity <= WARNING]:
        lines.append(f"{shown} ({server.name}):\n{format_diagnostics(reported)}")
    else:
        lines.append(f"{shown}: {server.name} found no problems.")


async def _refresh(server: LanguageServerProcess, but: Path) -> None:
    """Notify a server of open files, except `but`, that something else has changed."""
    for document in server.documents:
        if document.path == but:
            continue
        disk_state = _disk_state(document.path)
        if disk_state != document.disk_state or disk_state is None:
            document.disk_state = disk_state
            server.file_changed(document.path, await _read(document.path))


def _disk_state(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size


async def _read(path: Path) -> str | None:
    """Return the text of a file; `None` if the file is missing, too large or not text."""
    if (size := _size(path)) is None or size > FILE_BYTES_MAX:
        return None
    if size <= SMALL_BYTES:  # faster than passing it to a thread
        return _text(path)
    return await trio.to_thread.run_sync(_text, path, abandon_on_cancel=True)


def _text(path: Path) -> str | None:
    try:
        data = path.read_bytes()
    except OSError:
        return None
    return None if b"\0" in data else data.decode(errors="replace")


def _size(path: Path) -> int | None:
    try:
        status = path.lstat()
    except OSError:
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None
