"""JSON-RPC over the pipes of a language server: requests and responses in both directions.

A malformed message ends the connection; `end_reason` says why. Only the server's own tasks use the
connection, so a turn never waits for a pipe.
"""

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
import structlog
import trio
from msgspec import Raw

from tiller_daemon.lsp.framing import BadFrame, FrameDecoder, encode_frame
from tiller_daemon.lsp.messages import (
    METHOD_NOT_FOUND,
    Incoming,
    MalformedMessage,
    ResponseError,
    decode,
)
from tiller_daemon.processes.server_process import ServerProcess

log = structlog.get_logger()

READ_BYTES: Final = 1 << 16

OUTGOING_BYTES_MAX: Final = 32 * 1024 * 1024
"""Maximum number of bytes queued for a server that does not read: thirty of the largest files."""

RESPONSE_S_MAX: Final = 60.0
"""A server that takes longer to respond counts as hung; large projects take some ten seconds."""

LOGGED_LINES_MAX: Final = 200
LOGGED_CHARS_MAX: Final = 300
"""How much of standard error is logged (at level `debug`) per process."""

EXIT_S: Final = 2.0
"""How long to wait for the exit status of a program that has closed its output.

Under load, an exiting program may need this long. If the program keeps running, we give up."""

Handler = Callable[[Raw], Any]
"""Handles a request or a notification from the server; returns the result of a request."""


class ConnectionLost(Exception):
    """The connection ended before the response came."""


class ErrorResponse(Exception):
    """The server responded with an error."""

    def __init__(self, error: ResponseError) -> None:
        super().__init__(error.message)
        self.code = error.code


class _PendingRequest:
    """A request in flight. If it is `completed` without a `response`, the connection has ended."""

    def __init__(self) -> None:
        self.completed = trio.Event()
        self.response: Incoming | None = None


class JsonRpcConnection:
    """A connection to a server. Its owner runs `run`, which returns when the connection ends."""

    def __init__(self, name: str, service: ServerProcess, handlers: Mapping[str, Handler]) -> None:
        self._name = name
        self._service = service
        self._handlers = handlers
        self._pending: dict[int, _PendingRequest] = {}
        self._last_id = 0
        self._outgoing: deque[bytes] = deque()
        self._outgoing_bytes = 0
        self._outgoing_added = trio.Event()
        self._ended = trio.Event()
        self._problem = ""
        self._logged = 0

    async def run(self) -> None:
        """Read and write until the server exits or sends a malformed message."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._read)
            nursery.start_soon(self._write)
            nursery.start_soon(self._log_stderr)
            await self._ended.wait()
            nursery.cancel_scope.cancel()

    def close(self, problem: str) -> None:
        """End the connection. Of several problems, only the first is kept."""
        self._problem = self._problem or problem
        self._ended.set()
        for pending in self._pending.values():
            pending.completed.set()

    def end_reason(self) -> str:
        """Return the reason why the connection ended, as a sentence."""
        return self._problem or self._service.how_it_ended()

    def notify(self, method: str, params: Any) -> None:  # noqa: ANN401 - JSON
        """Send a notification."""
        self._send({"method": method, "params": params})

    async def request(self, method: str, params: Any) -> Raw:  # noqa: ANN401 - JSON
        """Send a request and return the result; raises `ConnectionLost` and `ErrorResponse`."""
        self._last_id += 1
        number, pending = self._last_id, _PendingRequest()
        self._pending[number] = pending
        self._send({"id": number, "method": method, "params": params})
        try:
            with trio.move_on_after(RESPONSE_S_MAX) as limit:
                await pending.completed.wait()
        finally:
            del self._pending[number]
        if limit.cancelled_caught:
            # Later requests would hang as well, so give up on the server.
            self.close(f"It did not respond to {method} within {RESPONSE_S_MAX:g} s.")
        if pending.response is None:
            raise ConnectionLost
        if pending.response.error is not None:
            raise ErrorResponse(pending.response.error)
        return pending.response.result

    def _send(self, message: dict[str, Any]) -> None:
        data = encode_frame(msgspec.json.encode({"jsonrpc": "2.0", **message}))
        self._outgoing.append(data)
        self._outgoing_bytes += len(data)
        if self._outgoing_bytes > OUTGOING_BYTES_MAX:
            self.close("It does not read the messages sent to it.")
        self._outgoing_added.set()

    async def _read(self) -> None:
        frames = FrameDecoder()
        try:
            while piece := await self._service.stdout.receive_some(READ_BYTES):
                for body in frames.feed(piece):
                    self._handle(decode(body, Incoming, "a message"))
                    # A flood of messages must not block the event loop.
                    await trio.lowlevel.checkpoint()
        except (BadFrame, MalformedMessage) as problem:
            self.close(str(problem))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        with trio.move_on_after(EXIT_S):
            await self._service.exited()
        self.close("")  # `end_reason` then reports the exit status

    async def _write(self) -> None:
        while True:
            while self._outgoing:
                data = self._outgoing.popleft()
                self._outgoing_bytes -= len(data)
                try:
                    await self._service.stdin.send_all(data)
                except (trio.BrokenResourceError, trio.ClosedResourceError):
                    return  # `_read` notices the end as well and closes the connection
            self._outgoing_added = trio.Event()
            await self._outgoing_added.wait()

    async def _log_stderr(self) -> None:
        """Copy standard error to the daemon's log, up to a limit."""
        while piece := await self._service.stderr.receive_some(READ_BYTES):
            for line in piece.decode(errors="replace").splitlines():
                self._logged += 1
                if self._logged <= LOGGED_LINES_MAX and line.strip():
                    text = line[:LOGGED_CHARS_MAX].rstrip()
                    log.debug("language_server_output", server=self._name, text=text)

    def _handle(self, message: Incoming) -> None:
        if message.method is None:
            pending = self._pending.get(message.id) if isinstance(message.id, int) else None
            if pending is not None and pending.response is None:
                pending.response = message
                pending.completed.set()
            return
        handler = self._handlers.get(message.method)
        if message.id is None:
            if handler is not None:
                handler(message.params)
        elif handler is not None:
            self._send({"id": message.id, "result": handler(message.params)})
        else:
            # Without a response, the server might wait forever.
            error = {"code": METHOD_NOT_FOUND, "message": f"{message.method} is not supported"}
            self._send({"id": message.id, "error": error})
