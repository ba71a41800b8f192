"""The full-text index: what a query finds, in every script, and what damage to the file does."""

import sqlite3
import unicodedata
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from store.rows import session_row
from support.directories import TemporarySearchIndex
from support.each import each
from tiller_daemon.store.search_index import SearchError, SearchIndex, Text
from tiller_daemon.store.search_query import indexed, match_expression, original, pieces

FIRST = (float("inf"), "")


def index_of(*texts: str, path: Path | None = None) -> SearchIndex:
    """An index with a session for each text, named by its place."""
    index = SearchIndex(path, "log") if path else TemporarySearchIndex("log")
    for number, text in enumerate(texts):
        row = session_row(str(number), 1, updated_at=float(number))
        index.add(row, 1, [Text("answer", text, 1.0, 1)])
    return index


def found(index: SearchIndex, query: str) -> set[str]:
    match = match_expression(query)
    rows = index.find(match, None, archived=False, limit=100, before=FIRST) if match else []
    return {session_id for session_id, _, _ in rows}


@each(
    ("query", "text"),
    [
        ("retry", "the Retry-After header"),
        ("RETRY-AFTER", "the retry after header"),
        ("after retry", "the Retry-After header"),
        ('"retry after"', "the Retry-After header"),
        ("ret*", "the Retry-After header"),
        ('"the ret*"', "the ret header"),
        ('"the ret"*', "the Retry-After header"),
        ("naive cafe", "a naïve café"),
        ("straße", "die Straße"),
        ("turn/loop.py", "turn/loop.py\ntests/x.py"),
        ("run_turn()", "calls `run_turn` again"),
        ("設定", "新しい設定を読む"),
        ("設", "新しい設定を読む"),
        ("設定 読む", "新しい設定を読む"),
        ("配置文件", "请修改配置文件"),
        ("ไฟล์", "แก้ไขไฟล์นี้"),
        ("파일", "설정 파일을 고쳐"),
        ("ошибк*", "исправь ошибку"),
        ('"unclosed phrase', "an unclosed phrase"),
        ("NOT AND OR NEAR", "and not or near"),
        ("a - b", "b and a"),
        ("x\x00y", "xy"),
    ],
)
def test_a_query_finds_what_a_person_expects(query: str, text: str):
    assert found(index_of(text, "something else entirely"), query) == {"0"}


@each(
    ("query", "text"),
    [
        ('"after retry"', "the Retry-After header"),
        ("ret", "the Retry-After header"),
        ("定設", "新しい設定を読む"),
        ("retry missing", "the Retry-After header"),
        ("", "a"),
        ("*", "a"),
        ('"" "*" - ~ ( ) ^ :', "a"),
    ],
)
def test_a_query_does_not_find_what_does_not_match(query: str, text: str):
    assert found(index_of(text), query) == set()


@given(st.text(st.sampled_from('ab"*()^:-+{} \x00\x1f\x02設ä\n'), max_size=20) | st.text())
@example('NEAR("a b", 2)')
def test_no_query_is_an_error(query: str):
    found(index_of("a b"), query)


class Term(NamedTuple):
    words: tuple[str, ...]
    begins: bool


WORDS = st.sampled_from(["a", "ab", "abc", "É", "設", "定", "file", "filé"])
BLANKS = st.sampled_from([" ", "-", "\n", ", "])
TERMS = st.builds(Term, st.lists(WORDS, min_size=1, max_size=2).map(tuple), st.booleans())


def folded(word: str) -> str:
    decomposed = unicodedata.normalize("NFD", word.lower())
    return "".join(one for one in decomposed if not unicodedata.combining(one))


def matches(term: Term, words: list[str]) -> bool:
    wanted = [folded(word) for word in term.words]
    for start in range(len(words) - len(wanted) + 1):
        *same, last = words[start : start + len(wanted)]
        ends = last.startswith(wanted[-1]) if term.begins else last == wanted[-1]
        if same == wanted[:-1] and ends:
            return True
    return False


