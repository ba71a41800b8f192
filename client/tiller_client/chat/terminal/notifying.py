"""Notifies a user who looks elsewhere that a turn has ended or a request is open."""

from tiller_client.rendering.text import one_line
from tiller_protocol.snapshot import Snapshot, is_working

BELL = "\a"

LOOKS_S = 60.0
"""How long after a key somebody looks at a window that has the focus, or never reports it."""

TITLE_CHARS_MAX = 80


class Attention:
    """Whether somebody looks at a window."""

    def __init__(self) -> None:
        self.has_focus = True
        """Whether the window has the focus; many terminals never report that it has not."""
        self._key_at = float("-inf")

    def key_came(self, now: float) -> None:
        """Note that somebody is there; `now` are seconds of a clock that never jumps."""
        self._key_at = now

    def is_seen(self, now: float) -> bool:
        """Whether somebody looks, as far as can be told: a window stays open without its user."""
        return self.has_focus and now - self._key_at < LOOKS_S


class Notifier(Attention):
    """Makes the escapes for the window's title, a bell and a notification."""

    def __init__(self) -> None:
        super().__init__()
        self._happened = False
        self._title = ""

    def happened(self) -> None:
        """Note an event that the user may be waiting for."""
        self._happened = True

    def take(self, snapshot: Snapshot) -> str:
        """The escapes to write with the next frame."""
        extra = ""
        title = _title(snapshot)
        if title != self._title:
            self._title = title
            extra += f"\x1b]2;{title}\x1b\\"
        if self._happened:
            self._happened = False
            if not self.has_focus:
                extra += f"\x1b]9;{title}\x1b\\{BELL}"
        return extra


def _title(snapshot: Snapshot) -> str:
    """The window's title: the session's status and name."""
    if snapshot.requests:
        mark = "? "
    elif is_working(snapshot):
        mark = "● "
    else:
        mark = ""
    name = snapshot.title or snapshot.workspace.rpartition("/")[2]
    return f"{mark}{one_line(name)} · tiller"[:TITLE_CHARS_MAX]
