"""The worktrees of this daemon: makes, lists, publishes, lands, removes and restores them."""

import os
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import structlog
import trio
from msgspec import structs

from tiller_daemon.config import Worktree
from tiller_daemon.processes.command import CommandProblem, run_command
from tiller_daemon.sandbox.base import CommandSandbox
from tiller_daemon.worktrees import landing, making, publishing, removing
from tiller_daemon.worktrees.git import GitFailed, Use, WorktreeProblem, git, git_inside
from tiller_daemon.worktrees.landing import How, Landed
from tiller_daemon.worktrees.making import Source, Wanted
from tiller_daemon.worktrees.records import Record, Records, State, exists, real

log = structlog.get_logger()

SCRIPT_S_MAX: Final = 1800.0
"""The longest time for `check` and `teardown`."""

MADE_BY_CHECK: Final = "; `check` has made them"

SCRIPT_OUTPUT_MAX: Final = 2000
"""How many bytes at the end of a script's output a message shows."""

PURGE_S: Final = 6 * 3600.0
"""How often to look for removed worktrees whose time is over."""


class Made(NamedTuple):
    """A worktree for a session."""

    record: Record
    workspace: Path
    """The session's workspace: the place in the worktree like the one in the checkout."""
    is_new: bool
    """Whether the worktree was made just now."""
    left: int
    """How many files have changes in the checkout that the worktree does not have."""


class Condition(NamedTuple):
    """How a worktree is."""

    is_there: bool
    ahead: int = 0
    """The number of commits that its base branch does not have."""
    changed: int = 0
    """The number of files with changes that are in no commit."""
    problem: str = ""
    """Why git can't tell, or why the branch was not moved; or empty."""


