"""A connection to a server while it lasts: the MCP package's client, its tools, calls to them.

Of this room what is here and below is imported with the first server that is started.
"""

import logging
from collections.abc import Callable, Iterator
from typing import Any, Final, Literal, NamedTuple, cast

import mcp_types as types
import structlog
import trio
from mcp import MCPError
from mcp.client import Client
from mcp.client._transport import Transport  # the type of what is public
from pydantic import ValidationError

from tiller_daemon import DAEMON_VERSION
from tiller_daemon.mcp.base import ListedTool, Owner, ServerProblem, directory_of
from tiller_daemon.mcp.calls import Call, Gone
from tiller_daemon.mcp.means import NotForServers
from tiller_daemon.mcp.pipes import Pipes
from tiller_daemon.mcp.results import make_result
from tiller_daemon.tools.base import ToolEnvironment, ToolFailure, ToolResult
from tiller_daemon.turn.output_schema import schema_problem
from tiller_daemon.workspace.process import CommandProblem
from tiller_daemon.workspace.service import Service

log = structlog.get_logger()

TOOLS_MAX: Final = 256
"""Most tools of one server that are offered; models get lost among fewer."""

PAGES_MAX: Final = 64
"""Most pages of a list of tools; one that never ends must not keep a server from being used."""

DESCRIPTION_CHARS_MAX: Final = 4_000
"""Longest description that goes into every request."""

Era = Literal["legacy", "auto"]
"""How the package greets a server: `legacy` is the handshake that nearly all of them know."""

OTHER_ERA: Final = frozenset(
    {
        types.INVALID_REQUEST,
        types.INVALID_PARAMS,
        types.METHOD_NOT_FOUND,
        types.UNSUPPORTED_PROTOCOL_VERSION,
    }
)
"""What a server answers to a handshake that it does not know any more."""

for _name in ("client", "httpcore2", "httpx2", "mcp"):
    # The package's own log goes nowhere: it quotes messages, and what matters is said here.
    logging.getLogger(_name).addHandler(logging.NullHandler())
    logging.getLogger(_name).propagate = False


async def hold(owner: Owner) -> None:
    """Connect `owner` to its server, and stay until that has ended; it always has a reason.

    Raises `ServerProblem`. Cancellation ends the server, with all that it has started.
    """
    end = await _hold_process(owner, "legacy")
    if end.other_era:
        end = await _hold_process(owner, "auto")
    raise ServerProblem(end.problem)


class Line:
    """A line to a server; see `Connection`. `run` owns its tasks until `ended` is set."""

    def __init__(
        self, owner: Owner, client: Client, ended: trio.Event, how: Callable[[], str]
    ) -> None:
        self._owner = owner
        self._client = client
        self._ended = ended
        self._how = how
        self._nursery: trio.Nursery | None = None

    async def run(self) -> None:
        """Make calls until the server has ended."""
        tools = await self._list_tools()
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            self._owner.up(self, tools)
            await self._ended.wait()
            self._nursery = None
            nursery.cancel_scope.cancel()

    async def call(
        self, tool: str, arguments: dict[str, Any], environment: ToolEnvironment
    ) -> ToolResult:
        """Make a call; see `Connection`."""
        call = Call(tool, arguments, environment)
        named = f"{self._owner.name}/{tool}"
        if self._nursery is None:
            raise ToolFailure(self._lost())
        self._nursery.start_soon(call.run, self._client)
        timeout_s = self._owner.settings.timeout_s
        try:
            answer = await call.wait(timeout_s)
        except trio.TooSlowError:
            message = f"{named} was stopped after its time limit of {timeout_s:g} s."
            raise ToolFailure(message) from None
        except Gone:
            raise ToolFailure(self._lost()) from None
        except MCPError as error:
            if error.code == types.CONNECTION_CLOSED:
                raise ToolFailure(self._lost()) from None
            raise ToolFailure(f"The server answered with an error: {error.message}") from None
        except ValidationError:
            raise ToolFailure(f"{named} answered with something that is no result.") from None
        except RuntimeError as error:
            raise ToolFailure(f"{named} broke its own promise: {error}") from None
        return await make_result(answer, environment)

    def _lost(self) -> str:
        return (
            f"The MCP server {self._owner.name} was lost before it had answered: {self._how()}. "
            "Whether it did what was asked is not known. It is started again for the next call."
        )

    async def _list_tools(self) -> tuple[ListedTool, ...]:
        """The tools that it has and that can be offered."""
        found: list[ListedTool] = []
        cursor: str | None = None
        for _ in range(PAGES_MAX):
            page = await self._client.list_tools(cursor=cursor)
            found += (listed for tool in page.tools if (listed := self._listed(tool)))
            cursor = page.next_cursor
            if not cursor:
                break
        if cursor or len(found) > TOOLS_MAX:
            log.warning("mcp_tools_left_out", server=self._owner.name, offered=TOOLS_MAX)
        return tuple(found[:TOOLS_MAX])

    def _listed(self, tool: types.Tool) -> ListedTool | None:
        """The tool as it is offered; one that no provider would take is left out."""
        schema: dict[str, Any] = {"properties": {}, **tool.input_schema, "type": "object"}
        if problem := schema_problem(schema):
            log.warning(
                "mcp_tool_left_out", server=self._owner.name, tool=tool.name, reason=problem
            )
            return None
        hints = tool.annotations
        about = tool.description or tool.title or (hints and hints.title) or tool.name
        if len(about) > DESCRIPTION_CHARS_MAX:
            about = f"{about[: DESCRIPTION_CHARS_MAX - 1]}…"
        return ListedTool(tool.name, about, schema, bool(hints and hints.read_only_hint))


