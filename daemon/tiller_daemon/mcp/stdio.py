"""The stdio transport: one message per line over the pipes of a program.

The MCP package's own transport is not used, because it starts and stops programs itself. Programs
that we start are marked, so that a later daemon finds leftovers, and end together with all their
descendants (`processes.server_process`).
"""

import json
import re
from collections.abc import Iterable
from typing import Any, Final

import anyio
import mcp_types as types
import structlog
import trio
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from tiller_daemon.processes.server_process import ServerProcess
from tiller_daemon.redaction.byte_stream import ByteRedactor

log = structlog.get_logger()

READ_BYTES: Final = 1 << 16
LINE_BYTES_MAX: Final = 32 * 1024 * 1024
"""Longest message. Images have several megabytes, and base64 adds a third."""

SKIPPED_BYTES_MAX: Final = 8 * LINE_BYTES_MAX
"""How much of a longer message is skipped. If it still goes on, it may have no end, so the server
is ended."""

EDGE_BYTES: Final = 200
"""How much of the start and of the end of a skipped message is searched for the id of its call."""

_ID: Final = rb'"id"\s*:\s*(\d+)\s*'
_VERSION: Final = rb'"jsonrpc"\s*:\s*"2\.0"\s*'
_ID_AT_START: Final = re.compile(rb"\s*\{\s*(?:" + _VERSION + rb",\s*)?" + _ID + rb",")
_ID_AT_END: Final = re.compile(rb",\s*" + _ID + rb"(?:,\s*" + _VERSION + rb")?\}\s*\Z")
"""Servers write the id before or after the result, whose own ids can't be in these places."""

OUTGOING_MAX: Final = 64
"""Messages queued for a server that does not read, so that a cancelled call need not wait."""

LOGGED_LINES_MAX: Final = 500
LOGGED_CHARS_MAX: Final = 500
"""How much of a server's other output is logged per process."""

STDERR_TAIL_CHARS: Final = 400
"""How much of the end of standard error is reported if the server does not start."""

EXIT_S: Final = 2.0
"""How long to wait for the exit status of a program that has closed its output.

Under load, an exiting program may need this long. If the program keeps running, we give up."""

TOO_LONG: Final = f"a message of more than {LINE_BYTES_MAX} bytes"

IncomingItem = SessionMessage | Exception


