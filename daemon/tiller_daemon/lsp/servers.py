"""All language servers of the daemon: started when a file of theirs changes, shared by sessions.

Implements the sessions' `Diagnostics`. Whatever a server does, a turn waits for it only so long.
"""

import stat
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import trio

from tiller_daemon.files.paths import printable
from tiller_daemon.files.whole_files import SMALL_BYTES
from tiller_daemon.lsp.documents import Diagnostics
from tiller_daemon.lsp.messages import Diagnostic
from tiller_daemon.lsp.recipes import Found, Recipe, find_program, find_servers
from tiller_daemon.lsp.report import listing, new_errors
from tiller_daemon.lsp.server import Server
from tiller_protocol.answers import LanguageServerSummary

CHANGE_S: Final = 3.0
"""How long the result of a change waits for what is wrong now; most servers take 0.3 s."""

LATE_S: Final = 0.3
"""The same while a server still owes what it did not say in time before."""

LOOK_S: Final = 20.0
"""How long it may take when a model asks: a server that looks at a large project for the first time
takes so long."""

FILES_MAX: Final = 10
"""How many files of one change are looked at."""

FILE_BYTES_MAX: Final = 1024 * 1024
"""The largest file that a server is shown; larger ones are made by programs."""

SERVERS_MAX: Final = 8
"""How many servers run at the same time; for another one that is unused the longest is ended."""

CRASHES_MAX: Final = 3
CRASH_FORGOTTEN_S: Final = 600.0
"""A server that has died so often in so long is not started again until they are over."""

WARNING: Final = 2


class _File(NamedTuple):
    """A file before a change: its text, `None` if it was not there, and who looks at it."""

    path: Path
    text: str
    was_there: bool
    servers: tuple[Server, ...]


class Check:
    """The files of one change; see `tools.base.FileCheck`."""

    def __init__(self, workspace: Path, files: Sequence[_File], nursery: trio.Nursery) -> None:
        self._workspace = workspace
        self._files = files
        self._nursery = nursery
        self._said: list[str] = []

    async def new_errors(self) -> str:
        """What is wrong now and was not before; empty when that is nothing."""
        async with trio.open_nursery() as nursery:
            for file in self._files:
                after = await _read(file.path)
                for server in file.servers:
                    nursery.start_soon(self._look, server, file, after)
        return "".join(f"\n\n{said}" for said in sorted(self._said))

    async def _look(self, server: Server, file: _File, after: str | None) -> None:
        if after is None:
            server.tell(file.path, None)
            return
        shown = _shown(file.path, self._workspace)
        with trio.move_on_after(LATE_S if server.is_late else CHANGE_S) as limit:
            if new := await _news(server, file, after):
                self._said.append(f"New errors in {shown} ({server.name}):\n{listing(new)}")
        if limit.cancelled_caught:
            if not server.is_late:
                why = f"{server.name} has not answered within {CHANGE_S:g} s"
                self._said.append(f"(No diagnostics of {shown} yet: {why}.)")
            server.is_late = True
            self._nursery.start_soon(server.diagnose, file.path, after)


