"""A program that serves the daemon over pipes for as long as it is needed, such as an MCP server.

Ended with everything that it has started, also when the daemon is killed. What is said over the
pipes is up to the caller.
"""

import os
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Final

import trio

from tiller_daemon.processes.command import CommandProblem
from tiller_daemon.processes.process_tree import EndedProcesses, ProcessTree

EXIT_WAIT_S: Final = 0.5
"""How long it may take to leave by itself once its standard input has ended."""

TERM_GRACE_S: Final = 0.5
"""From SIGTERM to SIGKILL, when it does not."""

END_SHIELD_S: Final = 4.0
"""The longest that its end may keep the daemon from ending."""


class ServerProcess:
    """A running program; whoever starts one calls `end` in any case.

    `stdin`, `stdout` and `stderr` are pipes to it, each to be used by one task at a time.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        directory: Path,
        variables: Mapping[str, str],
        descriptors: Sequence[int] = (),
    ) -> None:
        """Start it, and let it inherit `descriptors`; raises `CommandProblem`."""
        pipes: list[tuple[int, int]] = []
        passed = {number: number for number in descriptors}
        try:
            pipes += (os.pipe() for _ in range(3))
            (stdin, _), (_, stdout), (_, stderr) = pipes
            theirs = {0: stdin, 1: stdout, 2: stderr}
            self._tree: Final = ProcessTree(arguments, directory, variables, {**theirs, **passed})
        except (OSError, ValueError) as error:
            for end in chain.from_iterable(pipes):
                os.close(end)
            raise CommandProblem(_why(error, arguments[0], directory)) from error
        for end in theirs.values():
            os.close(end)
        self.stdin: Final = trio.lowlevel.FdStream(pipes[0][1])
        self.stdout: Final = trio.lowlevel.FdStream(pipes[1][0])
        self.stderr: Final = trio.lowlevel.FdStream(pipes[2][0])
        self._ended = False

    @property
    def pid(self) -> int:
        """Its first process."""
        return self._tree.running.pid

    async def exited(self) -> None:
        """Wait until its first process has exited."""
        await self._tree.running.exited()

    async def end(
        self, exit_wait_s: float = EXIT_WAIT_S, grace_s: float = TERM_GRACE_S
    ) -> EndedProcesses:
        """End it and all that it has started; when this returns they are dead.

        It is first let to leave by itself. Cancellation does not shorten that; it takes `exit_wait_s` +
        `grace_s`, and what SIGKILL takes. Again: no effect.
        """
        ended = EndedProcesses(0, 0)
        if self._ended:
            return ended
        with trio.move_on_after(END_SHIELD_S, shield=True):
            await self.stdin.aclose()
            # Its last words must not kill it: the other pipes stay open until it has left.
            with trio.move_on_after(exit_wait_s):
                await self.exited()
            ended = await self._tree.end(grace_s)
            for pipe in (self.stdout, self.stderr):
                await pipe.aclose()
        self._tree.close()
        self._ended = True
        return ended

    def status(self) -> int | None:
        """Its exit status, negative for the signal that killed it; `None` while it runs."""
        return self._tree.running.status()


def _why(error: Exception, program: str, directory: Path) -> str:
    if isinstance(error, FileNotFoundError) and directory.is_dir():
        return f"The program {program} is not found."
    if isinstance(error, OSError):
        return f"{program} could not be started in {directory}: {error.strerror}."
    return f"{program} could not be started: {error}."
