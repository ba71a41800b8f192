"""The MCP client: runs one connection to a server, lists the server's tools and calls them.

This module and `calls`, `http`, `stdio`, `elicitation`, `mending` and `results` import the MCP
package, so they are loaded only when the first server starts.
"""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, TypeVar, cast

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
from tiller_daemon.mcp.base import CallNotSent, McpTransport, ServerUnavailable
from tiller_daemon.mcp.calls import CURRENT_CALL, ConnectionEnded, McpCall
from tiller_daemon.mcp.environment import EnvironmentProblem
from tiller_daemon.mcp.http import AUTHORIZATION, HttpTransport, HttpTransportProblem
from tiller_daemon.mcp.listing import list_prompts, list_tools
from tiller_daemon.mcp.managed_server import ManagedServer
from tiller_daemon.mcp.mending import MendedStreams
from tiller_daemon.mcp.oauth import StoredLoginAuth
from tiller_daemon.mcp.results import make_content, make_result
from tiller_daemon.mcp.stdio import StdioTransport
from tiller_daemon.processes.command import CommandProblem
from tiller_daemon.processes.server_process import ServerProcess
from tiller_daemon.tools.base import ToolEnvironment, ToolFailure, ToolResult

log = structlog.get_logger()

T = TypeVar("T")

Streams = AbstractAsyncContextManager[tuple[Any, Any]]
"""The transport that the MCP package reads and writes: its own for HTTP, or `StdioTransport`."""

CHANGE_DEBOUNCE_S: Final = 0.1
"""How long to wait before listing changed tools again: changes come in bursts."""

LISTEN_RETRY_S: Final = 10.0
"""The pause before a new subscription to changes, after a server has ended the last one."""

_LISTS_CHANGED: Final = (
    types.ToolListChangedNotification,
    types.PromptListChangedNotification,
)

Handshake = Literal["legacy", "auto"]
"""How the MCP package opens a connection; nearly all servers support the `legacy` handshake."""

HANDSHAKE_REJECTED: Final = frozenset(
    {
        types.INVALID_REQUEST,
        types.INVALID_PARAMS,
        types.METHOD_NOT_FOUND,
        types.UNSUPPORTED_PROTOCOL_VERSION,
    }
)
"""Error codes with which a server rejects the legacy handshake."""

CLOSED: Final = (types.CONNECTION_CLOSED, "Connection closed")
"""How the package reports an ended connection; servers may use the same code."""

BAD_STATUS: Final = (types.INTERNAL_ERROR, "Server returned an error response")
"""How the package reports any HTTP error status."""


async def run_client(owner: ManagedServer) -> None:
    """Connect `owner` to its server and serve calls until the connection ends.

    Always ends by raising `ServerUnavailable` with the reason. Cancellation ends the server's
    program and all its descendants.
    """
    connect = _run_over_http if owner.settings.url else _run_over_stdio
    # Nearly all servers support the legacy handshake, so the other one is tried second.
    end = await connect(owner, "legacy")
    if end.needs_auto_handshake:
        end = await connect(owner, "auto")
    raise ServerUnavailable(end.problem, needs_login=end.needs_login)


