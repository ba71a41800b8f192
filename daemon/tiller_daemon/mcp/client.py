"""A connection to a server while it lasts: the MCP package's client, its tools, calls to them.

Of this room what is here and below is imported with the first server that is started.
"""

import logging
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any, Final, Literal, NamedTuple, cast

import httpx2
import mcp_types as types
import structlog
import trio
from mcp import MCPError
from mcp.client import Client
from mcp.client.subscriptions import SubscriptionLost
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from tiller_daemon import DAEMON_VERSION
from tiller_daemon.mcp.base import (
    CallNotSent,
    ListedTool,
    McpTransport,
    ServerOwner,
    ServerUnavailable,
    directory_of,
)
from tiller_daemon.mcp.calls import CURRENT_CALL, ConnectionEnded, McpCall
from tiller_daemon.mcp.environment import EnvironmentProblem
from tiller_daemon.mcp.http import HttpTransport, HttpTransportProblem
from tiller_daemon.mcp.results import make_result
from tiller_daemon.mcp.stdio import StdioTransport
from tiller_daemon.processes.command import CommandProblem
from tiller_daemon.processes.server_process import Service
from tiller_daemon.tools.base import ToolEnvironment, ToolFailure, ToolResult
from tiller_daemon.turn.output_schema import schema_problem

log = structlog.get_logger()

TOOLS_MAX: Final = 256
"""Most tools of one server that are offered; models get lost among fewer."""

PAGES_MAX: Final = 64
"""Most pages of a list of tools; one that never ends must not keep a server from being used."""

DESCRIPTION_CHARS_MAX: Final = 4_000
"""Longest description that goes into every request."""

Streams = AbstractAsyncContextManager[tuple[Any, Any]]
"""What the package talks through: a transport of its own, or `StdioTransport`."""

CHANGE_DEBOUNCE_S: Final = 0.1
"""How long a change of a list of tools may go on before it is looked at."""

LISTEN_RETRY_S: Final = 10.0
"""How soon a server that stopped to tell of changes is asked to again."""

Handshake = Literal["legacy", "auto"]
"""How the package greets a server: `legacy` is the handshake that nearly all of them know."""

HANDSHAKE_REJECTED: Final = frozenset(
    {
        types.INVALID_REQUEST,
        types.INVALID_PARAMS,
        types.METHOD_NOT_FOUND,
        types.UNSUPPORTED_PROTOCOL_VERSION,
    }
)
"""What a server answers to a handshake that it does not know any more."""

CLOSED: Final = (types.CONNECTION_CLOSED, "Connection closed")
"""What the package says of a connection that has ended; the code alone is anybody's."""

BAD_STATUS: Final = (types.INTERNAL_ERROR, "Server returned an error response")
"""What the package makes of an HTTP status that is an error."""

for _name in ("client", "httpcore2", "httpx2", "mcp"):
    # The package's own log goes nowhere: it quotes messages, and what matters is said here.
    logging.getLogger(_name).addHandler(logging.NullHandler())
    logging.getLogger(_name).propagate = False


async def run_client(owner: ServerOwner) -> None:
    """Connect `owner` to its server, and stay until that has ended; it always has a reason.

    Raises `ServerUnavailable`. Cancellation ends the server, with all that it has started.
    """
    connect = _run_over_http if owner.settings.url else _run_over_stdio
    end = await connect(owner, "legacy")
    if end.needs_auto_handshake:
        end = await connect(owner, "auto")
    raise ServerUnavailable(end.problem)


