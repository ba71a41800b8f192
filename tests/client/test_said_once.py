"""What a person reads of a session: each thing once, whole words in a narrow window."""

import signal
from itertools import pairwise

from support.event_bodies import Tiller, ended, started, text_item
from support.fake_daemon import FakeDaemon
from support.terminal import Screen, Terminal
from tiller_protocol.catalog import ToolSummary
from tiller_protocol.events import (
    ErrorRaised,
    ItemCompleted,
    ItemStarted,
    QueueChanged,
    RequestOpened,
    SessionCreated,
    StatusChanged,
)
from tiller_protocol.ids import ItemId
from tiller_protocol.items import QueuedInput, Request, UserMessage
from tiller_protocol.places import Places
from tiller_protocol.settings import Settings

SESSION = "01K0AAAAAAAAAAAAAAAAAASES1"
COLUMNS = 61


def rows_of(terminal: Terminal) -> list[str]:
    screen = Screen(COLUMNS)
    screen.feed(terminal.screen)
    return screen.rows()


def test_doctor_breaks_what_it_found_between_words(places: Places) -> None:
    with FakeDaemon(places.runtime):
        terminal = Terminal("doctor", columns=COLUMNS)
        terminal.end()
    shown = [row for row in rows_of(terminal) if row]
    for above, row in pairwise(shown):
        begins = row.startswith(("ok ", "warn ", "fail "))
        too_long = len(above) == COLUMNS  # a path that no row has room for
        assert begins or too_long or row.startswith(" " * 21), shown
    assert any(row.startswith(" " * 21) for row in shown), "something goes on below its text"


def test_exec_breaks_what_went_wrong_between_words(places: Places) -> None:
    """The error of a turn, and what the daemon refuses."""
    long = "the key that you have configured was refused, because it expired on the first of May"
    with FakeDaemon(places.runtime) as daemon:
        daemon.add(SESSION, [SessionCreated("/w", Settings()), started()])
        daemon.add(SESSION, [ErrorRaised("authentication", long), ended(outcome="failed")])
        log = Terminal("log", SESSION, columns=COLUMNS)
        assert log.end() == 0
        refused = Terminal("log", SESSION, "--after", "5000000", columns=COLUMNS)
        assert refused.end() != 0
    error = (
        "✗ the key that you have configured was refused, because it\n  expired on the first of May"
    )
    assert error in "\n".join(rows_of(log))
    first, second, *_ = [row for row in rows_of(refused) if row]
    assert first.startswith("tiller: ")
    assert len(first) + 1 + len(second.split()[0]) >= COLUMNS


def test_show_breaks_what_was_said_between_words_on_a_terminal_and_only_there(
    places: Places, tiller: Tiller
) -> None:
    said = "the quick brown fox jumps over the lazy dog and rests a while in the sun"
    asked = UserMessage(ItemId("u1"), f"why is it that {said}?", "start")
    with FakeDaemon(places.runtime) as daemon:
        daemon.add(SESSION, [SessionCreated("/w", Settings()), started()])
        daemon.add(SESSION, [ItemStarted(asked), ItemCompleted(asked)])
        daemon.add(SESSION, [*text_item("i1", said), ended(said), StatusChanged("idle")])
        terminal = Terminal("show", SESSION, columns=COLUMNS)
        assert terminal.end() == 0
        piped = tiller("show", SESSION)[1]
    shown = "\n".join(rows_of(terminal))
    assert "over the lazy dog and rests a\nwhile in the sun\n" in shown
    assert "» why is it that the quick brown fox jumps over the lazy dog\n  and rests" in shown
    assert f"\n{said}\n" in piped


def test_input_that_waits_is_said_when_it_comes_and_not_with_each_other_one(
    places: Places, tiller: Tiller
) -> None:
    first = QueuedInput(ItemId("q1"), "look at b.py", "steer")
    second = QueuedInput(ItemId("q2"), "then the docs", "queue")
    with FakeDaemon(places.runtime) as daemon:
        daemon.add(SESSION, [SessionCreated("/w", Settings()), started()])
        daemon.add(SESSION, [QueueChanged((first,)), QueueChanged((first, second))])
        daemon.add(SESSION, [ended("x"), StatusChanged("idle")])
        shown = tiller("attach", "--until-idle", SESSION)[1]
    assert shown.count("for the next step: look at b.py") == 1
    assert shown.count("look at b.py") == 1
    assert shown.count("queued: then the docs") == 1


def test_resume_shows_the_input_that_it_goes_on_with(places: Places, tiller: Tiller) -> None:
    said = UserMessage(ItemId("u1"), "look at b.py", "start")

    def play(daemon: FakeDaemon, session_id: str) -> None:
        daemon.add(session_id, [started(), ItemCompleted(said), *text_item("i1", "I see.")])
        daemon.add(session_id, [ended("I see.")])

    with FakeDaemon(places.runtime, play) as daemon:
        daemon.add(SESSION, [SessionCreated("/w", Settings())])
        assert "» look at b.py" in tiller("resume", SESSION)[2]
        assert "» look at b.py" not in tiller("exec", "--session", SESSION, "look at b.py")[2]


def test_an_empty_line_of_a_diff_is_empty_and_a_blank_at_the_end_of_one_is_seen(
    places: Places,
) -> None:
    diff = "--- a/a.py\n+++ b/a.py\n@@ -1,3 +1,3 @@\n \n-x\n+y \n z\n"
    request = Request(
        "01K0REQ00000000000000000R1", "approval", "Edit a.py", detail=diff, detail_kind="diff"
    )
    with FakeDaemon(places.runtime) as daemon:
        daemon.add(SESSION, [SessionCreated("/w", Settings()), started()])
        terminal = Terminal("attach", SESSION, columns=COLUMNS)
        terminal.wait_for("/w")
        daemon.add(SESSION, [RequestOpened(request)])
        terminal.wait_for("y once")
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.end() == 0
    shown = rows_of(terminal)
    at = shown.index("    @@ -1,3 +1,3 @@")
    assert shown[at + 1 : at + 5] == ["", "    -x", "    +y␠", "     z"]


def test_entries_of_a_catalogue_stand_in_columns(places: Places, tiller: Tiller) -> None:
    with FakeDaemon(places.runtime) as daemon:
        daemon.tools = (
            ToolSummary("ls", "read", "Lists."),
            ToolSummary("apply_patch", "command", "Changes."),
        )
        shown = tiller("tools")[1]
    assert shown == "ls          read    Lists.\napply_patch command Changes.\n"