class McpClient:
    """A connection over `streams`, for any number of calls at the same time.

    `serve` owns the connection's tasks. `initialized` is true once the server has answered the
    handshake.
    """

    def __init__(
        self, owner: ManagedServer, streams: Streams, transport: McpTransport, handshake: Handshake
    ) -> None:
        self.initialized = False
        self._owner = owner
        self._transport = transport
        self._changed = trio.Event()
        self._calls: set[McpCall] = set()
        self._nursery: trio.Nursery | None = None
        self._client = Client(
            MendedStreams(owner.name, streams),
            mode=handshake,
            cache=None,
            client_info=types.Implementation(name="tiller", version=DAEMON_VERSION),
            message_handler=self._on_message,
            elicitation_callback=self._elicit,
        )

    @property
    def is_over(self) -> bool:
        """Whether the connection has ended, even if the reason is not known yet."""
        return self._transport.ended.is_set() or self._transport.session_expired

    async def serve(self) -> None:
        """Serve calls until the transport ends."""
        try:
            async with self._client, trio.open_nursery() as nursery:
                self.initialized = True
                name = self._owner.name
                tools = await list_tools(name, self._client)
                prompts = await list_prompts(self._client)
                self._nursery = nursery
                nursery.start_soon(self._update_tools)
                nursery.start_soon(self._listen)
                self._owner.connected(self, tools, prompts)
                await self._transport.ended.wait()
                nursery.cancel_scope.cancel()
        finally:
            self._nursery = None
            self._transport.ended.set()

    async def call(
        self, tool: str, arguments: dict[str, Any], environment: ToolEnvironment
    ) -> ToolResult:
        """Make a call. Raises `ToolFailure`, or `CallNotSent` if a new connection may succeed.

        When cancelled, it returns at once; the server is notified in the background.
        """
        call = McpCall(self._owner.name, tool, arguments, environment)
        named = f"{self._owner.name}/{tool}"
        if self._nursery is None or self.is_over:
            raise CallNotSent(self._not_sent_message())
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
                # The server rejected the request because of its session id, before making the call.
                raise CallNotSent(self._not_sent_message()) from None
            raise ToolFailure(
                f"{named} failed. {_describe_error(error, self._transport)}"
            ) from None
        except ValidationError:
            raise ToolFailure(f"{named} answered with an invalid result.") from None
        except RuntimeError as error:
            # The package raises this if a result does not match the tool's output schema.
            raise ToolFailure(f"{named} violated its own output schema: {error}") from None
        finally:
            self._calls.remove(call)
            # Other calls in the expired session may still be answered, so the last one ends it.
            if self._transport.session_expired and not self._calls:
                self._transport.ended.set()
        return await make_result(answer, environment)

    async def prompt(self, name: str, arguments: dict[str, str]) -> ToolResult:
        """Return the text of a prompt. Raises the same errors as `call`."""
        request = partial(self._client.get_prompt, name, arguments)
        answer = await self._ask(f"the prompt {name}", request)
        return await make_content([message.content for message in answer.messages])

    async def resource(self, uri: str) -> ToolResult:
        """Return the content of a resource. Raises the same errors as `call`."""
        answer = await self._ask(uri, partial(self._client.read_resource, uri))
        return await make_content([types.EmbeddedResource(resource=one) for one in answer.contents])

    async def _ask(self, what: str, request: Callable[[], Awaitable[T]]) -> T:
        """Make a request outside a turn. The caller must set a time limit."""
        if self.is_over:
            raise CallNotSent(self._not_sent_message())
        server = f"The MCP server {self._owner.name}"
        try:
            return await request()
        except MCPError as error:
            reason = _describe_error(error, self._transport)
            raise ToolFailure(f"{server} did not provide {what}. {reason}") from None
        except (ValidationError, RuntimeError):
            raise ToolFailure(f"{server} sent an invalid answer for {what}.") from None
        finally:
            if self._transport.session_expired and not self._calls:
                self._transport.ended.set()

    def _lost_message(self) -> str:
        how = self._transport.end_reason()
        return (
            f"The connection to the MCP server {self._owner.name} was lost during the call. {how} "
            "The call may or may not have had an effect. The next call connects again."
        )

    def _not_sent_message(self) -> str:
        how = self._transport.end_reason()
        return (
            f"The connection to the MCP server {self._owner.name} was lost before this call. {how} "
            "The call had no effect. The next call connects again."
        )

    async def _on_message(self, message: object) -> None:
        """Handle a notification from the server."""
        await trio.lowlevel.checkpoint()
        if isinstance(message, _LISTS_CHANGED):
            self._changed.set()

    async def _elicit(
        self,
        context: object,  # noqa: ARG002
        params: types.ElicitRequestParams,
    ) -> types.ElicitResult:
        """Ask the user on behalf of the call that the question belongs to.

        Older servers do not name the call. Their questions are declined unless all calls in flight
        belong to one session.
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
        """Subscribe to changes of the server's lists; older protocols need no subscription."""
        if self._client.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            return
        while True:
            with suppress(MCPError, SubscriptionLost):
                async with self._client.listen(
                    tools_list_changed=True, prompts_list_changed=True
                ) as changes:
                    async for _ in changes:
                        self._changed.set()
            await trio.sleep(LISTEN_RETRY_S)

    async def _update_tools(self) -> None:
        while True:
            await self._changed.wait()
            # The listing after this wait also covers notifications that arrive during the wait.
            await trio.sleep(CHANGE_DEBOUNCE_S)
            self._changed = trio.Event()
            try:
                tools = await list_tools(self._owner.name, self._client)
                self._owner.tools_changed(tools, await list_prompts(self._client))
            except (MCPError, ValidationError) as error:
                log.warning("mcp_tools_not_listed", server=self._owner.name, reason=str(error))


