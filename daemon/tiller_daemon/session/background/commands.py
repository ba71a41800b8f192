"""Background commands: a tool call starts them, the session owns them, and they end with it.

They keep running when the turn that started them ends or is interrupted. Their list is kept in the
log (`background_changed`), so every frontend can list and end them. After a crash, commands that
were running are `lost`: the daemon ends leftover processes when it starts.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import trio
from msgspec import structs

from tiller_daemon.processes.capture import Capture
from tiller_daemon.processes.command import CommandInput, CommandProblem, run_command
from tiller_daemon.processes.terminal_text import TerminalText, last_state
from tiller_daemon.sandbox.base import CommandSandbox
from tiller_daemon.sandbox.quarantine import QUARANTINED
from tiller_daemon.session.background.listing import listed_with, next_id
from tiller_daemon.session.outbox import Outbox
from tiller_daemon.tools.base import BackgroundReport, BackgroundStart, ToolFailure
from tiller_daemon.tools.commands.sandbox_notes import NO_SANDBOX_NOTES, SandboxNotes, sandbox_notes
from tiller_daemon.tools.write_scope import WriteScope
from tiller_protocol.events import BackgroundChanged, WarningRaised
from tiller_protocol.items import BackgroundCommand, BackgroundState

ID_PREFIX = "b"

RUNNING_MAX = 16
"""How many commands may run in the background of one session."""

UNREAD_BYTES_MAX = 50 * 1024
"""How much unread output is kept, which is as much as the model gets from one call."""

FIRST_LOOK_S = 1.0
"""How long the call that starts a command waits for output, as most mistakes show at once."""

QUIET_S = 0.2
"""After this many seconds without output, the output so far is returned."""

SEND_S_MAX = 5.0
"""How long a command may take to read its input."""


@dataclass(eq=False)
class _RunningCommand:
    """A command that is running, or that has ended while the model can still read its output."""

    listed: BackgroundCommand
    """The entry in the session's list."""
    capture: Capture
    """Writes all output to a file."""
    typed: CommandInput
    """The command's standard input."""
    sandbox: CommandSandbox | None
    """The command's sandbox; None without a sandbox."""
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    """Cancelling this ends the command."""
    ended: trio.Event = field(default_factory=trio.Event)
    """Set when no process of the command is alive."""
    news: trio.Event = field(default_factory=trio.Event)
    """Set by output and by the command's end; then output puts a new event in its place."""
    unread: bytearray = field(default_factory=bytearray)
    """Output since the last poll. If it overflows, only the tail is kept."""
    dropped_bytes: int = 0
    """How many bytes were dropped before `unread`."""
    sandbox_notes: SandboxNotes = NO_SANDBOX_NOTES
    """Notes on actions that the sandbox stopped; known when the command has ended."""


