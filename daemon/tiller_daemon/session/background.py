"""Background commands: started by a call, owned by the session, ended with it.

They live on when the turn that started them ends or is interrupted. What there is of them is state
in the log (`background_changed`), so that every frontend can list and end them; after a crash those
that ran are `lost`, as the next start of the daemon ends what was left over.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import trio
from msgspec import structs

from tiller_daemon.processes.capture import Capture
from tiller_daemon.processes.command import CommandProblem, Input, run_command
from tiller_daemon.session.outbox import Outbox
from tiller_daemon.tools.base import BackgroundLook, BackgroundStart, ToolFailure
from tiller_daemon.tools.commands.sandbox_notes import NOTHING_HELD_BACK, HeldBack, held_back
from tiller_protocol.events import BackgroundChanged
from tiller_protocol.items import BackgroundCommand, BackgroundState
from tiller_protocol.snapshot import Snapshot

RUNNING_MAX = 16
"""Most commands that run in the background of one session."""

LISTED_MAX = 32
"""How many are listed: the newest, and all that run."""

UNREAD_BYTES_MAX = 50 * 1024
"""How much output is held until somebody looks; as much as a model is shown of one call."""

FIRST_LOOK_S = 1.0
"""How long the call that starts a command watches it: most mistakes show at once."""

QUIET_S = 0.2
"""A program that has been silent for so long has said what it had to say."""

SEND_S_MAX = 5.0
"""How long a command may take to read what it is sent."""


@dataclass(eq=False)
class _RunningCommand:
    """A command while it runs. `unread` is what nobody has seen, `dropped_bytes` were before it."""

    known: BackgroundCommand
    capture: Capture
    typed: Input
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    ended: trio.Event = field(default_factory=trio.Event)
    news: trio.Event = field(default_factory=trio.Event)
    unread: bytearray = field(default_factory=bytearray)
    dropped_bytes: int = 0
    held: HeldBack = NOTHING_HELD_BACK


class Background:
    """The background commands of one session. `run` owns their tasks."""

    def __init__(self, outbox: Outbox, time: Callable[[], float]) -> None:
        self._outbox = outbox
        self._time = time
        self._commands: dict[str, _RunningCommand] = {}
        self._nursery: trio.Nursery | None = None

    @property
    def is_running(self) -> bool:
        """Whether a command runs."""
        return any(not command.ended.is_set() for command in self._commands.values())

    async def run(self) -> None:
        """Own the commands until cancelled; then they are ended."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            await trio.sleep_forever()

    async def start(self, start: BackgroundStart) -> BackgroundLook:
        """Start a command, and watch it for a moment; raises `ToolFailure`."""
        running = [command for command in self._commands.values() if not command.ended.is_set()]
        if len(running) >= RUNNING_MAX:
            names = ", ".join(command.known.id for command in running)
            raise ToolFailure(
                f"{RUNNING_MAX} commands run in the background: {names}. End one with bash_kill."
            )
        known = BackgroundCommand(
            id=_next_id(self._outbox.fold_pending()),
            command=start.command,
            state="running",
            started_at=self._time(),
            item_id=start.call_id,
            output_path=str(start.spill_path),
        )
        command = _RunningCommand(known, Capture(start.spill_path), Input(terminal=start.terminal))
        self._commands[known.id] = command
        self._record(known)
        assert self._nursery is not None
        self._nursery.start_soon(self._run_one, command, start)
        return await self.look(known.id, FIRST_LOOK_S, until_end=True)

    async def look(
        self, command_id: str, wait_s: float, *, until_end: bool = False
    ) -> BackgroundLook:
        """What a command has said since the last look; waits so long for it to say something.

        With `until_end` it waits for its end. Raises `ToolFailure`.
        """
        command = self._find(command_id)
        with trio.move_on_after(wait_s):
            await self._wait(command, until_end=until_end)
        text = command.unread.decode(errors="replace").replace("\r\n", "\n")
        dropped_bytes, command.dropped_bytes = command.dropped_bytes, 0
        command.unread.clear()
        held = command.held
        return BackgroundLook(
            command.known, text, dropped_bytes, notes=held.notes, stopped_by=held.stopped_by
        )

    async def kill(self, command_id: str) -> BackgroundLook:
        """End a command and all its processes; returns its last words. Raises `ToolFailure`."""
        command = self._find(command_id)
        command.scope.cancel()
        await command.ended.wait()
        return await self.look(command_id, 0.0)

    async def send(self, command_id: str, text: str, wait_s: float) -> BackgroundLook:
        """Send text to a command's standard input, and look; raises `ToolFailure`."""
        command = self._find(command_id)
        try:
            with trio.fail_after(SEND_S_MAX):
                await command.typed.send(text.encode())
        except CommandProblem as problem:
            raise ToolFailure(str(problem)) from None
        except trio.TooSlowError:
            raise ToolFailure(f"{command_id} does not read its input.") from None
        return await self.look(command_id, wait_s)

    def cancel(self, command_id: str) -> bool:
        """Begin to end a command; says whether it runs."""
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
        """End every command; when it returns none of their processes is alive."""
        self.cancel_all()
        for command in self._commands.values():
            await command.ended.wait()

    async def _wait(self, command: _RunningCommand, *, until_end: bool) -> None:
        while not command.ended.is_set() and (until_end or not command.unread):
            await command.news.wait()
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
            command.news = trio.Event()

        state: BackgroundState = "killed"
        status: int | None = None
        try:
            with command.scope:
                end = await run_command(
                    start.arguments,
                    directory=start.directory,
                    variables=start.variables,
                    receive=receive,
                    timeout_s=float("inf"),
                    typed=command.typed,
                    secrets=start.secrets,
                    confined=start.confined,
                )
                state, status = "exited", end.status
                await command.capture.spill()
        except CommandProblem as problem:
            state = "exited"
            command.unread += str(problem).encode()
        finally:
            command.capture.close()
            printed = command.capture.result()
            command.held = held_back(start.confined, status or 0, f"{printed.head}\n{printed.tail}")
            command.known = structs.replace(
                command.known, state=state, exit_status=status, ended_at=self._time()
            )
            command.ended.set()
            command.news.set()
            self._record(command.known)

    def _record(self, changed: BackgroundCommand) -> None:
        before = self._outbox.fold_pending().background
        self._outbox.put(BackgroundChanged(_listed(before, changed)))

    def _find(self, command_id: str) -> _RunningCommand:
        command = self._commands.get(command_id)
        if command is None:
            there_are = ", ".join(self._commands) or "none"
            raise ToolFailure(f"There is no background command {command_id!r}. Yours: {there_are}.")
        return command


def lost_commands(snapshot: Snapshot) -> tuple[BackgroundCommand, ...] | None:
    """The list of a session found in the log: what ran is lost. `None` if nothing ran."""
    if all(command.state != "running" for command in snapshot.background):
        return None
    return tuple(
        structs.replace(command, state="lost") if command.state == "running" else command
        for command in snapshot.background
    )


def _listed(
    before: tuple[BackgroundCommand, ...], changed: BackgroundCommand
) -> tuple[BackgroundCommand, ...]:
    if any(command.id == changed.id for command in before):
        return tuple(changed if command.id == changed.id else command for command in before)
    too_many = len(before) + 1 - LISTED_MAX
    ended = [command.id for command in before if command.state != "running"][: max(0, too_many)]
    return (*(command for command in before if command.id not in ended), changed)


def _next_id(snapshot: Snapshot) -> str:
    """A short name that the model can remember; numbers go on over restarts."""
    numbers = [int(command.id.removeprefix("b")) for command in snapshot.background]
    return f"b{max(numbers, default=0) + 1}"
