"""The rows at the bottom of a chat: notes, the most important parts first, who else is there."""

from msgspec import structs

from tiller_client.chat.rows import heading_rows
from tiller_client.chat.status import NOTE_ROWS_MAX, Facts, Notes, beside, status_facts, status_rows
from tiller_client.rendering.style import Theme
from tiller_client.rendering.text import cells
from tiller_protocol.items import Request
from tiller_protocol.settings import Settings, TurnContextShown
from tiller_protocol.snapshot import Snapshot
from tiller_protocol.turns import OpenTurn

SNAPSHOT = Snapshot("01KA", settings=Settings(model="local/small", agent="build"))

REASON = (
    "not sent: No model is configured. Do one of: (1) set a key where the daemon starts; "
    "(2) start a local server; (3) try it without a model: `tiller demo`."
)


def test_a_short_note_comes_before_the_model_and_the_agent() -> None:
    rows = status_rows(SNAPSHOT, Facts(note="nothing is queued"), 0.0, 60)
    assert rows == ["nothing is queued · small · build"]


def test_a_note_that_is_longer_than_the_line_is_shown_whole_above_it() -> None:
    *note, last = status_rows(SNAPSHOT, Facts(note=REASON), 0.0, 60)
    assert " ".join(note).split() == REASON.split()
    assert all(cells(row) <= 60 for row in note)
    assert last == "small · build"


def test_a_note_without_end_leaves_room_for_the_text() -> None:
    assert len(status_rows(SNAPSHOT, Facts(note="x" * 10_000), 0.0, 40)) == NOTE_ROWS_MAX + 1


def test_what_was_said_lasts_until_the_next_key_and_the_focus_is_no_key() -> None:
    notes = Notes(said="Ctrl-C again leaves")
    notes.key_came()
    notes.no_key_came()
    assert notes.said == "Ctrl-C again leaves"
    notes.key_came()
    assert (notes.said, notes.said_before) == ("", "Ctrl-C again leaves")


def test_the_heading_says_which_session_a_fork_came_from() -> None:
    fork = Snapshot("01KB", workspace="/w", title="mend it", parent_id="01KA0000000000004PK35C1W")
    heading, _ = heading_rows(fork, 80, Theme())
    assert "mend it · fork of 4PK35C1W at turn 0 · /w" in heading


def test_the_list_of_facts_names_each_once() -> None:
    used = structs.replace(SNAPSHOT, context_tokens=12, context_window=100)
    assert ("context", "12 %") in status_facts(used, Facts())


def test_the_other_frontends_are_named_each_name_once():
    assert beside(("neovim",)) == "neovim"
    assert beside(("neovim", "tiller chat", "tiller chat")) == "neovim, tiller chat (2)"
    assert beside(("",)) == "unnamed"
    assert beside(("a\x1b[31m\nb",)).isprintable()
    assert cells(beside(tuple(f"name {n}" for n in range(50)))) <= 40


def test_nobody_is_said_to_work_while_a_request_waits_or_the_daemon_is_away() -> None:
    context = TurnContextShown("/w", "build", "local/small", "", "ask", 9, (), 1000)
    turn = OpenTurn("t", 0.0, context)
    working = structs.replace(SNAPSHOT, status="running", turn=turn)
    asked = structs.replace(working, requests=[Request("r", "approval", "Run git push")])
    assert status_rows(working, Facts(), 8.0, 40) == ["working 8.0 s · small · build"]
    assert status_rows(asked, Facts(), 8.0, 40) == ["waits for your answer · small · build"]
    away = Facts(note="no daemon", is_away=True)
    assert status_rows(working, away, 8.0, 40) == ["no daemon · small · build"]


def test_the_line_says_who_else_is_there_where_there_is_room():
    facts = Facts("p/model", "build", beside=("neovim",))
    assert status_rows(Snapshot("s"), facts, 0.0, 80) == ["model · build · also: neovim"]
    assert status_rows(Snapshot("s"), facts, 0.0, 20) == ["model · build"]
