"""When a person who looks elsewhere is called, and what the window's title says."""

from tiller_client.chat.terminal.notifying import BELL, LOOKS_S, TITLE_CHARS_MAX, Notifier
from tiller_protocol.items import Request
from tiller_protocol.snapshot import Snapshot

NOTIFICATION = "\x1b]9;"


def title(snapshot: Snapshot) -> str:
    """What a new window would be called."""
    written = Notifier().take(snapshot)
    assert written.startswith("\x1b]2;")
    assert written.endswith("\x1b\\")
    return written[4:-2]


def test_somebody_who_looks_elsewhere_is_called_once() -> None:
    notifier, snapshot = Notifier(), Snapshot("s", workspace="/work/shop")
    notifier.take(snapshot)
    notifier.has_focus = False
    assert notifier.take(snapshot) == "", "nothing has happened"
    notifier.happened()
    called = notifier.take(snapshot)
    assert NOTIFICATION in called
    assert called.endswith(BELL)
    assert notifier.take(snapshot) == ""


def test_nobody_is_called_who_sees_it() -> None:
    notifier, snapshot = Notifier(), Snapshot("s", workspace="/work/shop")
    notifier.take(snapshot)
    notifier.happened()
    assert notifier.take(snapshot) == ""
    notifier.has_focus = False
    assert notifier.take(snapshot) == "", "it was seen before the focus went"


def test_a_window_that_is_left_open_is_not_looked_at() -> None:
    notifier = Notifier()
    assert not notifier.is_seen(0)
    notifier.key_came(0)
    assert notifier.is_seen(LOOKS_S - 1)
    assert not notifier.is_seen(LOOKS_S), "its user has gone, or only reads"
    notifier.key_came(100)
    notifier.has_focus = False
    assert not notifier.is_seen(101)


def test_the_title_says_what_the_session_does() -> None:
    snapshot = Snapshot("s", workspace="/work/shop")
    assert title(snapshot) == "shop · tiller"
    snapshot.title = "Mend\x1b]2;the\x07 login"
    assert title(snapshot) == "Mend␛]2;the␇ login · tiller"
    snapshot.requests = [Request("r", "approval", "Run git push")]
    assert title(snapshot).startswith("? Mend")
    snapshot.title = "x" * 200
    assert len(title(snapshot)) == TITLE_CHARS_MAX
