"""A daemon's core in memory: real server, sessions, turns and policy, without sockets or threads.

The log is `MemoryLog`, the transport is `MemoryTransport`, the model is scripted, and the tools are
small ones made here, so that a seed replays everything. `World.kill` acts like `kill -9`: every
task is gone at once, and only committed events remain.
"""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import trio
from msgspec import Struct, structs

from support.directories import TemporarySearchIndex, directory_of
from support.memory_log import MemoryLog
from support.scripts import ModelInMemory
from tiller_daemon.config import Configuration, LastingRules, SandboxPolicy, TrustedProjects
from tiller_daemon.errors import RejectionError
from tiller_daemon.hooks.runner import HookRunner
from tiller_daemon.lsp.servers import LanguageServers
from tiller_daemon.mcp.environment import ServerEnvironment
from tiller_daemon.mcp.login_store import LoginStore
from tiller_daemon.mcp.servers import McpServers
from tiller_daemon.models.base import ModelClient, ModelRequest
from tiller_daemon.models.images import AcceptedInput
from tiller_daemon.models.scripted import Script
from tiller_daemon.sandbox.base import SandboxSearchResult
from tiller_daemon.sandbox.sandboxes import Sandboxes
from tiller_daemon.server import SubmissionServer
from tiller_daemon.session.clock import Clock
from tiller_daemon.session.editor_files import EditorFiles
from tiller_daemon.session.searching import SearchableSessions
from tiller_daemon.session.services import (
    ChosenModel,
    CommandSettings,
    ModelSurvey,
    Services,
    SessionFiles,
    ToolSources,
    UserSettings,
)
from tiller_daemon.session.supervisor import Supervisor
from tiller_daemon.tools.base import (
    Requirement,
    Tool,
    ToolEnvironment,
    ToolFailure,
    ToolResult,
    always,
    never,
)
from tiller_daemon.tools.plan import PLAN
from tiller_daemon.tools.question import QUESTION
from tiller_daemon.tools.task import TASK
from tiller_daemon.transport.memory import MemoryTransport
from tiller_daemon.turn.context import CostOf
from tiller_protocol.answers import (
    Accepted,
    AccountsResult,
    AnyAnswer,
    AnyResult,
    Created,
    Rejected,
)
from tiller_protocol.codec import (
    decode_answer,
    decode_event,
    decode_file_wanted,
    encode_submission,
)
from tiller_protocol.events import LIFECYCLE_TOPIC, AnyBody, Event, StatusChanged, TurnEnded
from tiller_protocol.ids import ULID_RANDOM_BYTES, Ulids
from tiller_protocol.items import Effect
from tiller_protocol.lending import FileWanted
from tiller_protocol.ops import Accounts, AnyOp, SessionCreate, Submission, UserInput
from tiller_protocol.settings import Settings

TOKEN = "token-of-the-world"

HARMLESS = (PLAN, QUESTION, TASK)
"""Built-in tools that touch nothing but the session."""

NO_MEANS = ServerEnvironment({}, {}, (), lambda: (), Path("/"), LoginStore(Path("/nonexistent")))

NO_CONFINER = Sandboxes(
    lambda: SandboxSearchResult(None, "This is a test."), Path("/nonexistent"), {}
)

EPOCH = 1_700_000_000.0
"""Unix seconds at which every world begins."""

TIMEOUT_S = 10_000.0
"""Virtual seconds that a test waits for an event; more than any timeout of the daemon."""


class PauseArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """Arguments of the tools made here: their duration, output and ending.

    A cancelled tool ends after `lingers` seconds.
    """

    seconds: float = 0.0
    say: str = ""
    times: int = 1
    fail: bool = False
    crash: bool = False
    lingers: float = 0.0


class CommandArguments(Struct, frozen=True):
    """Arguments of the `bash` made here, whose command is a number of seconds, then the output."""

    command: str
    timeout_s: float = 120.0


class Span(NamedTuple):
    """A finished call to a tool made here.

    `began` and `ended` number the beginnings and ends of all calls, so that two at the same instant
    have an order. `head` is the session's last event in the log when the call began. `times` are
    the clock's times of beginning and end.
    """

    session_id: str
    call_id: str
    effect: str
    began: int
    ended: int
    head: int
    times: tuple[float, float]


@dataclass
class Usage:
    """Records the calls to the tools made here; `running` maps call ids to sessions."""

    spans: list[Span] = field(default_factory=list)
    running: dict[str, str] = field(default_factory=dict)
    begun: list[str] = field(default_factory=list)
    changes: int = 0

    def count(self) -> int:
        """Return the number of this beginning or end."""
        self.changes += 1
        return self.changes


Run = Callable[[PauseArguments, ToolEnvironment], Awaitable[ToolResult]]