class Worktrees:
    """The worktrees. Work on one of them waits for other work on the same repository."""

    def __init__(
        self,
        records: Records,
        make_sandbox: Callable[[Path, Use], CommandSandbox | None],
        variables: Callable[[], Mapping[str, str]],
        new_id: Callable[[], str],
        time: Callable[[], float],
    ) -> None:
        """Use `make_sandbox` (which may block) for all that runs in a worktree."""
        self.records: Final = records
        self._make_sandbox: Final = make_sandbox
        self._variables: Final = variables
        self._new_id: Final = new_id
        self._time: Final = time
        self._locks: dict[str, trio.Lock] = {}
        self._changed: set[str] = set()
        self._noted = trio.Event()

    async def recover(self) -> None:
        """Finish or undo what was being done when the daemon died."""
        for record in self.records.all():
            try:
                if record.state == "making":
                    await making.recover(self.records, record)
                elif record.state == "removing":
                    removing.recover_removed(self.records, record)
                elif record.is_rebasing:
                    await landing.abort_rebase(self.records, self._sandbox, record)
            except (WorktreeProblem, OSError) as problem:
                log.warning("worktree_not_recovered", path=record.path, reason=str(problem))

    async def run(self) -> None:
        """Publish branches after turns, and delete removed worktrees after `KEPT_DAYS`."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._purge)
            while True:
                await self._noted.wait()
                self._noted = trio.Event()
                while self._changed:
                    if problem := await self.publish(self._changed.pop()):
                        log.warning("worktree_not_published", reason=problem)

    def turn_ended(self, workspace: str) -> None:
        """Note that a session may have made commits; `run` publishes them."""
        if self.records.around(real(workspace)):
            self._changed.add(workspace)
            self._noted.set()

    async def _purge(self) -> None:
        while True:
            for record in self.records.all():
                if record.state == "removed" and self.kept_until(record) < self._time():
                    await removing.purge(self.records, record)
            await trio.sleep(PURGE_S)

    async def make(self, workspace: Path, name: str, base: str, settings: Worktree) -> Made:
        """Return the worktree `name` of the repository around a workspace; make it if needed.

        Raises `WorktreeProblem`.
        """
        place = real(workspace)
        source = await making.find_source(place)
        head, around = "", self.records.around(place)
        if around:
            # A worktree is never made of another one, which would then have to stay.
            around = await self._published(around)
            head = around.published
            repository, checkout = Path(around.origin.repository), Path(around.origin.checkout)
            source = Source(repository, source.own, checkout, source.subdirectory)
        wanted = Wanted(
            name or f"tiller-{self._new_id()[-8:].lower()}",
            base or head,
            settings.directory or "",
            settings.copy,
        )
        async with self._lock(str(source.repository)):
            with _explained():
                return await self._make(source, wanted, around, base)

    async def _make(self, source: Source, wanted: Wanted, around: Record | None, base: str) -> Made:
        if record := await self._existing(source, wanted.name):
            if base:
                raise WorktreeProblem(
                    f"The worktree `{wanted.name}` exists already, so leave out the base."
                )
            return Made(record, _inside(record, source), is_new=False, left=0)
        record = await making.plan(source, wanted, self._new_id())
        if around and not base:
            origin = structs.replace(record.origin, base_branch=around.origin.base_branch)
            record = structs.replace(record, origin=origin)
        changed = await git(source.checkout, "status", "--porcelain", "-z")
        record = await making.make(self.records, record, source, wanted)
        left = len(landing.changed_paths(changed)) if not around else 0
        return Made(record, _inside(record, source), is_new=True, left=left)

    async def state_of(self, record: Record) -> Condition:
        """Return how a worktree is, after publishing its branch."""
        if record.state != "ready":
            return Condition(is_there=False)
        if not exists(record.path):
            return Condition(is_there=False, problem=f"{record.path} does not exist any more.")
        problem = ""
        try:
            record = await self._published(record)
        except WorktreeProblem as error:
            problem = str(error)
        try:
            status = await git_inside(self._sandbox, record.path, "status", "--porcelain", "-z")
            changed, ahead = len(landing.changed_paths(status)), ""
            if record.origin.base_branch and record.published != record.landed:
                span = f"refs/heads/{record.origin.base_branch}..{record.published}"
                ahead = await git(record.origin.repository, "rev-list", "--count", span)
        except GitFailed as error:
            return Condition(is_there=True, problem=problem or str(error))
        return Condition(is_there=True, ahead=int(ahead or 0), changed=changed, problem=problem)

    async def publish(self, workspace: str) -> str:
        """Publish the branch of the worktree around a workspace; return what prevents that."""
        record = self.records.around(real(workspace))
        if record is None:
            return ""
        try:
            await self._published(record)
        except WorktreeProblem as problem:
            return str(problem)
        return ""

    async def describe(self, workspace: str) -> str:
        """Return a line about the branch of a worktree after publishing it, for a model."""
        record = self.records.around(real(workspace))
        if record is None:
            return ""
        state = await self.state_of(record)
        now = self.find(record.id)
        parts = [f"[worktree {now.path}: branch `{now.name}`, commit {now.published}"]
        parts += [f"{state.ahead} new commits"] if state.ahead else ["no new commits"]
        parts += [f"{state.changed} files with changes in no commit"] if state.changed else []
        return f"{', '.join(parts)}]"

    async def land(self, record: Record, how: How, onto: str, settings: Worktree) -> Landed:
        """Land a worktree; raises `Conflict` or `WorktreeProblem`, and then nothing has changed."""
        async with self._held(record) as record:
            if not exists(record.path):
                raise WorktreeProblem(
                    f"{record.path} does not exist any more. Merge the branch `{record.name}`, "
                    f"which has its last published commit, or: tiller worktree rm {record.name}"
                )
            target = await landing.check_landable(self._sandbox, record, onto)
            try:
                if settings.check:
                    if how != "rebase":  # a long check is for nothing if there are conflicts
                        record = await landing.check_fits(
                            self.records, self._sandbox, record, target
                        )
                    record = await self._check(record, settings.check)
                    if how == "rebase":
                        await landing.check_clean(self._sandbox, record, MADE_BY_CHECK)
                return await landing.land(self.records, self._sandbox, record, how, target)
            except landing.Conflict as conflict:
                await landing.show_target(self._sandbox, record, conflict.onto)
                raise

    async def remove(self, record: Record, settings: Worktree, *, force: bool) -> Record:
        """Remove a worktree; raises `WorktreeProblem`."""
        async with self._held(record) as record:
            if not exists(record.path):
                await removing.forget(self.records, record)
                return record
            try:
                record = await publishing.publish(self.records, self._sandbox, record)
                if not force:
                    await removing.check_removable(self._sandbox, record)
                if settings.teardown:
                    await self._run_script(record, settings.teardown, "teardown")
            except WorktreeProblem:
                if not force:
                    raise
            return await removing.remove(self.records, record, self._time())

    async def drop_if_untouched(self, workspace: str) -> bool:
        """Delete a worktree for good if nothing was done there; return whether it is gone."""
        record = self.records.around(real(workspace))
        if record is None:
            return False
        try:
            async with self._held(record) as record:
                record = await publishing.publish(self.records, self._sandbox, record)
                if not await removing.is_untouched(self._sandbox, record):
                    return False
                removed = await removing.remove(self.records, record, self._time())
                await removing.purge(self.records, removed)
        except WorktreeProblem as problem:
            log.warning("worktree_not_dropped", path=workspace, reason=str(problem))
            return False
        return True

    async def restore(self, record: Record) -> Record:
        """Put a removed worktree back; raises `WorktreeProblem`."""
        async with self._held(record, "removed") as record:
            return await removing.restore(self.records, record)

    @staticmethod
    def kept_until(record: Record) -> float:
        """Return until when a removed worktree can be restored, in Unix seconds."""
        return record.removed_at + removing.KEPT_DAYS * removing.DAY_S

    def find(self, record_id: str) -> Record:
        """Return the worktree with this id; raises `WorktreeProblem`."""
        found = next((one for one in self.records.all() if one.id == record_id), None)
        if found is None:
            raise WorktreeProblem(f"There is no worktree {record_id}; see: tiller worktree ls")
        return found

    async def _existing(self, source: Source, name: str) -> Record | None:
        of_repository = (
            one for one in self.records.all() if one.origin.repository == str(source.repository)
        )
        found = next((one for one in of_repository if one.name == name), None)
        if found is None:
            return None
        if found.state == "removed":
            raise WorktreeProblem(
                f"The worktree `{name}` was removed. To restore it: tiller worktree restore {name}"
            )
        if not exists(found.path):
            # Somebody has deleted the directory; the branch has what was published.
            await removing.forget(self.records, found)
            return None
        if found.state == "making":  # git refused when the daemon started, and may do so again
            return await making.finish(self.records, found)
        return found

    async def _published(self, record: Record) -> Record:
        async with self._held(record) as record:
            return await publishing.publish(self.records, self._sandbox, record)

    async def _check(self, record: Record, script: str) -> Record:
        """Run the check of a worktree, and note what it leaves there; raises `WorktreeProblem`."""
        before = {*await landing.loose_files(self._sandbox, record)} - {*record.by_check}
        failure = None
        try:
            await self._run_script(record, script, "check")
        except WorktreeProblem as problem:
            failure = problem
        after = await landing.loose_files(self._sandbox, record)
        left = tuple(name for name in after if name not in before)
        record = structs.replace(record, by_check=left)
        self.records.put(record)
        if failure:
            raise failure
        return record

    async def _run_script(self, record: Record, script: str, name: str) -> None:
        output = bytearray()

        async def receive(piece: bytes) -> None:
            output.extend(piece)
            del output[:-SCRIPT_OUTPUT_MAX]

        try:
            end = await run_command(
                ("/bin/bash", "-c", script),
                directory=Path(record.path),
                variables=self._variables(),
                receive=receive,
                timeout_s=SCRIPT_S_MAX,
                secrets=(),
                sandbox=await self._sandbox(Path(record.path), "script"),
            )
        except CommandProblem as problem:
            raise WorktreeProblem(f"`{name}` could not run: {problem}") from problem
        if end.status:
            said = output.decode(errors="replace").strip()
            raise WorktreeProblem(
                f"`{name}` ({script}) ended with status {end.status}. Nothing has changed.\n{said}"
            )

    async def _sandbox(self, place: Path, use: Use) -> CommandSandbox | None:
        return await trio.to_thread.run_sync(self._make_sandbox, place, use)

    @asynccontextmanager
    async def _held(self, record: Record, state: State = "ready") -> AsyncGenerator[Record]:
        """Keep other work on a worktree's repository away; yield the record as it is then.

        Raises `WorktreeProblem` if the worktree is in another state.
        """
        async with self._lock(record.origin.repository):
            now = self.find(record.id)
            if now.state != state:
                how = "was removed" if now.state == "removed" else "is there already"
                raise WorktreeProblem(f"The worktree `{record.name}` {how}.")
            with _explained():
                yield now

    def _lock(self, repository: str) -> trio.Lock:
        return self._locks.setdefault(repository, trio.Lock())


@contextmanager
def _explained() -> Generator[None]:
    """Turn an `OSError`, such as that of a full disk, into a `WorktreeProblem`."""
    try:
        yield
    except OSError as error:
        raise WorktreeProblem(f"{error.filename or 'A file'}: {error.strerror}.") from error


def _inside(record: Record, source: Source) -> Path:
    """Return the workspace in a worktree; its top if the commit lacks the subdirectory."""
    place = Path(os.path.normpath(Path(record.path) / source.subdirectory))
    is_fine = place.is_dir() and os.path.realpath(place) == str(place)
    return place if is_fine else Path(record.path)
