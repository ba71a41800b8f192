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
from tiller_daemon.redaction.byte_stream import ByteRedactor

log = structlog.get_logger()

READ_BYTES: Final = 1 << 16
LINE_BYTES_MAX: Final = 32 * 1024 * 1024
"""Longest message; an image of some megabytes is a third longer as text."""

WAITING_MAX: Final = 64
"""Messages that wait until the server reads them: a cancelled call must not wait for that."""

LOGGED_LINES_MAX: Final = 500
LOGGED_CHARS_MAX: Final = 500
"""How much of what a server says beside its messages goes into the daemon's log, in one life."""

LAST_WORDS_CHARS: Final = 400
"""How much of that is told when it could not be started."""

EXIT_S: Final = 0.2
"""How long a program that has closed its output may take to exit, so that its status is known."""

Message = SessionMessage | Exception


class Pipes:
    """A transport over a service's pipes; its tasks are `read`, `write` and `log_errors`.

    `last_words` is the end of what the server said on standard error. `ended` is set when nothing
    comes from it any more.
    """

    def __init__(self, server: str, service: Service, secrets: Iterable[str]) -> None:
        self.ended: Final = trio.Event()
        self.last_words = ""
        self._server = server
        self._service = service
        self._secrets = tuple(secrets)
        self._logged = 0
        self._broken = ""
        self._arrived, self._arriving = anyio.create_memory_object_stream[Message](0)
        self._leaving, self._left = anyio.create_memory_object_stream[SessionMessage](WAITING_MAX)

    async def __aenter__(self) -> tuple[Any, Any]:
        return self._arriving, self._leaving

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for stream in (self._arrived, self._arriving, self._leaving, self._left):
            stream.close()

    @property
    def is_forgotten(self) -> bool:
        """Never: a program that ends takes its pipes with it."""
        return False

    def how_it_ended(self) -> str:
        """Why nothing comes any more, as a clause."""
        status = self._service.status()
        if self._broken:
            how = self._broken
        elif status is None:
            how = "it closed its output"
        elif status < 0:
            how = f"it was killed by {signal.Signals(-status).name}"
        else:
            how = f"it ended with status {status}"
        said = " ".join(self.last_words.split())
        return f"{how}; its last words were: {said}" if said else how

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
                    await self._take(line)
                searched = len(buffer)
                if searched > LINE_BYTES_MAX:
                    self._broken = f"it sent a message of more than {LINE_BYTES_MAX} bytes"
                    return
            with trio.move_on_after(EXIT_S):
                await self._service.exited()
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass  # nobody listens any more
        finally:
            self._arrived.close()
            self.ended.set()

    async def write(self) -> None:
        """Pass on what is said to the server. One that has closed its input has ended."""
        async for message in self._left:
            line = message.message.model_dump_json(by_alias=True, exclude_unset=True)
            try:
                await self._service.stdin.send_all(line.encode() + b"\n")
            except trio.BrokenResourceError:
                self._arrived.close()
                self.ended.set()
                return

    async def log_errors(self) -> None:
        """Put what the server complains of into the daemon's log, up to a bound."""
        rest, redaction = b"", ByteRedactor(self._secrets)
        while piece := await self._service.stderr.receive_some(READ_BYTES):
            shown = redaction.feed(piece)
            self.last_words = (self.last_words + shown.decode(errors="replace"))[-LAST_WORDS_CHARS:]
            *lines, rest = (rest + shown).split(b"\n")
            for line in lines:
                self._note(line.decode(errors="replace"))
            rest = rest[:LOGGED_CHARS_MAX]
        self._note((rest + redaction.end()).decode(errors="replace"))

    async def _take(self, line: bytes) -> None:
        if not line.strip():
            return
        try:
            message = _parsed(line)
        except (ValueError, RecursionError):
            said = ByteRedactor(self._secrets).feed(line)
            self._note(said[:LOGGED_CHARS_MAX].decode(errors="replace"))
            return
        await self._arrived.send(SessionMessage(message))

    def _note(self, said: str) -> None:
        self._logged += 1
        if self._logged <= LOGGED_LINES_MAX and said.strip():
            log.info("mcp_server_said", server=self._server, said=said[:LOGGED_CHARS_MAX].rstrip())
        elif self._logged == LOGGED_LINES_MAX + 1:
            log.info("mcp_server_said", server=self._server, said="… more, which is not logged")


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