def make_tools(usage: Usage, head: Callable[[str], int]) -> dict[str, Tool]:
    """Make the tools: `look` only reads, `change` writes, `guarded` writes and asks first."""

    def runner(name: str, effect: str) -> Run:
        async def run(arguments: PauseArguments, environment: ToolEnvironment) -> ToolResult:
            session_id, call_id = environment.session_id, environment.call_id
            began, head_then = usage.count(), head(session_id)
            began_at = trio.current_time()
            usage.begun.append(call_id)
            usage.running[call_id] = session_id
            try:
                if arguments.say:
                    await environment.user.output(arguments.say)
                await trio.sleep(arguments.seconds)
                if arguments.crash:
                    raise ZeroDivisionError("a defect of the tool")
                if arguments.fail:
                    raise ToolFailure("it failed as asked")
                return ToolResult(output=arguments.say * arguments.times or f"{name} done")
            except trio.Cancelled:
                if arguments.lingers:
                    with trio.CancelScope(shield=True):
                        await trio.sleep(arguments.lingers)
                raise
            finally:
                usage.running.pop(call_id, None)
                ended = usage.count()
                times = (began_at, trio.current_time())
                usage.spans.append(
                    Span(session_id, call_id, effect, began, ended, head_then, times)
                )

        return run

    def tool(name: str, effect: Effect, permission: str) -> Tool:
        def requirements(arguments: PauseArguments, workspace: Path) -> tuple[Requirement, ...]:
            subject = arguments.say or name
            return (
                Requirement(permission, (subject,), always=(subject,), title=f"{name} {subject}"),
            )

        run, repeatable = runner(name, effect), always if effect == "read" else never
        return Tool(
            name, f"{name} for tests", PauseArguments, effect, 60.0, requirements, run, repeatable
        )

    def command_requirements(
        arguments: CommandArguments, workspace: Path
    ) -> tuple[Requirement, ...]:
        return (Requirement("bash", (arguments.command,), kind="command", title=arguments.command),)

    async def run_command(arguments: CommandArguments, environment: ToolEnvironment) -> ToolResult:
        seconds, _, said = arguments.command.partition(" ")
        done = await runner("bash", "write")(PauseArguments(float(seconds), said), environment)
        return structs.replace(done, failed=said == "fail", exit_status=int(said == "fail"))

    bash = Tool(
        "bash", "for tests", CommandArguments, "command", 600.0, command_requirements, run_command
    )
    return {
        "bash": bash,
        "look": tool("look", "read", "read"),
        "peek": tool("peek", "read", "external_directory"),
        "change": tool("change", "write", "test_change"),
        "guarded": tool("guarded", "write", "write"),
    }


@dataclass
class RecordingModel:
    """Passes requests on to `inner`, and keeps requests for titles apart from those of turns.

    `cut` holds requests that were cancelled before they ended, with the time.
    """

    inner: ModelClient
    requests: list[ModelRequest] = field(default_factory=list)
    for_titles: list[ModelRequest] = field(default_factory=list)
    cut: list[tuple[ModelRequest, float]] = field(default_factory=list)

    async def stream(self, request: ModelRequest):
        (self.for_titles if request.purpose == "title" else self.requests).append(request)
        try:
            async with aclosing(self.inner.stream(request)) as events:
                async for event in events:
                    yield event
        except (trio.Cancelled, GeneratorExit):
            self.cut.append((request, EPOCH + trio.current_time()))
            raise


def unpriced(_: object) -> float | None:
    """The cost for a model whose price is not known."""
    return None


