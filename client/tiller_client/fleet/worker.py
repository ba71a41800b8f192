"""Does the tasks of the fleet on this host, each in a session with a worktree of its own.

Every submission has an id that is made from the attempt's, so the daemon executes it once. If the
gateway is killed, `work` is called again for the same attempt, and finds all that was done.
"""

import asyncio
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from tiller_client.api.for_asyncio import Client
from tiller_client.connecting.runtime import has_crashed, is_running
from tiller_client.errors import RejectedError, TillerError
from tiller_client.fleet.broker import Broker
from tiller_client.fleet.dispatcher import Confirm
from tiller_client.fleet.guard import Guard
from tiller_client.fleet.objects import put_object
from tiller_client.fleet.publisher import Publisher
from tiller_client.fleet.records import Report, Task, TaskSpec
from tiller_client.fleet.repositories import Repositories, RepositoryProblem
from tiller_protocol.answers import Created, ReplayResult, SessionDiffResult, SessionListResult
from tiller_protocol.events import Event, TurnEnded
from tiller_protocol.ops import (
    Interrupt,
    Replay,
    SessionCreate,
    SessionDiff,
    TurnContinue,
    UserInput,
)
from tiller_protocol.sessions import SessionList
from tiller_protocol.settings import Rule, Settings
from tiller_protocol.snapshot import SessionSummary
from tiller_protocol.worktrees import (
    WorktreeChoice,
    WorktreeList,
    WorktreeListResult,
    WorktreeRemove,
    WorktreeSummary,
)

LOOK_S = 2.0
"""Longest time between two looks at a session; its events wake the worker at once."""

RETRY_S = 2.0

CONTINUES_MAX = 3
"""How often a turn is continued that the end of its daemon has cut off."""

DAEMON_STOPPED = "daemon_stopped"
"""The code of a turn's error if its daemon stopped."""

STOPPED = "no daemon is running; start one with: tiller daemon start"

PASSING = ("overloaded", "unavailable", "shutting_down", "internal")
"""Codes of rejections after which the same submission may be accepted later."""

TRIES = 3
"""After so many refusals, an attempt is given up."""

NOT_STARTED = Report("not_started")

TAIL = 100
"""How many of a session's last events are searched for the end of its turn."""

FLUSH_S = 30.0
"""How long to wait until all events are in the broker before a task's end is reported."""

MESSAGE_CHARS_MAX = 2000

IN_SANDBOX = (Rule("bash", "*", "allow"),)
"""Lets commands run without questions, but only in the sandbox and in the session's worktree: to
leave the sandbox needs another permission."""


class SessionGone(TillerError):
    """Somebody has deleted a task's session."""


REFUSALS = (RejectedError, RepositoryProblem, SessionGone)
"""What may be final, but can also come from a server of git that is down for a moment."""


class _Begun(NamedTuple):
    """An attempt whose input was submitted."""

    clone: Path
    """The clone of its repository."""
    commit: str
    """What its branch begins at."""
    session_id: str