class _ConnectionEnd(NamedTuple):
    """Why a connection ended, and what the next attempt needs."""

    problem: str
    needs_auto_handshake: bool = False
    needs_login: bool = False


async def _run_over_stdio(owner: ManagedServer, handshake: Handshake) -> _ConnectionEnd:
    settings, environment = owner.settings, owner.environment
    try:
        variables = environment.variables(settings)
        directory = Path(settings.cwd) if settings.cwd else environment.home
        service = ServerProcess(settings.command or (), directory, variables)
    except (EnvironmentProblem, CommandProblem) as problem:
        return _ConnectionEnd(str(problem))
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


async def _run_over_http(owner: ManagedServer, handshake: Handshake) -> _ConnectionEnd:
    settings, environment = owner.settings, owner.environment
    key, url, auth = environment.key(settings), settings.url or "", None
    if key is None and environment.logins.read(owner.name, url):
        auth = StoredLoginAuth(owner.name, url, environment.logins, environment.web)
    own_header = AUTHORIZATION in map(str.lower, settings.headers)
    advice = (
        f"If it requires a login, run `tiller mcp login {owner.name}`. If it requires a key, set "
        "`api_key_env`."
    )
    if environment.key_advice:
        advice = environment.key_advice
    elif own_header:
        advice = "Check the header `Authorization` in `headers`."
    transport = HttpTransport(settings, key, auth, advice)
    async with transport.client:
        try:
            end = await _run_transport(owner, transport.streams(), transport, handshake)
            return end._replace(
                needs_login=not (key or own_header or environment.key_advice)
                and transport.is_unauthorized
            )
        finally:
            await transport.end_session()


async def _run_transport(
    owner: ManagedServer, streams: Streams, transport: McpTransport, handshake: Handshake
) -> _ConnectionEnd:
    """Serve the owner's calls over `streams` until `transport` ends."""
    client = McpClient(owner, streams, transport, handshake)
    try:
        await client.serve()
    except Exception as error:
        leaves = list(_leaves(error))
        codes = {leaf.code for leaf in leaves if isinstance(leaf, MCPError)}
        retry = (
            handshake == "legacy" and not client.initialized and bool(codes & HANDSHAKE_REJECTED)
        )
        return _ConnectionEnd(_describe_failure(leaves, transport), retry)
    return _ConnectionEnd(transport.end_reason())


def _describe_failure(leaves: list[BaseException], transport: McpTransport) -> str:
    """Return why a connection failed, in whole sentences. Raises unexpected exceptions again."""
    for leaf in leaves:
        match leaf:
            case MCPError():
                return _describe_error(leaf, transport)
            case httpx2.HTTPError():
                return f"It can't be reached: {leaf or type(leaf).__name__}."
            case httpx2.InvalidURL():
                return f"Its `url` can't be used: {str(leaf).rstrip('.')}."
            case HttpTransportProblem():
                return str(leaf)
            case ValidationError():
                reason = " ".join(str(leaf).splitlines()[:3])
                return f"It sent an invalid MCP message: {reason}."
            case _:
                pass
    raise leaves[0]


def _describe_error(error: MCPError, transport: McpTransport) -> str:
    """Return why a request failed, in whole sentences."""
    if (error.code, error.message) in (CLOSED, BAD_STATUS):
        return transport.end_reason()
    return f"It answered: {error.message.rstrip('.')}."


def _leaves(error: BaseException) -> Iterator[BaseException]:
    """Yield the exceptions inside nested groups; the package's task groups make such groups."""
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        for inner in group.exceptions:
            yield from _leaves(inner)
    else:
        yield error
