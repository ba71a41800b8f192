"""The line to a language server: requests and answers over its pipes, in both directions.

Whatever comes that can't be understood ends the connection, and `how_it_ended` says why. Only tasks
of the server use it, so that nothing of a turn ever waits for a pipe.
"""

import signal
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final

import structlog
import trio
from msgspec import Raw

from tiller_daemon.lsp.framing import Frames, NoFrame, frame
from tiller_daemon.lsp.messages import (
    METHOD_NOT_FOUND,
    BadMessage,
    ErrorObject,
    Incoming,
    decode,
    encode,
)
from tiller_daemon.processes.server_process import ServerProcess

log = structlog.get_logger()

READ_BYTES: Final = 1 << 16

WAITING_BYTES_MAX: Final = 32 * 1024 * 1024
"""How much may wait until the server reads it: some thirty files of the largest kind."""

ANSWER_S: Final = 60.0
"""A server that has not answered after so long has hung: large projects take some ten seconds."""

LOGGED_LINES_MAX: Final = 200
LOGGED_CHARS_MAX: Final = 300
"""How much of what a server says beside its messages goes into the daemon's log (at level `debug`)
in one life."""

EXIT_S: Final = 0.2
"""How long a program that has closed its output may take to exit, so that its status is known."""

Answer = Callable[[Raw], Any]
"""Makes the answer to a server's request, or takes what it tells."""


class Lost(Exception):
    """The connection has ended, so that there will be no answer."""


class Refused(Exception):
    """The server answered by an error."""

    def __init__(self, error: ErrorObject) -> None:
        super().__init__(error.message)
        self.code = error.code


class _Pending:
    """A request that waits for its answer."""

    def __init__(self) -> None:
        self.answered = trio.Event()
        self.answer: Incoming | None = None


class Connection:
    """A server's pipes as messages. `run` is its task, and ends when the connection does."""

    def __init__(self, name: str, service: ServerProcess, answers: Mapping[str, Answer]) -> None:
        self._name = name
        self._service = service
        self._answers = answers
        self._pending: dict[int, _Pending] = {}
        self._last_id = 0
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._news = trio.Event()
        self._over = trio.Event()
        self._problem = ""
        self._logged = 0

    async def run(self) -> None:
        """Read and write until the server has gone or is not to be understood."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._read)
            nursery.start_soon(self._write)
            nursery.start_soon(self._log_errors)
            await self._over.wait()
            nursery.cancel_scope.cancel()

    def end(self, problem: str) -> None:
        """End the connection, for that reason; the first one counts."""
        self._problem = self._problem or problem
        self._over.set()
        for pending in self._pending.values():
            pending.answered.set()

    def how_it_ended(self) -> str:
        """Why nothing comes any more, as a clause."""
        status = self._service.status()
        if self._problem:
            return self._problem
        if status is None:
            return "it closed its output"
        if status < 0:
            return f"it was killed by {signal.Signals(-status).name}"
        return f"it ended with status {status}"

    def notify(self, method: str, params: Any) -> None:  # noqa: ANN401 - JSON
        """Tell the server something."""
        self._send({"method": method, "params": params})

    async def request(self, method: str, params: Any) -> Raw:  # noqa: ANN401 - JSON
        """Ask the server something; raises `Lost` and `Refused`."""
        self._last_id += 1
        number, pending = self._last_id, _Pending()
        self._pending[number] = pending
        self._send({"id": number, "method": method, "params": params})
        try:
            with trio.move_on_after(ANSWER_S) as limit:
                await pending.answered.wait()
        finally:
            del self._pending[number]
        if limit.cancelled_caught:
            self.end(f"it did not answer {method} within {ANSWER_S:g} s")
        if pending.answer is None:
            raise Lost
        if pending.answer.error is not None:
            raise Refused(pending.answer.error)
        return pending.answer.result

    def _send(self, message: dict[str, Any]) -> None:
        data = frame(encode(message))
        self._waiting.append(data)
        self._waiting_bytes += len(data)
        if self._waiting_bytes > WAITING_BYTES_MAX:
            self.end("it does not read what it is sent")
        self._news.set()

    async def _read(self) -> None:
        frames = Frames()
        try:
            while piece := await self._service.stdout.receive_some(READ_BYTES):
                for body in frames.feed(piece):
                    self._take(decode(body, Incoming, "a message"))
                    # A flood must not keep the loop from everybody else.
                    await trio.lowlevel.checkpoint()
        except (NoFrame, BadMessage) as problem:
            self.end(str(problem))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        with trio.move_on_after(EXIT_S):
            await self._service.exited()
        self.end("")

    async def _write(self) -> None:
        while True:
            while self._waiting:
                data = self._waiting.popleft()
                self._waiting_bytes -= len(data)
                try:
                    await self._service.stdin.send_all(data)
                except (trio.BrokenResourceError, trio.ClosedResourceError):
                    return  # it has gone, which reading finds out too
            self._news = trio.Event()
            await self._news.wait()

    async def _log_errors(self) -> None:
        """Put what the server complains of into the daemon's log, up to a bound."""
        while piece := await self._service.stderr.receive_some(READ_BYTES):
            for line in piece.decode(errors="replace").splitlines():
                self._logged += 1
                if self._logged <= LOGGED_LINES_MAX and line.strip():
                    said = line[:LOGGED_CHARS_MAX].rstrip()
                    log.debug("language_server_said", server=self._name, said=said)

    def _take(self, message: Incoming) -> None:
        if message.method is None:
            pending = self._pending.get(message.id) if isinstance(message.id, int) else None
            if pending is not None and pending.answer is None:
                pending.answer = message
                pending.answered.set()
            return
        answer = self._answers.get(message.method)
        if message.id is None:
            if answer is not None:
                answer(message.params)
        elif answer is not None:
            self._send({"id": message.id, "result": answer(message.params)})
        else:
            error = {"code": METHOD_NOT_FOUND, "message": f"{message.method} is not known here"}
            self._send({"id": message.id, "error": error})
