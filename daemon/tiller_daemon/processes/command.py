"""Running one command: start it, pass on its output, wait, and leave nothing of it alive.

Who belongs to a command is in `process_tree`; what becomes of its output is up to the caller.
"""

import errno
import os
import termios
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Final, NamedTuple

import trio

from tiller_daemon.processes.process_tree import Ended, Tree
from tiller_daemon.redaction.byte_stream import ByteRedactor
from tiller_daemon.sandbox.confinement import Confined, Enclosed, NotConfined

PIPE_BYTES: Final = 1 << 16
"""What a Linux pipe holds: the most that is read at once, and that is left when a command ends."""

SETTLE_S: Final = 0.15
"""How long the rest of a pipeline may take to end by itself after the shell has."""

LEFTOVER_GRACE_S: Final = 0.07
"""From SIGTERM to SIGKILL for what the shell left behind; the result is due after 250 ms."""

CANCEL_GRACE_S: Final = 0.2
"""From SIGTERM to SIGKILL when the turn was interrupted; the user waits for it."""

TIMEOUT_GRACE_S: Final = 2.0
"""From SIGTERM to SIGKILL when a command took too long; it may put things in order."""

END_SHIELD_S: Final = 5.0
"""The longest that an interrupt waits for processes to die."""

TERMINAL_ROWS: Final = 40
TERMINAL_COLUMNS: Final = 120
"""How large a terminal a command thinks it has."""


STARTS_MAX: Final = 3
"""How often a command is started whose enclosure could not be set up."""

SETUP_FAILED: Final = 1
"""The exit status of a sandbox that could not set up an enclosure."""


class CommandProblem(Exception):
    """A command that could not be started; the message says why."""


class CommandEnd(NamedTuple):
    """How a command ended.

    `status` is the shell's exit status, negative for the signal that killed it. `leftovers` were
    still alive after the shell had ended, or when time was up, and have been ended; `survivors`
    could not be.
    """

    status: int
    timed_out: bool
    leftovers: int
    survivors: int
    duration_s: float


class Input:
    """What a command is told while it runs: through a pipe, or typed at a terminal of its own.

    Handed to `run_command`, and open from then until the command has ended.
    """

    def __init__(self, *, terminal: bool) -> None:
        self.terminal: Final = terminal
        self._end: int | None = None

    def attach(self, end: int) -> None:
        """Take the end to write to; it is closed with `close`."""
        os.set_blocking(end, False)
        self._end = end

    def close(self) -> None:
        """Take no more."""
        if self._end is not None:
            os.close(self._end)
            self._end = None

    async def send(self, data: bytes) -> None:
        """Write all of `data`; waits while the command does not read. Raises `CommandProblem`."""
        while data:
            if self._end is None:
                raise CommandProblem("The command takes no input any more: it has ended.")
            try:
                data = data[os.write(self._end, data) :]
            except BlockingIOError:
                await trio.lowlevel.wait_writable(self._end)
            except OSError as error:
                message = f"The command takes no input any more: {error.strerror}."
                raise CommandProblem(message) from error


async def run_command(
    arguments: Sequence[str],
    *,
    directory: Path,
    variables: Mapping[str, str],
    receive: Callable[[bytes], Awaitable[None]],
    timeout_s: float,
    typed: Input | None = None,
    secrets: Iterable[str] = (),
    confined: Confined | None = None,
) -> CommandEnd:
    """Run `arguments` until its first process exits, and end whatever it left behind.

    Standard input is empty, or `typed`; output and errors come together, in pieces and without
    `secrets`, through `receive`, which is awaited before more is read. The answer comes at most
    `SETTLE_S` + `LEFTOVER_GRACE_S` after the exit, even if a child holds the output open. After
    `timeout_s` the whole tree is ended. Cancellation ends the tree too, within `CANCEL_GRACE_S` and
    what SIGKILL takes, before `Cancelled` goes on. Raises `CommandProblem` if there is nothing to
    run. With `confined` it runs in that sandbox.
    """
    for left in reversed(range(STARTS_MAX)):
        stack = ExitStack()
        try:
            around = confined.around(arguments) if confined else nullcontext(Enclosed(arguments))
            enclosed = stack.enter_context(around)
        except NotConfined as problem:
            raise CommandProblem(str(problem)) from problem
        helpers = confined.sandbox.helpers if confined else 0
        try:
            end = await _run(
                helpers, enclosed, directory, variables, receive, timeout_s, typed, secrets
            )
            # What it was to hide may have gone away since: then nothing was run.
            if not left or typed or end.status != SETUP_FAILED or enclosed.began():
                return end
        finally:
            await _leave(stack, enclosed)
    raise AssertionError("the last start returns")


async def _leave(stack: ExitStack, enclosed: Enclosed) -> None:
    """Leave an enclosure, beside the loop if that takes time; what it takes over is not cut off."""
    if enclosed.takes_over:
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(stack.close)
    else:
        stack.close()


