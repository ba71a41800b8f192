"""Background sub-agents: a `task` call starts them, the session owns them, and they end with it.

They keep working when the turn that started them ends or is interrupted. They are in the same list
as background commands (`background_changed`). A sub-agent's end and the input that reports it are
one commit, so a report arrives exactly once, or the sub-agent is `lost`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import trio
from msgspec import structs

from tiller_daemon.session.background.claims import Claim, Claims
from tiller_daemon.session.background.listing import listed_with, lost_entries, next_id
from tiller_daemon.session.outbox import Outbox
from tiller_daemon.session.requests import Reply
from tiller_daemon.session.sub_agents.report import report_of
from tiller_daemon.session.sub_agents.sub_agent_run import SubAgentRun, spent_by
from tiller_daemon.tools.base import BackgroundReport, ToolFailure, ToolResult
from tiller_daemon.tools.write_scope import WriteScope
from tiller_daemon.turn.budget import Spent
from tiller_daemon.turn.closing import notice_events
from tiller_protocol.events import AnyBody, BackgroundChanged, WarningRaised
from tiller_protocol.items import BackgroundCommand, Request, SubAgent
from tiller_protocol.settings import Rule
from tiller_protocol.snapshot import Snapshot

RUNNING_MAX = 8
"""How many sub-agents may work in the background of one session."""

ID_PREFIX = "t"
"""Background commands are `b1`, `b2` …, and sub-agents `t1`, `t2` …"""

STARTED = (
    "{id} is working in the background. Its report will arrive as a message: go on with something "
    "else, or end your turn. bash_output shows its progress; bash_kill ends it."
)
REPORT = (
    "[This is not from the user. It is the report of the background sub-agent {id} ({title}), "
    "which you started.]\n{report}"
)
ENDED = "The background sub-agent {id} ({title}) was ended before it had finished.\n{report}"
LOST = (
    "{cause} while the background sub-agent {id} ({title}) was running. The sub-agent was lost, "
    "and there is no report. To continue its work, `resume` {session_id}."
)
WAITS = (
    "The background sub-agent {id} is waiting for an answer: {title}. Answer with "
    "`tiller answer {request_id}`."
)


@dataclass(eq=False)
class BackgroundTask:
    """A background sub-agent from its start to its report, and the principal of its turn."""

    listed: BackgroundCommand
    """The sub-agent's entry in the session's list."""
    session_id: str
    """The session that the sub-agent works for."""
    rules_before: tuple[Rule, ...]
    """The session's rules when the sub-agent began, which are also in its context."""
    tasks: "BackgroundTasks"
    """All background tasks of the session."""
    run: SubAgentRun | None = None
    """The link with the sub-agent's turn."""
    cancelled: bool = False
    """Whether someone ended the sub-agent."""
    silent: bool = False
    """Whether the model needs no message about the end, because a call's result reports it."""
    recorded: trio.Event = field(default_factory=trio.Event)
    """Set when the sub-agent's end is recorded."""
    claims: Claims = field(default_factory=Claims)
    """The claims that the sub-agent must respect. This is empty, because other claims never overlap
    with its own."""

    def report(self, item_id: str, totals: SubAgent) -> None:  # noqa: ARG002
        """Show the sub-agent's spending in the list."""
        self.tasks.record(self, sub_agent=totals)

    def show_call(self, item_id: str, line: str) -> None:
        """Do nothing, as the `task` call has ended; the sub-agent's own session shows its calls."""

    def spent_by_others(self) -> Spent:
        """Return the sub-agent's own spending, since its budget was set apart when it began."""
        return self.run.spent() if self.run else Spent()

    def live_rules(self) -> tuple[Rule, ...]:
        """Return the rules granted to the session since the sub-agent began."""
        now = self.tasks.snapshot().settings.permissions or ()
        before = len(self.rules_before)
        return now[before:] if now[:before] == self.rules_before else ()

    def mirror_request(self, request: Request) -> None:
        """Warn about the sub-agent's request, which the session can't show outside a turn."""
        message = WAITS.format(id=self.listed.id, title=request.title, request_id=request.id)
        self.tasks.put(WarningRaised("sub_agent_waits", message))

    def mirror_resolution(self, request_id: str, reply: Reply) -> None:
        """Do nothing, as this session does not show the request."""

    def grant_from_sub_agent(self, rules: tuple[Rule, ...]) -> None:
        """Apply the rules that the user granted to the sub-agent to the whole session."""
        self.tasks.grant(rules)


