"""Runs one command: starts it, passes on its output, waits, and leaves no process behind.

`process_tree` defines which processes belong to a command; the caller decides what happens to the
output.
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

from tiller_daemon.isolation import set_inside
from tiller_daemon.processes.process_tree import EndedProcesses, ProcessTree
from tiller_daemon.processes.terminal_text import ROWS
from tiller_daemon.redaction.byte_stream import ByteRedactor
from tiller_daemon.sandbox.base import CommandSandbox, SandboxError, WrappedCommand

PIPE_BYTES: Final = 1 << 16
"""The capacity of a Linux pipe, which limits one read and the output left when a command ends."""

LEFTOVER_WAIT_S: Final = 0.15
"""How long the rest of a pipeline may take to exit on its own after the shell has exited."""

LEFTOVER_GRACE_S: Final = 0.07
"""From SIGTERM to SIGKILL for processes that outlive the shell; the result is due within 250 ms."""

CANCEL_GRACE_S: Final = 0.2
"""From SIGTERM to SIGKILL after an interrupt; short, because the user is waiting."""

TIMEOUT_GRACE_S: Final = 2.0
"""From SIGTERM to SIGKILL after a timeout, so that the command can clean up."""

END_SHIELD_S: Final = 5.0
"""The longest that an interrupt waits for processes to die."""

TERMINAL_COLUMNS: Final = 120
"""The width of a command's terminal."""


STARTS_MAX: Final = 3
"""How many times a command is started if its sandbox can't be set up."""

SETUP_FAILED: Final = 1
"""The exit status of a sandbox that can't set up a profile."""


class CommandProblem(Exception):
    """A command that could not be started; the message says why."""


class CommandEnd(NamedTuple):
    """How a command ended."""

    status: int
    """The exit status of the shell, negative for the signal that killed it."""
    timed_out: bool
    """Whether the command was ended because its time was up."""
    leftovers: int
    """How many processes were ended because they outlived the shell or the time limit."""
    survivors: int
    """How many processes could not be ended."""
    duration_s: float
    """Seconds from the start until all processes had ended."""
    has_run: bool = True
    """Whether the command itself was started, and not only its sandbox."""


class CommandInput:
    """The input of a running command: a pipe, or the command's own terminal.

    Pass this object to `run_command`, which keeps the input open until the command has ended.
    """

    def __init__(self, *, terminal: bool) -> None:
        self.terminal: Final = terminal
        self._end: int | None = None

    def attach(self, end: int) -> None:
        """Write input to the descriptor `end`, and close it in `close`."""
        # A command that does not read must not block the event loop.
        os.set_blocking(end, False)
        self._end = end

    def close(self) -> None:
        """Close the input."""
        if self._end is not None:
            os.close(self._end)
            self._end = None

    async def send(self, data: bytes) -> None:
        """Write all of `data`; wait while the command does not read. Raises `CommandProblem`."""
        while data:
            if self._end is None:
                raise CommandProblem("The command no longer takes input: it has ended.")
            try:
                data = data[os.write(self._end, data) :]
            except BlockingIOError:
                await trio.lowlevel.wait_writable(self._end)
            except OSError as error:
                message = f"The command no longer takes input: {error.strerror}."
                raise CommandProblem(message) from error


async def run_command(
    arguments: Sequence[str],
    *,
    directory: Path,
    variables: Mapping[str, str],
    receive: Callable[[bytes], Awaitable[None]],
    timeout_s: float,
    command_input: CommandInput | None = None,
    secrets: Iterable[str] | None = None,
    sandbox: CommandSandbox | None = None,
) -> CommandEnd:
    """Run `arguments` until the first process exits, and end all processes that it left behind.

    Standard input is empty, or `command_input`. `receive` gets standard output and error together,
    in pieces; no more is read until it returns. If there are `secrets`, even an empty list, the
    output is for a model, so they and the passwords in URLs are removed. With a
    `sandbox`, the command runs in it.

    Returns at most `LEFTOVER_WAIT_S` + `LEFTOVER_GRACE_S` after the exit, even if a child keeps the
    output open. After `timeout_s` all processes are ended. Cancellation ends them too, within
    `CANCEL_GRACE_S` and the time SIGKILL takes, before `Cancelled` propagates. Raises
    `CommandProblem` if the command can't be started.
    """
    if sandbox:
        arguments, variables = set_inside(arguments, variables)
    for left in reversed(range(STARTS_MAX)):
        stack = ExitStack()
        try:
            plain = nullcontext(WrappedCommand(arguments))
            wrapped = stack.enter_context(sandbox.wrap(arguments) if sandbox else plain)
        except SandboxError as problem:
            raise CommandProblem(str(problem)) from problem
        try:
            end = await _run(
                wrapped, directory, variables, receive, timeout_s, command_input, secrets
            )
            if end.status != SETUP_FAILED or wrapped.has_started():
                return end
            # Perhaps a path that the sandbox should hide has been removed meanwhile.
            if not left or command_input:
                return end._replace(has_run=False)
        finally:
            await _close_sandbox(stack, wrapped)
    raise AssertionError("the last start returns")