class McpClient:
    """A line to a server over `streams`; see `McpConnection`. `serve` owns its tasks while it lasts.

    `initialized` says that the server has answered the handshake.
    """

    def __init__(
        self, owner: ServerOwner, streams: Streams, transport: McpTransport, handshake: Handshake
    ) -> None:
        self.initialized = False
        self._owner = owner
        self._transport = transport
        self._changed = trio.Event()
        self._calls: set[McpCall] = set()
        self._nursery: trio.Nursery | None = None
        self._client = Client(
            streams,
            mode=handshake,
            cache=None,
            client_info=types.Implementation(name="tiller", version=DAEMON_VERSION),
            message_handler=self._on_message,
            elicitation_callback=self._elicit,
        )

    @property
    def is_over(self) -> bool:
        """Whether the server has gone; see `McpConnection`."""
        return self._transport.ended.is_set() or self._transport.session_expired

    async def serve(self) -> None:
        """Make calls until the server has ended."""
        try:
            async with self._client, trio.open_nursery() as nursery:
                self.initialized = True
                tools = await self._list_tools()
                self._nursery = nursery
                nursery.start_soon(self._update_tools)
                nursery.start_soon(self._listen)
                self._owner.connected(self, tools)
                await self._transport.ended.wait()
                nursery.cancel_scope.cancel()
        finally:
            self._nursery = None
            self._transport.ended.set()

    async def call(
        self, tool: str, arguments: dict[str, Any], environment: ToolEnvironment
    ) -> ToolResult:
        """Make a call; see `McpConnection`."""
        call = McpCall(self._owner.name, tool, arguments, environment)
        named = f"{self._owner.name}/{tool}"
        if self._nursery is None or self.is_over:
            raise CallNotSent(self._lost_message())
        self._nursery.start_soon(call.execute, self._client)
        timeout_s = self._owner.settings.timeout_s
        self._calls.add(call)
        try:
            answer = await call.wait(timeout_s)
        except trio.TooSlowError:
            message = f"{named} was stopped after its time limit of {timeout_s:g} s."
            raise ToolFailure(message) from None
        except ConnectionEnded:
            raise ToolFailure(self._lost_message()) from None
        except MCPError as error:
            if (error.code, error.message) == CLOSED:
                raise ToolFailure(self._lost_message()) from None
            if self._transport.session_expired:
                raise CallNotSent(self._lost_message()) from None
            raise ToolFailure(
                f"{named} failed: {_describe_error(error, self._transport)}."
            ) from None
        except ValidationError:
            raise ToolFailure(f"{named} answered with something that is no result.") from None
        except RuntimeError as error:
            raise ToolFailure(f"{named} broke its own promise: {error}") from None
        finally:
            self._calls.remove(call)
            if self._transport.session_expired and not self._calls:
                self._transport.ended.set()
        return await make_result(answer, environment)

    def _lost_message(self) -> str:
        how = self._transport.end_reason()
        return (
            f"The MCP server {self._owner.name} was lost before it had answered: {how}. "
            "Whether it did what was asked is not known. It is started again for the next call."
        )

    async def _on_message(self, message: object) -> None:
        """Take what the server says by itself."""
        await trio.lowlevel.checkpoint()
        if isinstance(message, types.ToolListChangedNotification):
            self._changed.set()

    async def _elicit(
        self,
        context: object,  # noqa: ARG002
        params: types.ElicitRequestParams,
    ) -> types.ElicitResult:
        """Ask the user on behalf of the call that the question belongs to.

        Older servers do not say which one that is: then it must be clear whose user is meant.
        """
        await trio.lowlevel.checkpoint()
        call = CURRENT_CALL.get()
        if call is None and len({one.session_id for one in self._calls}) == 1:
            call = next(iter(self._calls))
        if call is None:
            log.warning("mcp_question_declined", server=self._owner.name, calls=len(self._calls))
            return types.ElicitResult(action="decline")
        return await call.ask(params)

    async def _listen(self) -> None:
        """Ask a server of the newer kind to say when its list changes; others do without."""
        if self._client.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            return
        while True:
            with suppress(MCPError, SubscriptionLost):
                async with self._client.listen(tools_list_changed=True) as changes:
                    async for _ in changes:
                        self._changed.set()
            await trio.sleep(LISTEN_RETRY_S)

    async def _update_tools(self) -> None:
        while True:
            await self._changed.wait()
            # What comes meanwhile is part of the same change.
            await trio.sleep(CHANGE_DEBOUNCE_S)
            self._changed = trio.Event()
            try:
                self._owner.tools_changed(await self._list_tools())
            except (MCPError, ValidationError) as error:
                log.warning("mcp_tools_not_listed", server=self._owner.name, reason=str(error))

    async def _list_tools(self) -> tuple[ListedTool, ...]:
        """The tools that it has and that can be offered."""
        found: list[ListedTool] = []
        cursor: str | None = None
        for _ in range(PAGES_MAX):
            page = await self._client.list_tools(cursor=cursor)
            found += (one for tool in page.tools if (one := self._offered_tool(tool)))
            cursor = page.next_cursor
            if not cursor:
                break
        if cursor or len(found) > TOOLS_MAX:
            log.warning("mcp_tools_left_out", server=self._owner.name, offered=TOOLS_MAX)
        return tuple(found[:TOOLS_MAX])

    def _offered_tool(self, tool: types.Tool) -> ListedTool | None:
        """The tool as it is offered; one that can't be called, or that no provider takes, is not.

        A tool that wants to be run as a task of the server's can't be called.
        """
        if tool.execution and tool.execution.task_support == "required":
            return None
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


