"""Keeps the machine awake while a session works, if the user wants it.

One program holds the system's lock against sleep: `systemd-inhibit` on Linux, `caffeinate` on a
Mac. It ends when nothing works, and with the daemon, however that ends. A turn that waits for an
answer does not work.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import structlog
import trio

from tiller_daemon.isolation import find_program, isolated, why_missing
from tiller_daemon.processes.command import CommandProblem
from tiller_daemon.processes.server_process import ServerProcess
from tiller_protocol.codec import decode_event
from tiller_protocol.events import LIFECYCLE_TOPIC, StatusChanged, TurnEnded

log = structlog.get_logger()

RETRY_S: Final = 60.0
"""How long to wait after the program has failed, for example where no systemd runs."""

SAID_S: Final = 1.0
SAID_BYTES_MAX: Final = 1_000
"""How long to wait for the reason of a failure, and how much of it is logged."""

ABOUT_STATUS: Final = (b"status_changed", b"turn_ended")
"""Every encoded event that matters here contains one of these."""

RECHECK_S: Final = 60.0
"""How often to look whether a turn is running at all: the end of one that crashed is no event."""

INHIBIT: Final = (
    "systemd-inhibit", "--what=idle:sleep", "--who=tiller", "--why=A session is at work",
    "--mode=block", "cat",
)  # fmt: skip
"""`cat` ends when the daemon closes its input, or dies."""

CAFFEINATE: Final = ("caffeinate", "-i", "-s", "cat")


class Awake:
    """Keeps the machine awake. `run` does the work; `note` never waits."""

    def __init__(
        self,
        is_wanted: Callable[[], bool],
        directory: Path,
        variables: Callable[[], Mapping[str, str]],
        command: Sequence[str] = CAFFEINATE if sys.platform == "darwin" else INHIBIT,
    ) -> None:
        """The program runs in `directory`, with `variables` as far as they load no code.

        The first and the last word of `command` are programs; the last one ends with its input.
        """
        self._is_wanted = is_wanted
        self._directory = directory
        self._variables = variables
        self._given = command
        self._working: set[str] = set()
        self._changed = trio.Event()

    def note(self, topic: str, event: bytes) -> None:
        """Take an event of any session; see `session.outbox.publish_to`."""
        if topic != LIFECYCLE_TOPIC or not any(mark in event for mark in ABOUT_STATUS):
            return
        decoded = decode_event(event)
        match decoded.body:
            case StatusChanged("busy" | "retry"):
                self._working.add(decoded.session_id)
            case StatusChanged() | TurnEnded():
                self._working.discard(decoded.session_id)
            case _:
                return
        self._changed.set()

    async def run(self, is_busy: Callable[[], bool]) -> None:
        """Hold the lock whenever a session works, until cancelled.

        `is_busy` tells whether any turn is running.
        """
        while True:
            while not self._must_hold():
                await self._next()
            await self._hold(is_busy)

    def _must_hold(self) -> bool:
        return bool(self._working) and self._is_wanted()

    async def _next(self) -> None:
        await self._changed.wait()
        self._changed = trio.Event()

    async def _hold(self, is_busy: Callable[[], bool]) -> None:
        """Run the program as long as a session works; if it fails, wait before the next attempt."""
        try:
            arguments = self._command()
            process = ServerProcess(arguments, self._directory, isolated(self._variables()))
        except CommandProblem as problem:
            await self._failed(str(problem))
            return
        said, failed = "", trio.Event()
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._until_rest, is_busy, nursery.cancel_scope)
                await process.exited()
                failed.set()
                said = await _said(process)
                nursery.cancel_scope.cancel()
        finally:
            await process.end(exit_wait_s=0)
        if failed.is_set():
            await self._failed(f"{arguments[0]}: {process.how_it_ended()} {said}".strip())

    def _command(self) -> Sequence[str]:
        """Return the command line; raises `CommandProblem`."""
        first, *between, last = self._given
        return _found(first), *between, _found(last)

    async def _until_rest(self, is_busy: Callable[[], bool], scope: trio.CancelScope) -> None:
        while self._must_hold():
            with trio.move_on_after(RECHECK_S) as silence:
                await self._next()
            if silence.cancelled_caught and not is_busy():
                self._working.clear()
        scope.cancel()

    async def _failed(self, reason: str) -> None:
        log.warning("not_kept_awake", reason=reason)
        await trio.sleep(RETRY_S)


def _found(program: str) -> str:
    """Return the trusted path of a program; raises `CommandProblem`."""
    if (path := find_program(program)) is None:
        raise CommandProblem(why_missing(program))
    return path


async def _said(process: ServerProcess) -> str:
    """Return what a program has written about its failure, in one line."""
    said = b""
    with trio.move_on_after(SAID_S):
        said = bytes(await process.stderr.receive_some(SAID_BYTES_MAX))
    return " ".join(said.decode(errors="replace").split())