class StdioTransport:
    """A transport over a program's pipes; see `McpTransport`.

    The owner runs the tasks `read`, `write` and `log_stderr`. `stderr_tail` holds the last
    characters of standard error.
    """

    def __init__(self, server: str, service: ServerProcess, secrets: Iterable[str]) -> None:
        self.ended: Final = trio.Event()
        self.session_expired: Final = False
        """Always false: the session lives and ends with the program."""
        self.stderr_tail = ""
        self._server = server
        self._service = service
        self._secrets = tuple(secrets)
        self._stderr_ended = trio.Event()
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

    async def __aexit__(self, *_: object) -> None:
        for stream in (
            self._incoming_send,
            self._incoming_receive,
            self._outgoing_send,
            self._outgoing_receive,
        ):
            stream.close()

    def end_reason(self) -> str:
        """Return why the server's output ended, in whole sentences."""
        how = self._problem or self._service.how_it_ended()
        text = " ".join(self.stderr_tail.split())
        return f"{how} Its standard error ends with `{text}`." if text else how

    async def read(self) -> None:
        """Forward messages from the server until its output ends, then set `ended`."""
        buffer, searched = bytearray(), 0
        try:
            while piece := await self._service.stdout.receive_some(READ_BYTES):
                buffer += piece
                while (end := buffer.find(b"\n", searched)) >= 0:
                    line = bytes(buffer[:end])
                    del buffer[: end + 1]
                    searched = 0
                    await self._handle_line(line)
                # Continue the search here: a long line arrives in many pieces.
                searched = len(buffer)
                if searched > LINE_BYTES_MAX:
                    rest = await self._skip_line(buffer[:EDGE_BYTES], buffer[-EDGE_BYTES:])
                    if rest is None:
                        self._problem = f"It sent {TOO_LONG}."
                        return
                    buffer, searched = rest, 0
            await self._end()
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass  # the client has closed its side
        finally:
            self._incoming_send.close()
            self.ended.set()

    async def _skip_line(self, start: bytearray, end: bytearray) -> bytearray | None:
        """Skip a message that is too long, fail the call that it answers, and return what follows.

        `start` and `end` are the edges of what was read. Returns `None` if the message does not
        end or answers no call that can be found.
        """
        skipped = 0
        while skipped < SKIPPED_BYTES_MAX:
            piece = await self._service.stdout.receive_some(READ_BYTES)
            skipped += len(piece)
            last, line_ends, rest = piece.partition(b"\n")
            end = (end + last)[-EDGE_BYTES:]
            if line_ends:
                found = _ID_AT_START.match(start) or _ID_AT_END.search(end)
                if found is None:
                    return None
                error = types.ErrorData(code=types.INTERNAL_ERROR, message=f"{TOO_LONG}.")
                answer = types.JSONRPCError(jsonrpc="2.0", id=int(found[1]), error=error)
                await self._incoming_send.send(SessionMessage(answer))
                return bytearray(rest)
            if not piece:
                return None
        return None

    async def write(self) -> None:
        """Forward messages to the server. If the server closes its input, the transport ends."""
        async for message in self._outgoing_receive:
            line = message.message.model_dump_json(by_alias=True, exclude_unset=True)
            try:
                await self._service.stdin.send_all(line.encode() + b"\n")
            except trio.BrokenResourceError:
                await self._end()
                return

    async def _end(self) -> None:
        """End, after a short wait for the status and standard error that `end_reason` reports."""
        with trio.move_on_after(EXIT_S):
            await self._service.exited()
            await self._stderr_ended.wait()
        self._incoming_send.close()
        self.ended.set()

    async def log_stderr(self) -> None:
        """Copy standard error to the daemon's log, redacted and up to a limit."""
        rest, redaction = b"", ByteRedactor(self._secrets)
        while piece := await self._service.stderr.receive_some(READ_BYTES):
            shown = redaction.feed(piece)
            self.stderr_tail = (self.stderr_tail + shown.decode(errors="replace"))[
                -STDERR_TAIL_CHARS:
            ]
            *lines, rest = (rest + shown).split(b"\n")
            for line in lines:
                self._log_line(line.decode(errors="replace"))
            rest = rest[:LOGGED_CHARS_MAX]
        self._log_line((rest + redaction.end()).decode(errors="replace"))
        self._stderr_ended.set()

    async def _handle_line(self, line: bytes) -> None:
        if not line.strip():
            return
        try:
            message = _parsed(line)
        except (ValueError, RecursionError):
            text = ByteRedactor(self._secrets).feed(line)
            self._log_line(text[:LOGGED_CHARS_MAX].decode(errors="replace"))
            return
        await self._incoming_send.send(SessionMessage(message))

    def _log_line(self, text: str) -> None:
        self._logged += 1
        if self._logged <= LOGGED_LINES_MAX and text.strip():
            log.info(
                "mcp_server_output", server=self._server, text=text[:LOGGED_CHARS_MAX].rstrip()
            )
        elif self._logged == LOGGED_LINES_MAX + 1:
            log.info(
                "mcp_server_output", server=self._server, text="… further output is not logged"
            )


def _parsed(line: bytes) -> types.JSONRPCMessage:
    """Return the message in a line. Raises `ValueError` or `RecursionError` if there is none.

    Invalid UTF-8 and unpaired surrogates are replaced.
    """
    try:
        return types.jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValidationError:
        text = json.dumps(json.loads(line.decode(errors="replace")), ensure_ascii=False)
        whole = text.encode(errors="replace")
        return types.jsonrpc_message_adapter.validate_json(whole, by_name=False)