class _ConnectionEnd(NamedTuple):
    """How a connection ended: why, and whether its server may know another way to begin."""

    problem: str
    needs_auto_handshake: bool = False


async def _run_over_stdio(owner: ServerOwner, handshake: Handshake) -> _ConnectionEnd:
    settings, environment = owner.settings, owner.environment
    try:
        variables = environment.variables(settings)
        service = Service(settings.command or (), directory_of(settings, environment), variables)
    except (EnvironmentProblem, CommandProblem) as problem:
        return _ConnectionEnd(str(problem).rstrip("."))
    transport = StdioTransport(owner.name, service, environment.secrets(settings))
    try:
        async with trio.open_nursery() as nursery:
            for task in (transport.read, transport.write, transport.log_stderr):
                nursery.start_soon(task)
            end = await _run_transport(owner, transport, transport, handshake)
            nursery.cancel_scope.cancel()
    finally:
        ended = await service.end()
        if ended.survivors:
            log.error("mcp_server_survives", server=owner.name, processes=ended.survivors)
    return end


async def _run_over_http(owner: ServerOwner, handshake: Handshake) -> _ConnectionEnd:
    line = HttpTransport(owner.settings, owner.environment.key(owner.settings))
    async with line.client:
        try:
            return await _run_transport(owner, line.transport(), line, handshake)
        finally:
            await line.end_session()


async def _run_transport(
    owner: ServerOwner, streams: Streams, transport: McpTransport, handshake: Handshake
) -> _ConnectionEnd:
    """Talk to a server over `streams` until its `transport` has ended."""
    line = McpClient(owner, streams, transport, handshake)
    try:
        await line.serve()
    except Exception as error:
        leaves = list(_leaves(error))
        codes = {leaf.code for leaf in leaves if isinstance(leaf, MCPError)}
        other = handshake == "legacy" and not line.initialized and bool(codes & HANDSHAKE_REJECTED)
        return _ConnectionEnd(_describe_failure(leaves, transport), other)
    return _ConnectionEnd(transport.end_reason())


def _describe_failure(leaves: list[BaseException], transport: McpTransport) -> str:
    """Why a server could not be used, as a clause; raises what is a defect of ours."""
    for leaf in leaves:
        match leaf:
            case MCPError():
                return _describe_error(leaf, transport)
            case httpx2.HTTPError():
                return f"it can't be reached: {leaf or type(leaf).__name__}"
            case HttpTransportProblem():
                return str(leaf)
            case ValidationError():
                return f"it does not speak MCP as it should: {_first_line(leaf)}"
            case _:
                pass
    raise leaves[0]


def _describe_error(error: MCPError, transport: McpTransport) -> str:
    """What an error says, as a clause."""
    if (error.code, error.message) in (CLOSED, BAD_STATUS):
        return transport.end_reason()
    return f"it answered: {error.message.rstrip('.')}"


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