async def _close_sandbox(stack: ExitStack, wrapped: WrappedCommand) -> None:
    """Clean up a sandbox, in a thread if that takes time; this is never interrupted."""
    if wrapped.ends_slowly:
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(stack.close)
    else:
        stack.close()


async def _run(
    wrapped: WrappedCommand,
    directory: Path,
    variables: Mapping[str, str],
    receive: Callable[[bytes], Awaitable[None]],
    timeout_s: float,
    command_input: CommandInput | None,
    secrets: Iterable[str] | None,
) -> CommandEnd:
    started_s = time.monotonic()
    if command_input and command_input.terminal:
        tree, pipe = _start_in_terminal(wrapped, directory, variables, command_input)
    else:
        tree, pipe = _start(wrapped, directory, variables, command_input)
    try:
        redaction = None if secrets is None else ByteRedactor(secrets)
        with _OutputReader(pipe, receive, redaction) as output:
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
        if command_input:
            command_input.close()
        status = tree.running.status()
        tree.close()
    # After a timeout, the ended processes include the shell and the sandbox's own processes.
    expected = wrapped.helpers + 1 if timed_out else max(wrapped.helpers - 1, 0)
    leftovers = max(ended.processes - expected, 0)
    took_s = time.monotonic() - started_s
    return CommandEnd(status or 0, timed_out, leftovers, ended.survivors, took_s)


def _start(
    wrapped: WrappedCommand,
    directory: Path,
    variables: Mapping[str, str],
    command_input: CommandInput | None,
) -> tuple[ProcessTree, int]:
    """Start a command with pipes; return its processes and the descriptor to read from."""
    reading, writing = os.pipe()
    theirs, ours = os.pipe() if command_input else (os.open(os.devnull, os.O_RDONLY), None)
    try:
        tree = _spawn(wrapped, directory, variables, theirs, writing)
    except CommandProblem:
        os.close(reading)
        if ours is not None:
            os.close(ours)
        raise
    finally:
        os.close(writing)
        os.close(theirs)
    if command_input and ours is not None:
        command_input.attach(ours)
    return tree, reading


def _start_in_terminal(
    wrapped: WrappedCommand,
    directory: Path,
    variables: Mapping[str, str],
    command_input: CommandInput,
) -> tuple[ProcessTree, int]:
    """Start a command in a new terminal, which gives it job control and colours."""
    ours, theirs = os.openpty()
    termios.tcsetwinsize(theirs, (ROWS, TERMINAL_COLUMNS))
    # The first terminal that a session leader opens becomes its controlling terminal.
    opener = ("/bin/sh", "-c", 'exec "$@" <"$0"', os.ttyname(theirs))
    opening = WrappedCommand((*opener, *wrapped.arguments), wrapped.descriptors)
    named = {**variables, "TERM": "xterm-256color"}
    try:
        tree = _spawn(opening, directory, named, theirs, theirs)
    except CommandProblem:
        os.close(ours)
        raise
    finally:
        os.close(theirs)
    # Input and output are closed independently.
    command_input.attach(os.dup(ours))
    return tree, ours


def _spawn(
    wrapped: WrappedCommand,
    directory: Path,
    variables: Mapping[str, str],
    stdin: int,
    output: int,
) -> ProcessTree:
    descriptors = {0: stdin, 1: output, 2: output} | {one: one for one in wrapped.descriptors}
    try:
        return ProcessTree(wrapped.arguments, directory, variables, descriptors)
    except (OSError, ValueError) as error:
        message = f"The command could not be started in {directory}: {error}."
        raise CommandProblem(message) from error


class _OutputReader:
    """Reads a command's output and passes it on until `finish` is called."""

    def __init__(
        self, pipe: int, receive: Callable[[bytes], Awaitable[None]], redaction: ByteRedactor | None
    ) -> None:
        self._pipe: Final = pipe
        self._receive: Final = receive
        self._redaction: Final = redaction
        self._idle = trio.CancelScope()
        self._left: int | None = None

    def __enter__(self) -> "_OutputReader":
        os.set_blocking(self._pipe, False)
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._pipe)

    async def pass_on(self) -> None:
        while piece := await self._read():
            if clean := self._redaction.feed(piece) if self._redaction else piece:
                await self._receive(clean)
            # A flood of output must not starve the other tasks.
            await trio.lowlevel.checkpoint()
        if self._redaction and (rest := self._redaction.end()):
            await self._receive(rest)

    def finish(self) -> None:
        """Read only the output that is in the pipe now, even if a process still writes to it."""
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
                # Reading from a terminal fails with EIO when no process has it open any more.
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


async def _end_leftovers(tree: ProcessTree) -> EndedProcesses:
    """Wait briefly for processes that the shell left behind, then end them."""
    if tree.left_nothing():
        return EndedProcesses(0, 0)
    with trio.move_on_after(LEFTOVER_WAIT_S):
        await tree.wait_until_empty()
        return EndedProcesses(0, 0)
    return await tree.end(LEFTOVER_GRACE_S)