class World:
    """Use as `async with trio.open_nursery() as n: world = await World.start(n, scripts)`."""

    def __init__(self, scripts: Mapping[str, Script], seed: int = 0) -> None:
        self.random = Random(seed)
        self._ulids = Ulids()
        self.log = MemoryLog(before_commit=self._before_commit, after_commit=self._after_commit)
        directory = directory_of(self)
        self.index = TemporarySearchIndex(self.log.log_id)
        self.usage = Usage()
        self.scripts = dict(scripts)
        self.model = RecordingModel(ModelInMemory(lambda name: self.scripts[name]))
        self.clock_jumps_s = 0.0
        """By how many seconds the wall clock was set."""
        self.configuration = Configuration(
            model=f"scripted/{next(iter(scripts))}",
            permissions=(_allow("test_change"),),
            sandbox=SandboxPolicy("full_access"),
        )
        self.published: dict[str, list[Event]] = {}
        self.on_publish: Callable[[Event], None] = lambda event: None
        self.on_file_wanted: Callable[[FileWanted], None] = lambda wanted: None
        self.commit_s: Callable[[], float] = lambda: 0.0
        self.commits_left: int | None = None
        self.dies_before_commit = False
        self.in_order: list[Event] = []
        self._changed = trio.Event()
        self.workspace = "/"
        self.kills = 0
        self.sandboxes = NO_CONFINER
        self.projects = TrustedProjects(
            directory / "trusted.json",
            lambda: self.configuration,
            lambda _: self.configuration,
        )
        self.lasting_rules = LastingRules(directory / "rules.json")
        self.secrets: tuple[str, ...] = ()
        self.config_directory = Path("/nonexistent")
        self.context_window: int | None = None
        self.options: dict[str, Any] = {}
        self.variants: dict[str, dict[str, Any]] = {}
        self.efforts: tuple[str, ...] = ()
        self.prompt_header = ""
        self.more_tools: tuple[Tool, ...] = ()
        self.hosted_tools: dict[str, dict[str, Any]] = {}
        self.price: CostOf = unpriced
        self.tools_max: int | None = None
        self.images = True
        self.documents = True

    @classmethod
    async def start(
        cls, nursery: trio.Nursery, scripts: Mapping[str, Script], seed: int = 0
    ) -> "World":
        world = cls(scripts, seed)
        await world.boot(nursery)
        return world

    async def boot(self, nursery: trio.Nursery) -> None:
        """Start the daemon's core on the existing log; return when it serves or is `gone`."""
        self.scope, self.gone = trio.CancelScope(), trio.Event()
        self.transport = MemoryTransport()
        self.search = SearchableSessions(self.log, self.index, _at_once)
        self.tools = {
            **make_tools(self.usage, self.log.head_now),
            **{tool.name: tool for tool in (*HARMLESS, *self.more_tools)},
        }
        servers = McpServers({}, NO_MEANS)
        services = Services(
            log=self.log,
            publish=self._publish,
            clock=Clock(
                lambda: EPOCH + self.clock_jumps_s + trio.current_time(), trio.current_time
            ),
            random=self.random.random,
            new_id=self.new_id,
            model=self._choose,
            discover=_no_discovery,
            user=UserSettings(
                configuration=lambda: self.configuration,
                refresh=_nothing,
                problem=lambda: "",
                missing_keys=tuple,
                has_default_model=lambda: True,
                projects=self.projects,
                lasting_rules=self.lasting_rules,
                config_directory=self.config_directory,
                home=Path("/nonexistent"),
                platform="test",
            ),
            tools=ToolSources(
                available=lambda session_id: {**self.tools, **servers.tools(session_id)},
                servers=servers,
                language_servers=LanguageServers((), {}, Path("/")),
                hooks=HookRunner(lambda call_id: {}),
                editors=EditorFiles(servers.loans, self._ask_lender, self.new_id),
            ),
            commands=CommandSettings(
                variables=lambda call_id: {},
                secrets=lambda: self.secrets,
                sandboxes=self.sandboxes,
            ),
            files=SessionFiles(
                spill_directory=lambda session_id: Path("/nonexistent", session_id),
                journals=Path("/nonexistent"),
                forget=lambda session_id: None,
            ),
        )
        self.services = services
        self.supervisor = Supervisor(services, self.search)
        self.server = SubmissionServer(services, self.supervisor, TOKEN, _no_models, _no_accounts)
        await nursery.start(self._run)

    async def kill(self) -> None:
        """Kill the daemon, which closes and announces nothing; return when it is `gone`."""
        self._die()
        await self.gone.wait()

    def kill_at_commit(self, number: int, *, durable: bool) -> None:
        """Kill the daemon at its `number`-th commit from now, the next being 1.

        With `durable` the commit is in the log, but nobody has heard of it; without, the commit is
        lost. The commits of a recovery count as well.
        """
        self.commits_left, self.dies_before_commit = number, not durable

    async def ask(
        self, op: AnyOp, submission_id: str | None = None, client: str = "t"
    ) -> AnyAnswer:
        """Send a submission over the transport and return its answer."""
        submission = Submission(submission_id or self.new_id(), op, client, TOKEN)
        return decode_answer(await self.transport.ask(encode_submission(submission)))

    async def must(self, op: AnyOp, submission_id: str | None = None) -> AnyResult | None:
        """Send a submission that must be accepted; return its result."""
        answer = await self.ask(op, submission_id)
        assert isinstance(answer, Accepted), answer
        return answer.result

    async def refused(self, op: AnyOp) -> Rejected:
        """Send a submission that must be rejected."""
        answer = await self.ask(op)
        assert isinstance(answer, Rejected), answer
        return answer

    def trust(self) -> None:
        """Trust the workspace's files that need trust, in their current state."""
        self.projects.trust(self.workspace, self.projects.inspect(self.workspace).digest)

    async def session(self, script: str | None = None, **settings: Any) -> str:
        """Make a session whose model plays `script`."""
        model = f"scripted/{script}" if script else None
        op = SessionCreate(self.workspace, model=model, settings=Settings(**settings))
        result = await self.must(op)
        assert isinstance(result, Created)
        return result.session_id

    async def say(self, session_id: str, text: str, **fields: Any) -> AnyResult | None:
        """Send user input."""
        return await self.must(UserInput(session_id, text, **fields))

    async def events(self, session_id: str) -> list[Event]:
        """Return all events of a session in the log."""
        bodies = await self.log.events(session_id, 0, 10**9, 2**60)
        return [decode_event(body) for body in bodies]

    async def until(
        self, session_id: str, wanted: Callable[[Event], bool], count: int = 1
    ) -> Event:
        """Wait until `count` wanted events are published; return the last of them."""
        with trio.fail_after(TIMEOUT_S):
            while True:
                found = [e for e in self.published.get(session_id, []) if wanted(e)]
                if len(found) >= count:
                    return found[count - 1]
                await self._changed.wait()

    async def until_body(self, session_id: str, kind: type[AnyBody], count: int = 1) -> Event:
        """Wait for the `count`-th published event of one kind."""
        return await self.until(session_id, lambda e: isinstance(e.body, kind), count)

    async def ended(self, session_id: str, count: int = 1) -> TurnEnded:
        """Wait until `count` turns have ended and the session is idle; return the last ending."""
        event = await self.until_body(session_id, TurnEnded, count)
        await self.until(
            session_id,
            lambda e: e.seq > event.seq and e.body == StatusChanged("idle"),
        )
        assert isinstance(event.body, TurnEnded)
        return event.body

    def new_id(self) -> str:
        """Return a new ULID, made from the seed."""
        time_ms = int(trio.current_time() * 1000)
        return self._ulids.make(time_ms, self.random.randbytes(ULID_RANDOM_BYTES))

    def _choose(self, name: str | None) -> ChosenModel:
        chosen = name or self.configuration.model or ""
        if chosen.removeprefix("scripted/") not in self.scripts:
            raise RejectionError("invalid_settings", f"There is no model {chosen!r}.")
        name = chosen.removeprefix("scripted/")
        return ChosenModel(
            chosen,
            name,
            self.model,
            self.price,
            self.context_window,
            options=self.options,
            variants=self.variants if name == next(iter(self.scripts)) else {},
            efforts=self.efforts,
            prompt_header=self.prompt_header,
            accepts=AcceptedInput(self.images, self.documents, self.tools_max),
            hosted_tools=self.hosted_tools,
        )

    async def _run(self, *, task_status: trio.TaskStatus[None]) -> None:
        serves = False
        try:
            with self.scope:
                async with trio.open_nursery() as nursery:
                    await nursery.start(self.supervisor.run)
                    nursery.start_soon(self.transport.serve, self.server.handle)
                    task_status.started()
                    serves = True
        finally:
            self.gone.set()
        if not serves:
            task_status.started()

    def _die(self) -> None:
        self.kills += 1
        self.scope.cancel()

    async def _before_commit(self) -> None:
        if delay_s := self.commit_s():
            await trio.sleep(delay_s)
        await self._die_at_commit(before=True)

    async def _after_commit(self) -> None:
        await self._die_at_commit(before=False)

    async def _die_at_commit(self, *, before: bool) -> None:
        if self.commits_left is not None and self.dies_before_commit == before:
            self.commits_left -= 1
            if self.commits_left == 0:
                self.commits_left = None
                self._die()
        await trio.lowlevel.checkpoint()

    def _ask_lender(self, topic: str, body: bytes) -> None:
        self.on_file_wanted(decode_file_wanted(body))
        self.transport.publish(topic, body)

    def _publish(self, topic: str, body: bytes) -> None:
        self.search.note(topic)
        if topic != LIFECYCLE_TOPIC:
            event = decode_event(body)
            self.published.setdefault(topic, []).append(event)
            self.in_order.append(event)
            self.on_publish(event)
            self._changed.set()
            self._changed = trio.Event()
        self.transport.publish(topic, body)


def _allow(permission: str):
    from tiller_protocol.settings import Rule

    return Rule(permission, "*", "allow")


async def _no_models(*, ask: bool, offers: bool) -> ModelSurvey:
    await trio.lowlevel.checkpoint()
    return ModelSurvey()


async def _no_accounts(op: Accounts) -> AccountsResult:
    await trio.lowlevel.checkpoint()
    return AccountsResult(())


async def _no_discovery(session_id: str) -> None:
    await _nothing()


async def _at_once(function: Callable[[], Any]) -> Any:
    await trio.lowlevel.checkpoint()
    return function()


async def _nothing() -> None:
    await trio.lowlevel.checkpoint()
