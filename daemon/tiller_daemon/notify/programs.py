"""Gives messages to programs: the user's own command, the library Apprise, and a Mac's desktop.

All run outside any sandbox, because they are the user's own, and with the environment of the
programs that the daemon starts by itself.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import msgspec
import trio
from msgspec import Struct

from tiller_daemon.isolation import OPTIONS, find_program, isolated, why_missing
from tiller_daemon.models.keys import Key, KeyUnavailable
from tiller_daemon.notify.delivery import TargetProblem
from tiller_daemon.notify.messages import Message
from tiller_daemon.processes.command import CommandProblem
from tiller_daemon.processes.server_process import ServerProcess
from tiller_daemon.redaction.text import redact

OUTPUT_BYTES_MAX: Final = 4_096
"""How much of the output of a failed program is read."""

REASON_CHARS_MAX: Final = 200
"""How much of its end is logged."""

DRAIN_S: Final = 0.2
"""How long to use the pipes after the program has exited."""

APPRISE_MODULE: Final = "tiller_daemon.notify.apprise_process"

NO_APPRISE: Final = "Apprise is not installed: install tillerd[notify]"

OSASCRIPT: Final = """\
on run texts
    display notification (item 2 of texts) with title (item 1 of texts)
end run"""

Variables = Callable[[], Mapping[str, str]]
"""Returns the environment of the daemon's own programs."""


class Command:
    """The user's command, which gets each message as JSON on standard input."""

    def __init__(self, arguments: Sequence[str], directory: Path, variables: Variables) -> None:
        self._arguments = arguments
        self._directory = directory
        self._variables = variables

    async def show(self, message: Message, shown: str) -> str:  # noqa: ARG002 - can't replace
        """Run the command; see `delivery.Target`."""
        await self._run(self._arguments, msgspec.json.encode(message) + b"\n")
        return ""

    async def withdraw(self, shown: str) -> None:
        """Do nothing."""

    async def _run(
        self, arguments: Sequence[str], text: bytes, secrets: Sequence[str] = ()
    ) -> None:
        """Run a program to its end; cancellation ends it. Raises `TargetProblem`."""
        variables = isolated(self._variables())
        program = arguments[0]
        found = program if "/" in program else find_program(program, variables["PATH"])
        if found is None:
            raise TargetProblem(why_missing(program), final=True)
        try:
            process = ServerProcess((found, *arguments[1:]), self._directory, variables)
        except CommandProblem as problem:
            raise TargetProblem(str(problem), final=True) from None
        said = bytearray()
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_write, process, text)
                nursery.start_soon(_read, process.stdout, said)
                nursery.start_soon(_read, process.stderr, said)
                await process.exited()
                nursery.cancel_scope.deadline = trio.current_time() + DRAIN_S
            if process.status() != 0:
                reason = " ".join(said.decode(errors="replace").split())[-REASON_CHARS_MAX:]
                raise TargetProblem(redact(f"{process.how_it_ended()} {reason}".strip(), secrets))
        finally:
            await process.end(exit_wait_s=0)


class MacDesktop(Command):
    """The notification centre of a Mac, which withdraws nothing."""

    def __init__(self, directory: Path, variables: Variables) -> None:
        super().__init__(("/usr/bin/osascript", "-e", OSASCRIPT), directory, variables)

    async def show(self, message: Message, shown: str) -> str:  # noqa: ARG002 - can't replace
        """Show a message; see `delivery.Target`."""
        await self._run((*self._arguments, message.title, message.text), b"")
        return ""


class ApprisePost(Struct, frozen=True):
    """What the process of Apprise gets on standard input."""

    url: str
    """The address of the service, in Apprise's form."""
    title: str
    """The message's title."""
    body: str
    """The message's text."""


class Apprise(Command):
    """Any service that the library Apprise knows. The library runs in a process of its own."""

    def __init__(self, key: Key, directory: Path, variables: Variables) -> None:
        super().__init__((sys.executable, *OPTIONS, "-m", APPRISE_MODULE), directory, variables)
        self._key = key

    async def show(self, message: Message, shown: str) -> str:  # noqa: ARG002 - can't replace
        """Send a message; see `delivery.Target`."""
        if find_spec("apprise") is None:
            raise TargetProblem(NO_APPRISE, final=True)
        try:
            url = await self._key.read()
        except KeyUnavailable as problem:
            raise TargetProblem(str(problem), final=True) from None
        post = ApprisePost(url, message.title, message.text)
        await self._run(self._arguments, msgspec.json.encode(post), self._key.secrets)
        return ""


async def _write(process: ServerProcess, text: bytes) -> None:
    try:
        await process.stdin.send_all(text)
        await process.stdin.aclose()
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        pass  # a program need not read its input


async def _read(pipe: trio.lowlevel.FdStream, said: bytearray) -> None:
    """Keep the beginning of the output, and discard the rest, so that the program never blocks."""
    while piece := await pipe.receive_some(OUTPUT_BYTES_MAX):
        said += piece[: OUTPUT_BYTES_MAX - len(said)]
