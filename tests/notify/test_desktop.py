"""Messages on a real D-Bus, for a notification service."""

import pytest
import trio

from support.dbus import DBUS_DAEMON, Notifications, bus, service
from tiller_daemon.notify.delivery import TargetProblem
from tiller_daemon.notify.desktop import Desktop, bus_address
from tiller_daemon.notify.messages import Message

pytestmark = pytest.mark.skipif(DBUS_DAEMON is None, reason="needs dbus-daemon")

MESSAGE = Message("01S", "needs_answer", "Pay <needs> you", "Run <ls> & more", "/work/shop", "01R")
DONE = Message("01S", "ended", "Pay is done", "Paid.", "/work/shop")


async def test_a_desktop_shows_replaces_and_closes_a_message() -> None:
    with trio.fail_after(20):
        with bus() as address:
            desktop, target = Notifications(), Desktop({"DBUS_SESSION_BUS_ADDRESS": address})
            async with service(address, Notifications.NAME, desktop.answer):
                shown = await target.show(MESSAGE, "")
                (body,) = desktop.shown.values()
                app, replaces, _icon, title, text, actions, hints, lasts_ms = body
                assert (app, replaces, title) == ("tiller", 0, "Pay <needs> you")
                assert (text, actions, lasts_ms) == ("Run &lt;ls&gt; &amp; more", [], 0)
                assert hints["urgency"] == ("y", 2), "it stays until it is closed"
                assert await target.show(DONE, shown) == shown
                assert list(desktop.shown) == [int(shown)]
                assert desktop.shown[int(shown)][6]["urgency"] == ("y", 1)
                await target.withdraw(shown)
                assert not desktop.shown
                await target.withdraw(shown)  # the user may have closed it before


async def test_a_bus_without_a_desktop_and_no_bus_are_problems() -> None:
    with trio.fail_after(20):
        with bus() as address:
            target = Desktop({"DBUS_SESSION_BUS_ADDRESS": address})
            with pytest.raises(TargetProblem, match=r"org\.freedesktop\.Notifications"):
                await target.show(MESSAGE, "")
        with pytest.raises(TargetProblem, match="bus can't be reached"):
            await target.show(MESSAGE, "")


def test_a_daemon_without_the_variable_uses_the_usual_place() -> None:
    assert bus_address({"XDG_RUNTIME_DIR": "/run/user/7"}) == "unix:path=/run/user/7/bus"
    assert bus_address({"DBUS_SESSION_BUS_ADDRESS": "unix:path=/x"}) == "unix:path=/x"
