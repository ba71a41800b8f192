"""`tiller search`: the query that the words make, and what people see."""

import json

from support.each import each
from support.event_bodies import Tiller
from support.fake_daemon import FakeDaemon
from tiller_client.rendering.style import Theme
from tiller_client.rendering.text import on_screen
from tiller_client.verbs.search import query_of, text_line
from tiller_protocol.events import SessionCreated, SessionTitled
from tiller_protocol.places import Places
from tiller_protocol.sessions import FoundText, SessionSearch
from tiller_protocol.settings import Settings


@each(
    ("words", "query"),
    [
        (["retry", "after"], "retry after"),
        (["retry after"], '"retry after"'),
        (["the", "retry after*"], 'the "retry after*"'),
        (['"retry after" x'], '"retry after" x'),
    ],
)
def test_a_word_with_blanks_is_a_phrase(words: list[str], query: str) -> None:
    assert query_of(words) == query


def test_matches_are_coloured_and_text_of_others_is_made_safe() -> None:
    text = FoundText("input", ("look at ", "\x1b[2Jthis", " now"), 1.0)
    assert text_line(text, Theme()) == "input: look at ␛[2Jthis now"
    assert "\x1b[2J" not in on_screen(text_line(text, Theme("dark", 16)))
    assert "\x1b[33m" in on_screen(text_line(text, Theme("dark", 16)))


def test_an_answer_is_shown_without_marks_of_markdown_even_around_a_match() -> None:
    text = FoundText("answer", ("see **the ", "echo", "** of [it](a/b.py): `x*y`"), 1.0)
    assert text_line(text, Theme()) == "answer: see the echo of it: x*y"


def test_all_pages_are_shown_up_to_the_limit_and_nothing_found_is_status_1(
    places: Places, tiller: Tiller
) -> None:
    with FakeDaemon(places.runtime) as daemon:
        for number in range(3):
            name = f"01K0AAAAAAAAAAAAAAAAAASES{number}"
            daemon.add(name, [SessionCreated("/work/shop", Settings()), SessionTitled("Same")])
        status, out, err = tiller("search", "--all", "Same")
        assert (status, err) == (0, "")
        assert [line.split()[0][-6:] for line in out.splitlines()[::2]] == [
            "AASES2",
            "AASES1",
            "AASES0",
        ]
        assert out.splitlines()[1] == "    title: A Same!"
        daemon.not_indexed = 7
        status, out, err = tiller("search", "--all", "-n", "2", "--json", "Same")
        found = [json.loads(line)["session"]["session_id"][-1] for line in out.splitlines()]
        assert (status, found, "not indexed yet: 7" in err) == (0, ["2", "1"], True)
        daemon.not_indexed = 0
        advice = "nothing found here; `word*` also finds longer words, --all searches everywhere\n"
        assert tiller("search", "Same")[:2] == (1, advice)
        assert tiller("search", "--all", "Other", "--json") == (1, "", "")
        (here,) = [
            op for op in daemon.seen.values() if isinstance(op, SessionSearch) and op.workspace
        ]
        assert here.query == "Same"