class _End(NamedTuple):
    """How a connection ended: why, and whether its server may know another way to begin."""

    problem: str
    other_era: bool = False


async def _hold_process(owner: Owner, era: Era) -> _End:
    settings, means = owner.settings, owner.means
    try:
        variables = means.variables(settings)
        service = Service(settings.command or (), directory_of(settings, means), variables)
    except (NotForServers, CommandProblem) as problem:
        return _End(str(problem).rstrip("."))
    pipes = Pipes(owner.name, service)
    try:
        async with trio.open_nursery() as nursery:
            for task in (pipes.read, pipes.write, pipes.log_errors):
                nursery.start_soon(task)
            end = await _converse(owner, pipes, pipes.ended, pipes.how_it_ended, era)
            nursery.cancel_scope.cancel()
    finally:
        ended = await service.end()
        if ended.survivors:
            log.error("mcp_server_survives", server=owner.name, processes=ended.survivors)
    return end


async def _converse(
    owner: Owner, transport: Transport, ended: trio.Event, how: Callable[[], str], era: Era
) -> _End:
    """Talk to a server over `transport` until `ended` is set; `how` says why that was."""
    client = Client(
        transport,
        mode=era,
        cache=None,
        client_info=types.Implementation(name="tiller", version=DAEMON_VERSION),
    )
    greeted = False
    try:
        async with client:
            greeted = True
            await Line(owner, client, ended, how).run()
    except Exception as error:
        leaves = list(_leaves(error))
        codes = {leaf.code for leaf in leaves if isinstance(leaf, MCPError)}
        if ended.is_set() or types.CONNECTION_CLOSED in codes:
            return _End(how())
        other = era == "legacy" and not greeted and bool(codes & OTHER_ERA)
        return _End(_explain(leaves), other)
    return _End(how())


def _explain(leaves: list[BaseException]) -> str:
    """Why a server could not be used, as a clause; raises what is a defect of ours."""
    for leaf in leaves:
        match leaf:
            case MCPError():
                return f"it answered: {leaf.message}"
            case ValidationError():
                return f"it does not speak MCP as it should: {_first_line(leaf)}"
            case _:
                pass
    raise leaves[0]


def _first_line(error: Exception) -> str:
    return " ".join(str(error).splitlines()[:3])


def _leaves(error: BaseException) -> Iterator[BaseException]:
    """The exceptions in groups of them; the package's task groups wrap what they raise."""
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        for inner in group.exceptions:
            yield from _leaves(inner)
    else:
        yield error