async def _run(
    helpers: int,
    enclosed: Enclosed,
    directory: Path,
    variables: Mapping[str, str],
    receive: Callable[[bytes], Awaitable[None]],
    timeout_s: float,
    typed: Input | None,
    secrets: Iterable[str],
) -> CommandEnd:
    began = time.monotonic()
    if typed and typed.terminal:
        tree, pipe = _start_in_terminal(enclosed, directory, variables, typed)
    else:
        tree, pipe = _start(enclosed, directory, variables, typed)
    try:
        with _Output(pipe, receive, ByteRedactor(secrets)) as output:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(output.pass_on)
                with trio.move_on_after(timeout_s) as limit:
                    await tree.running.exited()
                timed_out = limit.cancelled_caught
                if timed_out:
                    ended = await tree.end(TIMEOUT_GRACE_S)
                else:
                    ended = await _end_leftovers(tree)
                output.finish()
    except BaseException:
        with trio.move_on_after(END_SHIELD_S, shield=True):
            await tree.end(CANCEL_GRACE_S)
        raise
    finally:
        if typed:
            typed.close()
        status = tree.running.status()
        tree.close()
    # When time is up the shell itself is among those that were ended, and who watches over it.
    others = helpers + 1 if timed_out else max(helpers - 1, 0)
    leftovers = max(ended.processes - others, 0)
    took_s = time.monotonic() - began
    return CommandEnd(status or 0, timed_out, leftovers, ended.survivors, took_s)


def _start(
    enclosed: Enclosed, directory: Path, variables: Mapping[str, str], typed: Input | None
) -> tuple[Tree, int]:
    """Start with pipes; returns the command and the end to read from."""
    reading, writing = os.pipe()
    theirs, ours = os.pipe() if typed else (os.open(os.devnull, os.O_RDONLY), None)
    try:
        tree = _spawn(enclosed, directory, variables, theirs, writing)
    except CommandProblem:
        os.close(reading)
        if ours is not None:
            os.close(ours)
        raise
    finally:
        os.close(writing)
        os.close(theirs)
    if typed and ours is not None:
        typed.attach(ours)
    return tree, reading


def _start_in_terminal(
    enclosed: Enclosed, directory: Path, variables: Mapping[str, str], typed: Input
) -> tuple[Tree, int]:
    """Start at a terminal of its own, which is also what its job control and colours go by."""
    ours, theirs = os.openpty()
    termios.tcsetwinsize(theirs, (TERMINAL_ROWS, TERMINAL_COLUMNS))
    # A leader of a session without a terminal gets the first one that it opens.
    opener = ("/bin/sh", "-c", 'exec "$@" <"$0"', os.ttyname(theirs))
    opening = Enclosed((*opener, *enclosed.arguments), enclosed.descriptors)
    named = {**variables, "TERM": "xterm-256color"}
    try:
        tree = _spawn(opening, directory, named, theirs, theirs)
    except CommandProblem:
        os.close(ours)
        raise
    finally:
        os.close(theirs)
    typed.attach(os.dup(ours))
    return tree, ours


def _spawn(
    enclosed: Enclosed,
    directory: Path,
    variables: Mapping[str, str],
    stdin: int,
    output: int,
) -> Tree:
    passed = {number: number for number in enclosed.descriptors}
    try:
        return Tree(
            enclosed.arguments, directory, variables, {0: stdin, 1: output, 2: output, **passed}
        )
    except (OSError, ValueError) as error:
        message = f"The command could not be started in {directory}: {error}."
        raise CommandProblem(message) from error


class _Output:
    """The reading end of a command's output: passes on what comes, until told to finish."""

    def __init__(
        self, pipe: int, receive: Callable[[bytes], Awaitable[None]], redaction: ByteRedactor
    ) -> None:
        self._pipe: Final = pipe
        self._receive: Final = receive
        self._redaction: Final = redaction
        self._idle = trio.CancelScope()
        self._left: int | None = None

    def __enter__(self) -> "_Output":
        os.set_blocking(self._pipe, False)
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._pipe)

    async def pass_on(self) -> None:
        while piece := await self._read():
            if clean := self._redaction.feed(piece):
                await self._receive(clean)
            # A flood must not keep the loop from everybody else.
            await trio.lowlevel.checkpoint()
        if rest := self._redaction.end():
            await self._receive(rest)

    def finish(self) -> None:
        """Read what is in the pipe now and no more, though somebody may still write to it."""
        self._left = PIPE_BYTES
        self._idle.cancel()

    async def _read(self) -> bytes:
        while self._left is None or self._left > 0:
            try:
                piece = os.read(self._pipe, PIPE_BYTES)
            except BlockingIOError:
                if self._left is not None:
                    break
            except OSError as error:
                # A terminal whose other end nobody holds any more says so by this error.
                if error.errno != errno.EIO:
                    raise
                break
            else:
                if self._left is not None:
                    self._left -= len(piece)
                return piece
            with trio.CancelScope() as self._idle:
                await trio.lowlevel.wait_readable(self._pipe)
        return b""


async def _end_leftovers(tree: Tree) -> Ended:
    """Let what the shell left behind end by itself, such as the end of a pipe, or else end it."""
    if tree.left_nothing():
        return Ended(0, 0)
    with trio.move_on_after(SETTLE_S):
        await tree.settle()
        return Ended(0, 0)
    return await tree.end(LEFTOVER_GRACE_S)
