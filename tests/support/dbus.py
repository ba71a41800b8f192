"""A real message bus (dbus-daemon) with services that a test writes: a desktop, and logind."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import trio
from jeepney import (
    FileDescriptor,
    HeaderFields,
    MessageType,
    message_bus,
    new_error,
    new_method_return,
)
from jeepney.io.trio import open_dbus_connection

DBUS_DAEMON = shutil.which("dbus-daemon")

CONFIG = """\
<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <type>session</type>
  <listen>unix:path={socket}</listen>
  <policy context="default">
    <allow send_destination="*" eavesdrop="true"/><allow eavesdrop="true"/><allow own="*"/>
  </policy>
</busconfig>
"""

Answer = Callable[[str, tuple[Any, ...]], tuple[str, tuple[Any, ...]]]
"""Takes a method's name and arguments, and returns the signature and the values of the answer.

Raises `KeyError` for what the service does not know.
"""


@contextmanager
def bus() -> Generator[str]:
    """Run a bus, and yield its address."""
    assert DBUS_DAEMON
    with tempfile.TemporaryDirectory(prefix="bus-", dir="/tmp") as place:
        config = Path(place, "bus.conf")
        config.write_text(CONFIG.format(socket=f"{place}/bus"))
        command = [DBUS_DAEMON, f"--config-file={config}", "--nofork", "--print-address"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout
            try:
                yield process.stdout.readline().strip()
            finally:
                process.kill()


@asynccontextmanager
async def service(
    address: str, name: str, answer: Answer, *, descriptors: bool = False
) -> AsyncGenerator[None]:
    """Own a name on the bus, and answer all calls."""
    connection = await open_dbus_connection(address, enable_fds=descriptors)
    async with connection, trio.open_nursery() as nursery:
        async with connection.router() as router:
            reply = await router.send_and_get_reply(message_bus.RequestName(name))
            assert reply.body == (1,), "the name is ours"

        async def serve() -> None:
            while True:
                call = await connection.receive()
                if call.header.message_type is not MessageType.method_call:
                    continue
                try:
                    signature, values = answer(call.header.fields[HeaderFields.member], call.body)
                    await connection.send(new_method_return(call, signature, values))
                    for value in values:
                        if isinstance(value, FileDescriptor):
                            value.close()
                except KeyError as error:
                    refusal = f"{name}.Error"
                    await connection.send(new_error(call, refusal, "s", (str(error),)))

        nursery.start_soon(serve)
        yield
        nursery.cancel_scope.cancel()


class Notifications:
    """The notification service of a desktop; `shown` are the messages that a user would see."""

    NAME = "org.freedesktop.Notifications"

    def __init__(self) -> None:
        self.shown: dict[int, tuple[Any, ...]] = {}
        self.notified = 0
        self.changed = trio.Event()

    def answer(self, method: str, body: tuple[Any, ...]) -> tuple[str, tuple[Any, ...]]:
        """Answer a call, as the specification says."""
        match method:
            case "Notify":
                self.notified += 1
                number = body[1] or self.notified + 100
                self.shown[number] = body
                result: tuple[str, tuple[Any, ...]] = ("u", (number,))
            case "CloseNotification":
                del self.shown[body[0]]
                result = ("", ())
            case _:
                raise KeyError(method)
        self.changed.set()
        self.changed = trio.Event()
        return result

    async def until(self, wanted: Callable[[], object]) -> None:
        """Wait until this is true after a call."""
        while not wanted():
            await self.changed.wait()


class Logind:
    """The part of logind that gives out locks against sleep; `locks` are those that are held."""

    NAME = "org.freedesktop.login1"

    def __init__(self, nursery: trio.Nursery) -> None:
        self.locks: list[tuple[str, ...]] = []
        self.given = 0
        self.changed = trio.Event()
        self._nursery = nursery

    def answer(self, method: str, body: tuple[Any, ...]) -> tuple[str, tuple[Any, ...]]:
        """Give a lock, which is held as long as its descriptor is open."""
        if method != "Inhibit":
            raise KeyError(method)
        ours, theirs = os.pipe()
        self._nursery.start_soon(self._hold, ours, body)
        self.given += 1
        return "h", (FileDescriptor(theirs),)

    async def _hold(self, descriptor: int, lock: tuple[str, ...]) -> None:
        self.locks.append(lock)
        self._tell()
        async with trio.lowlevel.FdStream(descriptor) as pipe:
            while await pipe.receive_some():
                pass
        self.locks.remove(lock)
        self._tell()

    def _tell(self) -> None:
        self.changed.set()
        self.changed = trio.Event()

    async def until(self, wanted: Callable[[], object]) -> None:
        """Wait until this is true after a lock was given or released."""
        while not wanted():
            await self.changed.wait()