class SessionWorker:
    """Does tasks with sessions of the daemon on this host."""

    def __init__(
        self,
        client: Client,
        broker: Broker,
        publisher: Publisher,
        repositories: Repositories,
        guard: Guard,
    ) -> None:
        self._client = client
        self._broker = broker
        self._publisher = publisher
        self._repositories = repositories
        self._guard = guard
        self._changes: dict[str, asyncio.Event] = {}
        self._stopped: set[str] = set()

    def note(self, session_id: str) -> None:
        """A session has new events."""
        if session_id in self._changes:
            self._changes[session_id].set()

    @property
    def problem(self) -> str:
        """Says that somebody has stopped the daemon; one that has crashed is started again."""
        places = self._client.blocking.pool.places
        return "" if is_running(places) or has_crashed(places) else STOPPED

    async def stop(self, task: Task) -> None:
        """Interrupt a task, whose `work` then returns soon."""
        self._stopped.add(task.work_id)
        self.note(task.session_id)

    async def work(self, task: Task, confirm: Confirm) -> Report:
        """Do a task, or continue this attempt."""
        begun: _Begun | None = None
        refused = 0
        try:
            while True:
                try:
                    begun = begun or await self._begin(task, confirm)
                    return await self._finish(task, begun, confirm) if begun else NOT_STARTED
                except TillerError as error:
                    # In any other case, the daemon or the broker is away for a while.
                    if isinstance(error, REFUSALS) and getattr(error, "code", "") not in PASSING:
                        refused += 1
                    if refused == TRIES:
                        return Report("failed" if begun else "not_started", problem=str(error))
                    await asyncio.sleep(RETRY_S)
        finally:
            self._guard.forget(fence_id(task.work_id))

    async def release(self, task: Task) -> None:
        """Remove the worktree, which can be restored for some days."""
        self._stopped.discard(task.work_id)
        with suppress(TillerError):
            if worktree := await self._worktree(task):
                await self._submit_once(
                    WorktreeRemove(worktree.id, force=True), f"{task.work_id}.rm"
                )

    async def _begin(self, task: Task, confirm: Confirm) -> "_Begun | None":
        """Make the session and submit its input, unless the task was stopped before."""
        spec = task.spec
        clone, commit = await self._repositories.prepare(spec.repository, task.commit or spec.ref)
        create = _creation(task, str(clone / spec.directory), commit)
        created = await self._submit_once(create, f"{task.work_id}.create")
        assert isinstance(created, Created)
        session_id = created.session_id
        if spec.retries:
            self._guard.watch(fence_id(task.work_id), session_id)
        await confirm(session_id, commit)
        if task.work_id in self._stopped:
            return None
        await self._submit_once(UserInput(session_id, spec.prompt), f"{task.work_id}.input")
        return _Begun(clone, commit, session_id)

    async def _finish(self, task: Task, begun: "_Begun", confirm: Confirm) -> Report:
        """Wait for the end of the work, and deliver it."""
        ended = await self._until_ended(task, begun, confirm)
        report = await self._deliver(task, begun, ended)
        await self._publisher.flush(begun.session_id, FLUSH_S)
        return report

    async def _until_ended(self, task: Task, begun: "_Begun", confirm: Confirm) -> TurnEnded:
        """Wait until the session's work is done, and return how its last turn ended."""
        session_id = begun.session_id
        change = self._changes[session_id] = asyncio.Event()
        try:
            ended = await self._until_idle(session_id, task, change)
            for number in range(CONTINUES_MAX):
                if not ended.error or ended.error.code != DAEMON_STOPPED:
                    break
                await confirm(session_id, begun.commit)
                submission_id = f"{task.work_id}.continue.{number + 1}"
                await self._submit_once(TurnContinue(session_id), submission_id)
                ended = await self._until_idle(session_id, task, change)
            return ended
        finally:
            del self._changes[session_id]

    async def _until_idle(self, session_id: str, task: Task, change: asyncio.Event) -> TurnEnded:
        while True:
            change.clear()
            if task.work_id in self._stopped:
                with suppress(RejectedError):  # the turn has ended by itself
                    await self._client.submit(Interrupt(session_id))
            summary = await self._summary(session_id)
            if summary.status == "idle" and summary.working_since is None and summary.turns:
                ended = await self._last_end(session_id, summary.head)
                if ended:
                    return ended
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await change.wait()

    async def _summary(self, session_id: str) -> SessionSummary:
        listed = await self._client.ask(SessionList(sessions=(session_id,)), SessionListResult)
        if not listed.sessions:
            raise SessionGone(f"session {session_id} was deleted")
        return listed.sessions[0]

    async def _last_end(self, session_id: str, head: int) -> TurnEnded | None:
        """The end of the last turn, if no other turn has begun since."""
        events: list[Event] = []
        after = max(0, head - TAIL)
        while True:
            replay = await self._client.ask(Replay(session_id, after), ReplayResult)
            events += replay.events
            after = replay.upto
            if replay.upto >= replay.head:
                break
        ends = [one.body for one in events if isinstance(one.body, TurnEnded)]
        return ends[-1] if ends else None

    async def _deliver(self, task: Task, begun: "_Begun", ended: TurnEnded) -> Report:
        """Push the branch or keep it in the broker, keep what was not committed, and report."""
        clone, commit, session_id = begun
        worktree = await self._worktree(task)  # after this, the clone has its commits
        branch = _branch(task)
        commits = await self._repositories.count(clone, commit, branch)
        target, bundle, patch, problem = branch, "", "", ended.error.message if ended.error else ""
        was_pushed = False
        if commits and task.spec.push:
            target = f"tiller/{branch}"
            try:
                await self._repositories.push(clone, branch, target)
                was_pushed = True
            except RepositoryProblem as error:
                problem = f"{problem} {error}".strip()
        if commits and not was_pushed:
            bundle = f"tasks/{task.id}/{task.attempt}.bundle"
            await put_object(self._broker, bundle, await self._bundle(clone, commit, branch))
        if worktree and worktree.changed_files:
            diff = await self._client.ask(SessionDiff(session_id), SessionDiffResult)
            patch = f"tasks/{task.id}/{task.attempt}.diff"
            await put_object(self._broker, patch, diff.diff.encode(errors="surrogateescape"))
        return Report(
            ended.outcome,
            ended.last_message[:MESSAGE_CHARS_MAX],
            problem,
            cost=ended.cost,
            duration_s=ended.duration_s,
            branch=target if commits else "",
            commits=commits,
            pushed=was_pushed,
            bundle=bundle,
            patch=patch,
            was_fenced=ended.outcome == "interrupted" and await self._was_fenced(task, session_id),
        )

    async def _bundle(self, clone: Path, commit: str, branch: str) -> bytes:
        with tempfile.TemporaryDirectory(prefix="tiller-fleet-") as directory:
            file = Path(directory) / "work.bundle"
            await self._repositories.bundle(clone, commit, branch, file)
            return await asyncio.to_thread(file.read_bytes)

    async def _worktree(self, task: Task) -> WorktreeSummary | None:
        listed = await self._client.ask(WorktreeList(name=_branch(task)), WorktreeListResult)
        return next((one for one in listed.worktrees if one.state == "ready"), None)

    async def _was_fenced(self, task: Task, session_id: str) -> bool:
        """Whether the guard has interrupted the turn: then the daemon knows its submission."""
        try:
            await self._submit_once(Interrupt(session_id), fence_id(task.work_id))
        except RejectedError:
            return False
        return True

    async def _submit_once(self, op: "_Op", submission_id: str) -> object:
        return await self._client.submit(op, submission_id=submission_id)


_Op = SessionCreate | UserInput | TurnContinue | Interrupt | WorktreeRemove


def fence_id(work_id: str) -> str:
    """The id of the submission with which the guard interrupts an attempt."""
    return f"{work_id}.fence"


def _branch(task: Task) -> str:
    short = task.id[-10:].lower() if task.id.isupper() else task.id
    return f"fleet-{short}-{task.attempt}"


def _creation(task: Task, directory: str, commit: str) -> SessionCreate:
    """Make the op that creates an attempt's session; repeated, it only returns the session."""
    choice = WorktreeChoice(_branch(task), commit)
    return SessionCreate(directory, settings=_settings(task.spec), worktree=choice)


def _settings(spec: TaskSpec) -> Settings:
    return Settings(
        agent=spec.agent,
        model=spec.model,
        approve=spec.approve,
        session_budget=spec.budget,
        permissions=IN_SANDBOX if spec.approve == "never" else None,
    )
