"""The stdio transport: messages as lines over the pipes of a program.

The MCP package has one of its own, which starts and ends programs in its own way; ours are found
again by their marks, and end with all that they started (`processes.server_process`).
"""

import json
import signal
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Final

import anyio
import mcp_types as types
import structlog
import trio
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from tiller_daemon.processes.server_process import Service
from tiller_daemon.redaction.stream import Redaction

log = structlog.get_logger()

READ_BYTES: Final = 1 << 16
LINE_BYTES_MAX: Final = 32 * 1024 * 1024
"""Longest message; an image of some megabytes is a third longer as text."""

OUTGOING_MAX: Final = 64
"""Messages that wait until the server reads them: a cancelled call must not wait for that."""

LOGGED_LINES_MAX: Final = 500
LOGGED_CHARS_MAX: Final = 500
"""How much of what a server says beside its messages goes into the daemon's log, in one life."""

STDERR_TAIL_CHARS: Final = 400
"""How much of that is told when it could not be started."""

EXIT_S: Final = 0.2
"""How long a program that has closed its output may take to exit, so that its status is known."""

IncomingItem = SessionMessage | Exception


class StdioTransport:
    """A transport over a service's pipes; its tasks are `read`, `write` and `log_stderr`.

    `stderr_tail` is the end of what the server said on standard error. `ended` is set when nothing
    comes from it any more.
    """

    def __init__(self, server: str, service: Service, secrets: Iterable[str]) -> None:
        self.ended: Final = trio.Event()
        self.stderr_tail = ""
        self._server = server
        self._service = service
        self._secrets = tuple(secrets)
        self._logged = 0
        self._problem = ""
        self._incoming_send, self._incoming_receive = anyio.create_memory_object_stream[
            IncomingItem
        ](0)
        self._outgoing_send, self._outgoing_receive = anyio.create_memory_object_stream[
            SessionMessage
        ](OUTGOING_MAX)

    async def __aenter__(self) -> tuple[Any, Any]:
        return self._incoming_receive, self._outgoing_send

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for stream in (
            self._incoming_send,
            self._incoming_receive,
            self._outgoing_send,
            self._outgoing_receive,
        ):
            stream.close()

    @property
    def session_expired(self) -> bool:
        """Never: a program that ends takes its pipes with it."""
        return False

    def end_reason(self) -> str:
        """Why nothing comes any more, as a clause."""
        status = self._service.status()
        if self._problem:
            how = self._problem
        elif status is None:
            how = "it closed its output"
        elif status < 0:
            how = f"it was killed by {signal.Signals(-status).name}"
        else:
            how = f"it ended with status {status}"
        text = " ".join(self.stderr_tail.split())
        return f"{how}; its last words were: {text}" if text else how

    async def read(self) -> None:
        """Pass on what the server says, until it says no more; then `ended` is set."""
        buffer, searched = bytearray(), 0
        try:
            while piece := await self._service.stdout.receive_some(READ_BYTES):
                buffer += piece
                while (end := buffer.find(b"\n", searched)) >= 0:
                    line = bytes(buffer[:end])
                    del buffer[: end + 1]
                    searched = 0
                    await self._handle_line(line)
                searched = len(buffer)
                if searched > LINE_BYTES_MAX:
                    self._problem = f"it sent a message of more than {LINE_BYTES_MAX} bytes"
                    return
            with trio.move_on_after(EXIT_S):
                await self._service.exited()
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass  # nobody listens any more
        finally:
            self._incoming_send.close()
            self.ended.set()

    async def write(self) -> None:
        """Pass on what is said to the server. One that has closed its input has ended."""
        async for message in self._outgoing_receive:
            line = message.message.model_dump_json(by_alias=True, exclude_unset=True)
            try:
                await self._service.stdin.send_all(line.encode() + b"\n")
            except trio.BrokenResourceError:
                self._incoming_send.close()
                self.ended.set()
                return

    async def log_stderr(self) -> None:
        """Put what the server complains of into the daemon's log, up to a bound."""
        rest, redaction = b"", Redaction(self._secrets)
        while piece := await self._service.stderr.receive_some(READ_BYTES):
            shown = redaction.take(piece)
            self.stderr_tail = (self.stderr_tail + shown.decode(errors="replace"))[
                -STDERR_TAIL_CHARS:
            ]
            *lines, rest = (rest + shown).split(b"\n")
            for line in lines:
                self._log_line(line.decode(errors="replace"))
            rest = rest[:LOGGED_CHARS_MAX]
        self._log_line((rest + redaction.rest()).decode(errors="replace"))

    async def _handle_line(self, line: bytes) -> None:
        if not line.strip():
            return
        try:
            message = _parsed(line)
        except (ValueError, RecursionError):
            text = Redaction(self._secrets).take(line)
            self._log_line(text[:LOGGED_CHARS_MAX].decode(errors="replace"))
            return
        await self._incoming_send.send(SessionMessage(message))

    def _log_line(self, text: str) -> None:
        self._logged += 1
        if self._logged <= LOGGED_LINES_MAX and text.strip():
            log.info("mcp_server_output", server=self._server, text=text[:LOGGED_CHARS_MAX].rstrip())
        elif self._logged == LOGGED_LINES_MAX + 1:
            log.info("mcp_server_output", server=self._server, text="… more, which is not logged")


def _parsed(line: bytes) -> types.JSONRPCMessage:
    """A message; raises `ValueError` or `RecursionError` when it is none.

    What is no UTF-8, or half of a character in escapes, becomes a question mark.
    """
    try:
        return types.jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValidationError:
        text = json.dumps(json.loads(line.decode(errors="replace")), ensure_ascii=False)
        whole = text.encode(errors="replace")
        return types.jsonrpc_message_adapter.validate_json(whole, by_name=False)
