"""With `awake = true`, a real systemd-inhibit holds a lock of logind while a session works."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from e2e.words import calls, hang, text
from support.daemon import CONFIG, Daemon
from support.dbus import DBUS_DAEMON, Logind, bus, service
from support.frontend import TIMEOUT_S, Frontend
from tiller_daemon.models.scripted import CallPart
from tiller_protocol.ops import Answer, Interrupt

pytestmark = pytest.mark.skipif(
    DBUS_DAEMON is None or shutil.which("systemd-inhibit") is None,
    reason="needs dbus-daemon and systemd-inhibit",
)

AWAKE = f"awake = true\n{CONFIG}"
LOCK = ("idle:sleep", "tiller", "A session is at work", "block")

New = Callable[..., Daemon]


async def test_the_machine_stays_awake_exactly_while_a_session_works(
    new_daemon: New, nursery: trio.Nursery, workspace: Path
) -> None:
    logind, daemon = Logind(nursery), new_daemon(AWAKE)
    with bus() as address:
        async with service(address, Logind.NAME, logind.answer, descriptors=True):
            daemon.start(DBUS_SYSTEM_BUS_ADDRESS=address)
            frontend = await Frontend.connect(daemon, nursery)
            question = CallPart("question", arguments={"text": "Go?"})
            one = await frontend.session(workspace, hang("Well"), text("Done."))
            other = await frontend.session(workspace, calls(question), hang("So"))
            with trio.fail_after(TIMEOUT_S):
                await frontend.say(one, "go")
                await logind.until(lambda: logind.locks == [LOCK])
                await frontend.say(other, "go")
                request = await frontend.request_opened(other)
                await frontend.must(Interrupt(one))
                await logind.until(lambda: not logind.locks)  # the other one waits for an answer
                await frontend.must(Answer(request.id, "answer", "yes"))
                await logind.until(lambda: logind.locks == [LOCK])
                await frontend.must(Interrupt(other))
                await logind.until(lambda: not logind.locks)
            assert logind.given == 2
            await frontend.close()


async def test_the_lock_ends_with_a_daemon_that_is_killed(
    new_daemon: New, nursery: trio.Nursery, workspace: Path
) -> None:
    logind, daemon = Logind(nursery), new_daemon(AWAKE)
    with bus() as address:
        async with service(address, Logind.NAME, logind.answer, descriptors=True):
            daemon.start(DBUS_SYSTEM_BUS_ADDRESS=address)
            frontend = await Frontend.connect(daemon, nursery)
            session_id = await frontend.session(workspace, hang("Well"))
            with trio.fail_after(TIMEOUT_S):
                await frontend.say(session_id, "go")
                await logind.until(lambda: logind.locks)
                await frontend.disconnect()
                daemon.kill9()
                await logind.until(lambda: not logind.locks)


async def test_without_the_wish_and_without_logind_turns_run_as_ever(
    new_daemon: New, nursery: trio.Nursery, workspace: Path
) -> None:
    logind = Logind(nursery)
    with bus() as address:
        async with service(address, Logind.NAME, logind.answer, descriptors=True):
            for config, system in ((CONFIG, address), (AWAKE, "unix:path=/nonexistent")):
                daemon = new_daemon(config)
                daemon.start(DBUS_SYSTEM_BUS_ADDRESS=system)
                frontend = await Frontend.connect(daemon, nursery)
                session_id = await frontend.session(workspace, text("Done."))
                await frontend.say(session_id, "go")
                assert (await frontend.turn_ended(session_id)).outcome == "completed"
                await frontend.close()
    assert not logind.given