class LanguageServers:
    """The servers of one configuration. `run` owns their tasks."""

    def __init__(
        self, recipes: Sequence[Recipe], variables: Mapping[str, str], directory: Path
    ) -> None:
        """`variables` is the environment of a server, `directory` where it is started."""
        self._recipes = recipes
        self._variables = variables
        self._directory = directory
        self._search = variables.get("PATH", "")
        self._servers: dict[tuple[Path, str], Server] = {}
        self._crashes: defaultdict[tuple[Path, str], deque[float]] = defaultdict(deque)
        self._nursery: trio.Nursery | None = None

    def configure(self, recipes: Sequence[Recipe], variables: Mapping[str, str]) -> None:
        """Take over another configuration; servers that it changes are ended."""
        kept = {recipe.name: recipe for recipe in recipes}
        for (_, name), server in list(self._servers.items()):
            if server.found.recipe != kept.get(name):
                server.end()
        self._recipes, self._variables = recipes, variables

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Own the servers until cancelled; then they are ended, with all that they started."""
        async with trio.open_nursery() as self._nursery:
            task_status.started()
            await trio.sleep_forever()

    async def before_change(self, workspace: Path, files: Sequence[Path]) -> Check | None:
        """Look at files that are about to change; see `tools.base.Diagnostics`."""
        nursery, looked_at = self._nursery, list[_File]()
        for path in files[:FILES_MAX] if nursery else ():
            if servers := self._servers_for(path, workspace):
                text = await _read(path)
                looked_at.append(_File(path, text or "", text is not None, servers))
        return Check(workspace, looked_at, nursery) if nursery and looked_at else None

    async def all_of(self, workspace: Path, path: Path | None) -> str:
        """What is wrong in a file, or in all that are open; see `tools.base.Diagnostics`."""
        wanted: list[tuple[Server, Path]] = []
        if path is not None:
            wanted += [(server, path) for server in self._servers_for(path, workspace)]
            if not wanted:
                end = path.suffix or path.name
                return f"There is no language server for {end} files here, so nothing is known."
        else:
            wanted += [
                (server, document.path)
                for server in self._servers.values()
                for document in server.documents
                if workspace in document.path.parents
            ]
            if not wanted:
                return "No file was looked at yet. Name one by `path`."
        said: dict[Path, list[str]] = {file: [] for _, file in wanted}
        async with trio.open_nursery() as nursery:
            for server, file in wanted:
                nursery.start_soon(_look_at, server, file, workspace, said[file])
        return "\n".join(line for file in sorted(said) for line in sorted(said[file]))

    def summaries(self) -> tuple[LanguageServerSummary, ...]:
        """Every server that may be started, whether it is there, and how it is."""
        return tuple(self._summary(recipe) for recipe in self._recipes)

    def _summary(self, recipe: Recipe) -> LanguageServerSummary:
        mine = [one for one in self._servers.values() if one.name == recipe.name]
        return LanguageServerSummary(
            recipe.name,
            tuple(sorted(set(recipe.files.values()))),
            find_program(recipe, self._search) or "",
            recipe.chosen,
            sum(one.was_up and not one.is_over for one in mine),
            next((one.problem for one in mine if one.problem), ""),
        )

    def _servers_for(self, path: Path, workspace: Path) -> tuple[Server, ...]:
        found = find_servers(self._recipes, path, workspace, self._search)
        servers = [server for one in found if (server := self._server(one))]
        return tuple(servers)

    def _server(self, found: Found) -> Server | None:
        key = (found.root, found.recipe.name)
        server = self._servers.get(key)
        if server and server.is_of_use:
            return server
        crashes = self._crashes[key]
        while crashes and crashes[0] < trio.current_time() - CRASH_FORGOTTEN_S:
            crashes.popleft()
        if len(crashes) >= CRASHES_MAX or self._nursery is None:
            return None
        self._make_room()
        server = self._servers[key] = Server(found, self._variables, self._directory)
        self._nursery.start_soon(self._live, key, server)
        return server

    async def _live(self, key: tuple[Path, str], server: Server) -> None:
        await server.live()
        if server.problem:
            self._crashes[key].append(trio.current_time())

    def _make_room(self) -> None:
        alive = [one for one in self._servers.values() if one.is_of_use]
        if len(alive) >= SERVERS_MAX:
            min(alive, key=lambda one: one.used_at).end()
        gone = [key for key, one in self._servers.items() if one.is_over and not one.problem]
        for key in gone:
            del self._servers[key]


async def _news(server: Server, file: _File, after: str) -> list[Diagnostic] | None:
    """The errors that a change has made, by what was last told; `None` if nobody can say."""
    before = server.owe(file.path, file.text)
    known: Diagnostics | None = ()
    try:
        await _refresh(server, file.path)
        if before:
            known = await server.diagnose(file.path, before)
    finally:
        server.tell(file.path, after, created=not file.was_there)
    found = await server.diagnose(file.path, after)
    if known is None or found is None:
        return None
    server.is_late = False
    server.untold.pop(file.path, None)
    return new_errors(known, before, found, after)


async def _look_at(server: Server, file: Path, workspace: Path, said: list[str]) -> None:
    text = await _read(file)
    shown = _shown(file, workspace)
    if text is None:
        server.tell(file, None)
        said.append(f"{shown}: there is no such text file.")
        return
    found: Diagnostics | None = None
    with trio.move_on_after(LOOK_S) as limit:
        await _refresh(server, file)
        found = await server.diagnose(file, text, fresh=True)
    if limit.cancelled_caught:
        said.append(f"{shown}: {server.name} has not answered within {LOOK_S:g} s.")
    elif found is None:
        why = server.problem or "it could not say"
        said.append(f"{shown}: nothing is known from {server.name}: {why}.")
    elif told := [one for one in found if one.severity <= WARNING]:
        said.append(f"{shown} ({server.name}):\n{listing(told)}")
    else:
        said.append(f"{shown}: nothing found by {server.name}.")


async def _refresh(server: Server, but: Path) -> None:
    """Tell a server of open files that others have changed since, such as a command."""
    for document in server.documents:
        if document.path == but:
            continue
        stamp = _stamp(document.path)
        if stamp != document.stamp or stamp is None:
            document.stamp = stamp
            server.tell(document.path, await _read(document.path))


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


async def _read(path: Path) -> str | None:
    """The text of a file; `None` when it is not there, too large or no text."""
    if (size := _size(path)) is None or size > FILE_BYTES_MAX:
        return None
    if size <= SMALL_BYTES:
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
        found = path.lstat()
    except OSError:
        return None
    return found.st_size if stat.S_ISREG(found.st_mode) else None


def _shown(path: Path, workspace: Path) -> str:
    inside = path.is_relative_to(workspace)
    return printable(path.relative_to(workspace) if inside else path)