class Background:
    """The background commands of one session. `run` owns their tasks."""

    def __init__(self, outbox: Outbox, time: Callable[[], float]) -> None:
        self._outbox = outbox
        self._time = time
        self._commands: dict[str, _RunningCommand] = {}
        self._nursery: trio.Nursery | None = None

    @property
    def is_running(self) -> bool:
        """Whether any command is running."""
        return bool(self._running)

    @property
    def _running(self) -> list[_RunningCommand]:
        return [command for command in self._commands.values() if not command.ended.is_set()]

    async def run(self) -> None:
        """Own the commands' tasks until cancelled, which ends the commands."""
        async with trio.open_nursery() as self._nursery:
            await trio.sleep_forever()

    def writing_to(self, scope: WriteScope) -> list[str]:
        """Return the ids of running commands that may write to a scope."""
        return [one.listed.id for one in self._running if _may_write(one.sandbox, scope)]

    async def start(self, start: BackgroundStart) -> BackgroundReport:
        """Start a command and watch it for `FIRST_LOOK_S`; raises `ToolFailure`."""
        if len(self._running) >= RUNNING_MAX:
            names = ", ".join(command.listed.id for command in self._running)
            raise ToolFailure(
                f"{RUNNING_MAX} commands are already running in the background: {names}. End one "
                "with bash_kill first."
            )
        listed = BackgroundCommand(
            id=next_id(self._outbox.fold_pending(), ID_PREFIX),
            command=start.command,
            state="running",
            started_at=self._time(),
            item_id=start.call_id,
            output_path=str(start.spill_path),
        )
        command = _RunningCommand(
            listed,
            Capture(start.spill_path, TerminalText()),
            CommandInput(terminal=start.terminal),
            start.sandbox,
        )
        self._commands[listed.id] = command
        self._record(listed)
        assert self._nursery is not None
        self._nursery.start_soon(self._run_one, command, start)
        return await self.poll(listed.id, FIRST_LOOK_S, until_end=True)

    async def poll(
        self, command_id: str, wait_s: float, *, until_end: bool = False
    ) -> BackgroundReport:
        """Return a command's output since the last poll; wait up to `wait_s` seconds for output.

        With `until_end`, wait for the command's end instead. Raises `ToolFailure`.
        """
        command = self._find(command_id)
        with trio.move_on_after(wait_s):
            await self._wait(command, until_end=until_end)
        text = last_state(bytes(command.unread))
        dropped_bytes, command.dropped_bytes = command.dropped_bytes, 0
        command.unread.clear()
        notes = command.sandbox_notes
        return BackgroundReport(
            command.listed, text, dropped_bytes, notes=notes.notes, stopped_by=notes.stopped_by
        )

    async def kill(self, command_id: str) -> BackgroundReport:
        """End a command with all its processes and return its last output; raises `ToolFailure`."""
        command = self._find(command_id)
        command.scope.cancel()
        await command.ended.wait()
        return await self.poll(command_id, 0.0)

    async def send(self, command_id: str, text: str, wait_s: float) -> BackgroundReport:
        """Send text to a command's standard input, then poll; raises `ToolFailure`."""
        command = self._find(command_id)
        try:
            # A command that does not read lets the pipe fill up, which would block for ever.
            with trio.fail_after(SEND_S_MAX):
                await command.typed.send(text.encode())
        except CommandProblem as problem:
            raise ToolFailure(str(problem)) from None
        except trio.TooSlowError:
            raise ToolFailure(
                f"{command_id} did not read its input within {SEND_S_MAX:g} s."
            ) from None
        return await self.poll(command_id, wait_s)

    def cancel(self, command_id: str) -> bool:
        """Begin to end a command; return False if it is not running."""
        command = self._commands.get(command_id)
        if command is None or command.ended.is_set():
            return False
        command.scope.cancel()
        return True

    def cancel_all(self) -> None:
        """Begin to end every command."""
        for command in self._commands.values():
            command.scope.cancel()

    async def end_all(self) -> None:
        """End every command and wait until none of their processes is alive."""
        self.cancel_all()
        for command in self._commands.values():
            await command.ended.wait()

    async def _wait(self, command: _RunningCommand, *, until_end: bool) -> None:
        while not command.ended.is_set() and (until_end or not command.unread):
            await command.news.wait()
        # Output often comes in bursts; returning after the first piece would cut it in the middle.
        while not command.ended.is_set():
            with trio.move_on_after(QUIET_S) as silence:
                await command.news.wait()
            if silence.cancelled_caught:
                return

    async def _run_one(self, command: _RunningCommand, start: BackgroundStart) -> None:
        async def receive(piece: bytes) -> None:
            await command.capture.add(piece)
            command.unread += piece
            if (excess := len(command.unread) - UNREAD_BYTES_MAX) > 0:
                del command.unread[:excess]
                command.dropped_bytes += excess
            command.news.set()
            # The next task that waits must wait for the next piece.
            command.news = trio.Event()

        # The end to report if the scope below is cancelled.
        state: BackgroundState = "killed"
        status: int | None = None
        has_run = True
        try:
            with command.scope:
                end = await run_command(
                    start.arguments,
                    directory=start.directory,
                    variables=start.variables,
                    receive=receive,
                    # Servers and watchers are meant to run on; the session ends them.
                    timeout_s=float("inf"),
                    command_input=command.typed,
                    secrets=start.secrets,
                    sandbox=start.sandbox,
                )
                state, status, has_run = "exited", end.status, end.has_run
                await command.capture.spill()
        except CommandProblem as problem:
            state = "exited"
            command.unread += str(problem).encode()
        finally:
            command.capture.close()
            printed = command.capture.result()
            command.sandbox_notes = sandbox_notes(
                start.sandbox,
                status or 0,
                f"{printed.head}\n{printed.tail}",
                has_run=has_run,
            )
            command.listed = structs.replace(
                command.listed, state=state, exit_status=status, ended_at=self._time()
            )
            for text in start.sandbox.notices if start.sandbox else ():
                self._outbox.put(WarningRaised(QUARANTINED, text))
            # The end is news too: a waiting poll must return.
            command.ended.set()
            command.news.set()
            self._record(command.listed)

    def _record(self, changed: BackgroundCommand) -> None:
        before = self._outbox.fold_pending().background
        self._outbox.put(BackgroundChanged(listed_with(before, changed)))

    def _find(self, command_id: str) -> _RunningCommand:
        command = self._commands.get(command_id)
        if command is None:
            there_are = ", ".join(self._commands) or "none"
            raise ToolFailure(f"There is no background command {command_id!r}. Yours: {there_are}.")
        return command


def _may_write(sandbox: CommandSandbox | None, scope: WriteScope) -> bool:
    """Whether a command may write to a scope; without a sandbox, it may write anywhere."""
    if sandbox is None:
        return True
    profile = sandbox.profile
    protected = profile.read_only
    open_roots = (
        root for root in scope.roots if not any(root.is_relative_to(one) for one in protected)
    )
    return any(
        root.is_relative_to(place) or place.is_relative_to(root)
        for root in open_roots
        for place in profile.writable
    )