@given(
    st.lists(st.lists(st.tuples(WORDS, BLANKS), max_size=6), max_size=4),
    st.lists(TERMS, min_size=1, max_size=2),
)
def test_a_search_agrees_with_a_simple_one_over_all_texts(texts, terms: list[Term]):
    index = index_of(*("".join(word + blank for word, blank in text) for text in texts))
    query = " ".join(f'"{" ".join(term.words)}"{"*" * term.begins}' for term in terms)
    expected = {
        str(number)
        for number, text in enumerate(texts)
        if all(matches(term, [folded(word) for word, _ in text]) for term in terms)
    }
    assert found(index, query) == expected


@given(st.text())
def test_an_indexed_text_is_the_text_but_for_its_control_characters(text: str):
    kept = "".join(one for one in text if one not in "\x00\x02\x03\x1f")
    assert original(indexed(text)) == kept


def test_an_excerpt_marks_the_matches_and_is_short():
    text = "word " * 100 + "look at 設定 here\n\nand " + "x" * 5000 + " there"
    index = index_of(text)
    ((_, _, (one,)),) = index.find(
        match_expression("設定 there"), None, archived=False, limit=1, before=FIRST
    )
    assert one.pieces[1::2] == ("設定", "there")
    assert sum(map(len, one.pieces)) < 600
    assert not set("\n\x1f\x02\x03") & set("".join(one.pieces))
    assert pieces("a\x02b\x03") == ("a", "b", "")


@pytest.mark.parametrize("damage", ["garbage", "flipped", "foreign", "no table"])
def test_a_damaged_or_foreign_index_is_replaced_by_an_empty_one(tmp_path: Path, damage: str):
    path = tmp_path / "state" / "search.db"
    index = index_of(*("the same words again " * 50 for _ in range(200)), path=path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert len(index.heads()) == 200
    index.close()
    data = path.read_bytes()
    log_id = "log"
    match damage:
        case "garbage":
            path.write_bytes(b"\x07" * len(data))
        case "flipped":
            path.write_bytes(data[:4096] + bytes(byte ^ 0xFF for byte in data[4096:]))
        case "foreign":
            log_id = "other"
        case _:
            with sqlite3.connect(path) as connection:
                connection.execute("DROP TABLE words")
            connection.close()
    index = SearchIndex(path, log_id)
    with suppress(SearchError):  # the first use may find the damage, the next one begins anew
        found(index, "same")
    assert index.heads() == {}
    index.add(session_row("a", 1), 1, [Text("input", "new", 1.0, 1)])
    assert found(index, "new") == {"a"}
    index.close()


def test_a_query_that_breaks_off_leaves_the_index_as_it_was(tmp_path: Path):
    index = index_of("a word", path=tmp_path / "search.db")
    with pytest.raises(OverflowError):
        index.inputs(None, 1, (1.0, 2**64))
    assert found(index, "word") == {"0"}
    index.close()


def test_a_page_costs_what_is_on_it_and_not_what_is_in_the_index():
    """By instructions of SQLite: inputs cost the same among more, a search grows with matches."""

    def cost(texts: int) -> tuple[int, int]:
        index = TemporarySearchIndex("log")
        for number in range(texts):
            text = Text("input", f"word{number} common", float(number), 1)
            index.add(session_row(f"{number:04}", 1), 1, [text])
        counts = [0, 0]
        assert index._opened is not None
        for place, work in enumerate(
            (
                lambda: index.inputs(None, 10, (float("inf"), 0)),
                lambda: index.find(
                    '"word"* AND "common"', None, archived=False, limit=10, before=FIRST
                ),
            )
        ):
            counts[place] = 0

            def step(place: int = place) -> None:
                counts[place] += 1

            index._opened.set_progress_handler(step, 10)
            assert len(work()) == 10
        index._opened.set_progress_handler(None, 0)
        return counts[0], counts[1]

    few, many = cost(100), cost(1000)
    assert many[0] <= few[0] * 1.2
    assert many[1] <= few[1] * 12
