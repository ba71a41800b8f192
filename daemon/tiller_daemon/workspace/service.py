"""A program that serves the daemon over pipes for as long as it is needed, such as an MCP server.

Started with its own marks, so that a guard and the next start find what is left of it; ended with
everything that it has started. What is said over the pipes is up to the caller.
"""

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Final

import trio

from tiller_daemon.workspace.process import CommandProblem, exited
from tiller_daemon.workspace.tree import COMMAND_MARKER, Ended, Tree, disown

LEAVE_S: Final = 0.5
"""How long it may take to leave by itself once its standard input has ended."""

TERM_GRACE_S: Final = 0.5
"""From SIGTERM to SIGKILL, when it does not."""

END_SHIELD_S: Final = 4.0
"""The longest that its end may keep the daemon from ending."""


class Service:
    """A running program; whoever starts one calls `end` in any case.

    `stdin`, `stdout` and `stderr` are pipes to it, each to be used by one task at a time. Call on
    the main thread: the child may be tied to the life of the thread that starts it.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        directory: Path,
        variables: Mapping[str, str],
        descriptors: Sequence[int] = (),
    ) -> None:
        """Start it, and let it inherit `descriptors`; raises `CommandProblem`."""
        self._tree: Final = Tree(lasting=True)
        try:
            self._process: Final = subprocess.Popen(
                arguments,
                bufsize=0,
                cwd=directory,
                env={**variables, COMMAND_MARKER: self._tree.token},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=descriptors,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            raise CommandProblem(_why(error, arguments[0], directory)) from error
        self._tree.begin(self._process.pid)
        self.stdin: Final = _pipe(self._process.stdin)
        self.stdout: Final = _pipe(self._process.stdout)
        self.stderr: Final = _pipe(self._process.stderr)

    @property
    def pid(self) -> int:
        """Its first process."""
        return self._process.pid

    async def exited(self) -> None:
        """Wait until its first process has exited."""
        await exited(self._process)

    async def end(self, leave_s: float = LEAVE_S, grace_s: float = TERM_GRACE_S) -> Ended:
        """End it and all that it has started; when this returns they are dead.

        It is first let to leave by itself. Cancellation does not shorten that; it takes `leave_s` +
        `grace_s`, and what SIGKILL takes. Again: no effect.
        """
        ended = Ended(0, 0)
        if self._process.returncode is not None:
            return ended
        with trio.move_on_after(END_SHIELD_S, shield=True):
            await self.stdin.aclose()
            # Its last words must not kill it: the other pipes stay open until it has left.
            with trio.move_on_after(leave_s):
                await self.exited()
            ended = await self._tree.end(grace_s)
            for pipe in (self.stdout, self.stderr):
                await pipe.aclose()
        self._tree.close()
        self._process.poll()
        disown(self._process.pid)
        return ended

    def status(self) -> int | None:
        """Its exit status, negative for the signal that killed it; `None` while it runs."""
        if self._process.returncode is not None:
            return self._process.returncode
        # It is left to be reaped by `end`: until then its pid means nothing else.
        found = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if found is None:
            return None
        return found.si_status if found.si_code == os.CLD_EXITED else -found.si_status


def _pipe(end: IO[bytes] | None) -> trio.lowlevel.FdStream:
    """Our end of a pipe, as a stream of trio's."""
    assert end is not None
    with end:
        return trio.lowlevel.FdStream(os.dup(end.fileno()))


def _why(error: Exception, program: str, directory: Path) -> str:
    if isinstance(error, FileNotFoundError) and directory.is_dir():
        return f"The program {program} is not found."
    if isinstance(error, OSError):
        return f"{program} could not be started in {directory}: {error.strerror}."
    return f"{program} could not be started: {error}."
