"""A long-running program that serves the daemon over pipes, such as an MCP server.

The program and all processes that it started are ended, even if the daemon is killed. The caller
decides what goes through the pipes.
"""

import os
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from signal import Signals
from typing import Final

import trio

from tiller_daemon.isolation import why_missing
from tiller_daemon.processes.command import CommandProblem
from tiller_daemon.processes.process_tree import EndedProcesses, ProcessTree

EXIT_WAIT_S: Final = 0.5
"""How long the program may take to exit on its own after its standard input was closed."""

TERM_GRACE_S: Final = 0.5
"""From SIGTERM to SIGKILL, if the program does not exit on its own."""

SIGNALS: Final = {number.value: number.name for number in Signals}
"""The names of signals by number."""

END_SHIELD_S: Final = 4.0
"""The longest that ending a program may delay the end of the daemon."""


class ServerProcess:
    """A running program; always call `end`.

    `stdin`, `stdout` and `stderr` are pipes to the program, each for one task at a time.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        directory: Path,
        variables: Mapping[str, str],
        descriptors: Sequence[int] = (),
    ) -> None:
        """Start the program with these inherited `descriptors`; raises `CommandProblem`."""
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
        # If these ends stayed open here, the exit of the program would close no pipe.
        for end in theirs.values():
            os.close(end)
        self.stdin: Final = trio.lowlevel.FdStream(pipes[0][1])
        self.stdout: Final = trio.lowlevel.FdStream(pipes[1][0])
        self.stderr: Final = trio.lowlevel.FdStream(pipes[2][0])
        self._ended = False

    @property
    def pid(self) -> int:
        """The pid of the program's first process."""
        return self._tree.running.pid

    async def exited(self) -> None:
        """Wait until the program's first process has exited."""
        await self._tree.running.exited()

    async def end(
        self, exit_wait_s: float = EXIT_WAIT_S, grace_s: float = TERM_GRACE_S
    ) -> EndedProcesses:
        """End the program and all processes that it started, and wait until they are dead.

        First the program gets the chance to exit on its own. This takes at most `exit_wait_s` +
        `grace_s` and the time of SIGKILL, even after a cancellation. Can be called repeatedly.
        """
        ended = EndedProcesses(0, 0)
        if self._ended:
            return ended
        with trio.move_on_after(END_SHIELD_S, shield=True):
            await self.stdin.aclose()
            # The other pipes stay open, so that writing to them does not kill the program.
            with trio.move_on_after(exit_wait_s):
                await self.exited()
            ended = await self._tree.end(grace_s)
            for pipe in (self.stdout, self.stderr):
                await pipe.aclose()
        self._tree.close()
        self._ended = True
        return ended

    def status(self) -> int | None:
        """Return the exit status, negative for the signal that killed the program.

        While the program runs, the status is None.
        """
        return self._tree.running.status()

    def how_it_ended(self) -> str:
        """Return a sentence about the end of the program, or of its output if it still runs."""
        status = self.status()
        if status is None:
            return "It closed its output."
        if status < 0:
            # Realtime signals have no names in Python.
            return f"It was killed by {SIGNALS.get(-status, f'signal {-status}')}."
        return f"It ended with status {status}."


def _why(error: Exception, program: str, directory: Path) -> str:
    if isinstance(error, FileNotFoundError) and directory.is_dir():
        return why_missing(program)
    if isinstance(error, OSError):
        return f"{program} could not be started in {directory}: {error.strerror}."
    return f"{program} could not be started: {error}."
