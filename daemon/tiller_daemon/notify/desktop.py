# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
"""Shows messages on the desktop: by the notification service of D-Bus, or on a Mac by a program.

The service is specified at https://specifications.freedesktop.org/notification-spec. Each message
has a connection of its own, so that nothing has to be kept alive.
"""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import trio

from tiller_daemon.notify.delivery import TargetProblem
from tiller_daemon.notify.messages import Message

if TYPE_CHECKING:
    from jeepney import Message as BusMessage

APP_NAME: Final = "tiller"

ICON: Final = "utilities-terminal"

NORMAL, CRITICAL = 1, 2
"""Urgencies; what is critical stays on the screen until the user closes it."""

SERVER_DECIDES: Final = -1
"""The time after which the service hides the message."""

UNTIL_CLOSED: Final = 0


FAULTS: Final = (
    OSError, ValueError, KeyError, RuntimeError, ExceptionGroup, trio.BrokenResourceError,
)  # fmt: skip
"""What the library raises if there is no bus, or if it does not behave as one."""


class Desktop:
    """The notification service of the user's session."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._address = bus_address(environ)

    async def show(self, message: Message, shown: str) -> str:
        """Show a message; see `delivery.Target`."""
        needs = message.moment == "needs_answer"
        hints: dict[str, tuple[str, str | int]] = {
            "urgency": ("y", CRITICAL if needs else NORMAL),
            "category": ("s", "im.received" if needs else "transfer.complete"),
            "desktop-entry": ("s", APP_NAME),
        }
        actions: list[str] = []
        shown_s = UNTIL_CLOSED if needs else SERVER_DECIDES
        text = _without_markup(message.text)
        body = (APP_NAME, int(shown or 0), ICON, message.title, text, actions, hints, shown_s)
        return str((await self._call("Notify", "susssasa{sv}i", body))[0])

    async def withdraw(self, shown: str) -> None:
        """Close a message; see `delivery.Target`. It may be closed already."""
        try:
            await self._call("CloseNotification", "u", (int(shown),))
        except _Refused:
            return

    async def _call(self, method: str, signature: str, body: tuple[Any, ...]) -> tuple[Any, ...]:
        # Most daemons show nothing on a desktop.
        from jeepney import DBusAddress, MessageType, new_method_call
        from jeepney.io.trio import open_dbus_router

        service = DBusAddress(
            "/org/freedesktop/Notifications",
            bus_name="org.freedesktop.Notifications",
            interface="org.freedesktop.Notifications",
        )
        try:
            async with open_dbus_router(self._address) as router:
                call = new_method_call(service, method, signature, body)
                reply: BusMessage = await router.send_and_get_reply(call)
        except FAULTS as error:
            raise TargetProblem(f"the session bus can't be reached: {error}") from error
        if reply.header.message_type is MessageType.error:
            said = reply.body[0] if reply.body else "an error"
            raise _Refused(f"the notification service answers: {said}")
        return reply.body


class _Refused(TargetProblem):
    """The service has answered with an error."""


def bus_address(environ: Mapping[str, str]) -> str:
    """Return the address of the user's bus; a daemon without the variable uses the usual place."""
    runtime = environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}"
    return environ.get("DBUS_SESSION_BUS_ADDRESS") or f"unix:path={runtime}/bus"


def _without_markup(text: str) -> str:
    """Services may read a body as HTML."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