class Loop(Protocol):
    """The part of the session's loop that background sub-agents need."""

    async def deliver(self, task: BackgroundTask) -> None:
        """Record the end of a task and deliver its report, in turn with submissions."""
        ...

    def grant(self, rules: tuple[Rule, ...]) -> None:
        """Apply rules to the session and to its sub-agents."""
        ...


class BackgroundTasks:
    """The background sub-agents of one session. `run` owns the tasks that wait for their ends.

    `starts_turns` says whether a report may start a turn; it is false once the session shuts down.
    """

    def __init__(self, outbox: Outbox, time: Callable[[], float]) -> None:
        self.starts_turns = True
        self.claims = Claims()
        self._outbox = outbox
        self._time = time
        self._tasks: dict[str, BackgroundTask] = {}
        self._spent_by_ended = Spent()
        self._nursery: trio.Nursery | None = None
        self._loop: Loop | None = None

    @property
    def is_running(self) -> bool:
        """Whether any sub-agent is still working, or its end is not recorded yet."""
        return bool(self._tasks)

    async def run(self, loop: "Loop") -> None:
        """Own the tasks until cancelled, which ends the sub-agents."""
        self._loop = loop
        try:
            async with trio.open_nursery() as self._nursery:
                await trio.sleep_forever()
        finally:
            # The loop refers to the session, which would otherwise stay in memory.
            self._loop = None

    def grant(self, rules: tuple[Rule, ...]) -> None:
        """Apply the rules that the user granted to a sub-agent to the session."""
        assert self._loop
        self._loop.grant(rules)

    def snapshot(self) -> Snapshot:
        """Return the session's state."""
        return self._outbox.fold_pending()

    def put(self, *bodies: AnyBody) -> None:
        """Put events of the session into the outbox."""
        self._outbox.put(*bodies)

    def begin(self, item_id: str, title: str, scope: WriteScope | None) -> BackgroundTask:
        """Return a new task, which the caller must `watch` or `fail`; raises `ToolFailure`.

        From now on, nobody else in the session may change files in the task's scope.
        """
        if len(self._tasks) >= RUNNING_MAX:
            raise ToolFailure(
                f"{RUNNING_MAX} sub-agents are already working in the background: "
                f"{', '.join(self._tasks)}. Wait for a report, or end a sub-agent with bash_kill."
            )
        snapshot = self.snapshot()
        entry = next_id(snapshot, ID_PREFIX)
        listed = BackgroundCommand(entry, title, "running", self._time(), item_id)
        rules = snapshot.settings.permissions or ()
        task = self._tasks[entry] = BackgroundTask(listed, snapshot.session_id, rules, self)
        if scope:
            self.claims.begin(entry, Claim(f"{entry} ({title})", scope))
        # The scope is claimed at once, as other sub-agents may begin before this one has a session.
        self.record(task)
        return task

    def watch(self, task: BackgroundTask) -> ToolResult:
        """Wait in the background for the end of a task whose turn has begun.

        Returns the result of the call that started it.
        """
        assert self._nursery is not None
        assert task.run
        self._nursery.start_soon(self._wait, task, task.run)
        # The sub-agent's totals are in the list, and must not count twice.
        linked = task.listed.sub_agent and SubAgent(
            task.listed.sub_agent.session_id, task.listed.sub_agent.agent
        )
        return ToolResult(STARTED.format(id=task.listed.id), sub_agent=linked)

    def record(self, task: BackgroundTask, **changes: object) -> None:
        """Change a task's entry in the list."""
        task.listed = structs.replace(task.listed, **changes)
        self.put(BackgroundChanged(listed_with(self.snapshot().background, task.listed)))

    def record_end(self, task: BackgroundTask) -> None:
        """Record the end of a task; its report must follow without a checkpoint in between."""
        assert task.run
        self._forget(task)
        self._spent_by_ended = self._spent_by_ended.plus(task.run.spent())
        ended = task.run.ended
        failed = ended is None or ended.outcome != "completed"
        self.record(
            task,
            state="killed" if task.cancelled else "exited",
            ended_at=self._time(),
            exit_status=None if task.cancelled else int(failed),
        )

    def fail(self, task: BackgroundTask) -> None:
        """Record that a task could not begin; the result of the `task` call says why."""
        self._forget(task)
        self.record(task, state="killed", ended_at=self._time())

    async def poll(self, task_id: str, wait_s: float) -> BackgroundReport:
        """Wait up to `wait_s` seconds for the end of a task, and return its progress."""
        if task := self._tasks.get(task_id):
            with trio.move_on_after(wait_s):
                await task.recorded.wait()
        return BackgroundReport(self._entry(task_id), "")

    async def kill(self, task_id: str) -> BackgroundReport:
        """End a task because the model asks for it, and wait; raises `ToolFailure`."""
        if task := self._tasks.get(task_id):
            task.silent = True
            self.cancel(task_id)
            await task.recorded.wait()
        return BackgroundReport(self._entry(task_id), "")

    def cancel(self, task_id: str) -> bool:
        """Begin to end a task; return False if it is not running."""
        task = self._tasks.get(task_id)
        turn = task and task.run and task.run.turn
        if task is None or not turn:
            return False
        task.cancelled = True
        turn.interrupt()
        return True

    def cancel_all(self) -> None:
        """Begin to end every task."""
        for task_id in list(self._tasks):
            self.cancel(task_id)

    async def end_all(self) -> None:
        """End every task, and wait until their ends are recorded."""
        self.cancel_all()
        for task in list(self._tasks.values()):
            await task.recorded.wait()

    def reconsider(self) -> None:
        """Resolve open requests that the rules now allow."""
        for task in self._tasks.values():
            if task.run and task.run.turn:
                task.run.turn.reconsider()

    def spent(self) -> Spent:
        """Return the spending of all background sub-agents since the session was loaded."""
        runs = (task.run for task in self._tasks.values() if task.run)
        return self._spent_by_ended.plus(spent_by(runs))

    async def _wait(self, task: BackgroundTask, run: SubAgentRun) -> None:
        try:
            await run.done.wait()
            assert self._loop
            await self._loop.deliver(task)
        finally:
            # If the session ends first, its sub-agents end with it.
            if run.turn:
                run.turn.interrupt()
            run.detach()
            self._forget(task)

    def _forget(self, task: BackgroundTask) -> None:
        self._tasks.pop(task.listed.id, None)
        self.claims.end(task.listed.id)
        task.recorded.set()

    def _entry(self, task_id: str) -> BackgroundCommand:
        for entry in self.snapshot().background:
            if entry.id == task_id:
                return entry
        raise ToolFailure(f"There is no background sub-agent {task_id!r}.")


def report_text(task: BackgroundTask) -> str:
    """Return the message about the end of a task."""
    assert task.run
    text = ENDED if task.cancelled else REPORT
    entry = task.listed
    return text.format(id=entry.id, title=entry.command, report=report_of(task.run).output)


def lost_bodies(snapshot: Snapshot, new_id: Callable[[], str], cause: str) -> list[AnyBody]:
    """Return the events that mark running background work as lost; none if there is no such work.

    They tell the model which sub-agents were lost, and by what `cause`.
    """
    lost = lost_entries(snapshot)
    if lost is None:
        return []
    bodies: list[AnyBody] = [BackgroundChanged(lost)]
    for entry in snapshot.background:
        if entry.state == "running" and entry.sub_agent:
            text = LOST.format(
                cause=cause,
                id=entry.id,
                title=entry.command,
                session_id=entry.sub_agent.session_id,
            )
            bodies += notice_events("background_lost", text, new_id())
    return bodies
