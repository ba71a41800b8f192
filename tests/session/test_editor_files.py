"""Questions to editors about files, and which text counts as unsaved, on a virtual clock."""

from collections.abc import Callable
from itertools import count

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from tiller_daemon.files.paths import Location, locate
from tiller_daemon.mcp.loans import Loans
from tiller_daemon.session.editor_files import ANSWER_S_MAX, EditorFiles
from tiller_daemon.session.services import Lent
from tiller_protocol.codec import decode_file_wanted
from tiller_protocol.lending import (
    LEASE_S,
    LENT_TEXT_CHARS_MAX,
    FileWanted,
    LentFile,
    lender_topic,
)

SESSION = "s"
SILENT = object()


class Bench:
    """A workspace, and editors that answer at once with their `buffers`, if they have any."""

    def __init__(self, directory, **buffers: object) -> None:
        self.directory = directory
        self.buffers = buffers
        self.asked: list[tuple[str, FileWanted]] = []
        self.numbers = count()
        self.on_question: Callable[[], None] = lambda: None
        self.loans = Loans()
        self.files = EditorFiles(self.loans, self._publish, lambda: f"q{next(self.numbers)}")
        for lender in buffers:
            self.lend(lender)

    def lend(self, lender: str, *, reads_files: bool = True) -> None:
        def make(name, settings):
            raise AssertionError(name, settings)

        self.loans.lend(SESSION, lender, Lent({}, reads_files), make)

    def put(self, data: bytes, name: str = "a.txt") -> Location:
        (self.directory / name).write_bytes(data)
        return locate(self.directory, name)

    async def unsaved(self, location: Location, session_id: str = SESSION) -> bytes | None:
        return await self.files.unsaved(session_id, "/as/named", location)

    def _publish(self, topic: str, body: bytes) -> None:
        wanted = decode_file_wanted(body)
        lender = topic.removeprefix(lender_topic(""))
        self.asked.append((lender, wanted))
        self.on_question()
        if (text := self.buffers[lender]) is not SILENT:
            assert text is None or isinstance(text, str)
            self.files.take(LentFile(wanted.question_id, text))


async def test_changes_that_are_not_saved_are_in_the_form_of_the_file(tmp_path):
    bench = Bench(tmp_path, vim="eins\nzwei")
    location = bench.put(b"\xef\xbb\xbfeins\r\n")
    assert await bench.unsaved(location) == b"\xef\xbb\xbfeins\r\nzwei\r\n"
    assert bench.asked == [("vim", FileWanted("q0", SESSION, "/as/named/a.txt"))]


async def test_nobody_is_asked_without_a_loan_or_about_what_editors_show_otherwise(tmp_path):
    bench = Bench(tmp_path, vim="other")
    outside = bench.put(b"a\n")
    names = {"latin": b"caf\xe9\n", "nul": b"\0", "large": b"a" * (LENT_TEXT_CHARS_MAX + 1)}
    names |= {"wide": "\ufeffa".encode("utf-16-le"), "broken": "ü\n".encode() * 50 + b"\xff\n"}
    for one in names:
        assert await bench.unsaved(bench.put(names[one], one)) is None
    assert await bench.unsaved(locate(tmp_path, "missing")) is None
    assert await bench.unsaved(outside._replace(inside=False)) is None
    bench.lend("vim", reads_files=False)
    assert await bench.unsaved(bench.put(b"a\n")) is None
    assert await Bench(tmp_path).unsaved(bench.put(b"a\n")) is None
    assert bench.asked == []


async def test_an_editor_that_has_not_loaded_a_newer_file_has_no_changes(tmp_path):
    bench = Bench(tmp_path, vim="one\n")
    assert await bench.unsaved(bench.put(b"one\n")) is None
    assert await bench.unsaved(bench.put(b"two\n")) is None
    await bench.files.note(SESSION, bench.put(b"three\n"))
    bench.buffers["vim"] = "three"
    assert await bench.unsaved(bench.put(b"four\n")) is None
    bench.buffers["vim"] = "five"
    assert await bench.unsaved(bench.put(b"four\n")) == b"five\n"
    assert await bench.unsaved(bench.put(b"four\n", "other.txt")) == b"five\n"


async def test_the_changes_of_any_editor_count(tmp_path):
    bench = Bench(tmp_path, one="a\0b\n", two=None, three="a\n", four="changed\n")
    assert await bench.unsaved(bench.put(b"a\n")) == b"changed\n"
    assert [lender for lender, _ in bench.asked] == ["one", "two", "three", "four"]


async def test_a_silent_editor_costs_its_time_once_until_it_lends_again(autojump_clock, tmp_path):
    bench = Bench(tmp_path, silent=SILENT, vim="changed\n")
    location = bench.put(b"a\n")
    for waits in (ANSWER_S_MAX, 0.0):
        begun = trio.current_time()
        assert await bench.unsaved(location) == b"changed\n"
        assert trio.current_time() - begun == pytest.approx(waits)
    assert [lender for lender, _ in bench.asked] == ["silent", "vim", "vim"]
    bench.files.take(LentFile(bench.asked[0][1].question_id, "too late\n"))
    bench.buffers = {"silent": "awake\n", "vim": None}
    bench.lend("silent")
    assert await bench.unsaved(location) == b"awake\n"


async def test_a_call_that_is_interrupted_leaves_no_question(tmp_path):
    bench = Bench(tmp_path, silent=SILENT)
    with trio.CancelScope() as scope:
        bench.on_question = scope.cancel
        await bench.unsaved(bench.put(b"a\n"))
    assert scope.cancelled_caught
    bench.files.take(LentFile("q0", "too late\n"))
    bench.buffers["silent"] = None
    assert await bench.unsaved(bench.put(b"a\n")) is None
    assert len(bench.asked) == 2, "an interrupt is no silence"


async def test_a_loan_that_is_over_asks_nobody_and_sub_agents_share_it(autojump_clock, tmp_path):
    bench = Bench(tmp_path, vim="changed\n")
    location = bench.put(b"a\n")
    bench.loans.share(SESSION, "helper")
    assert await bench.unsaved(location, "helper") == b"changed\n"
    assert bench.asked[0][1].session_id == SESSION, "it is what the editor knows"
    await trio.sleep(LEASE_S + 1)
    assert await bench.unsaved(location) is None
    bench.lend("vim")
    assert await bench.unsaved(location) == b"changed\n"
    bench.loans.unshare("helper")
    assert await bench.unsaved(location, "helper") is None


CHARACTERS = st.characters(codec="utf-8", exclude_characters="\r\n\0\ufeff")
LINES = st.lists(st.text(CHARACTERS, max_size=3), min_size=1, max_size=5)


@given(LINES, LINES, st.sampled_from(["\n", "\r\n", "\r"]), st.sampled_from(["\n", "\r\n"]))
def test_line_ends_and_marks_are_no_changes_and_all_else_is(tmp_path_factory, now, then, ends, own):
    directory = tmp_path_factory.mktemp("w")
    saved = "".join(f"{line}{own}" for line in now)

    async def unsaved(text: str) -> bytes | None:
        bench = Bench(directory, vim=text)
        return await bench.unsaved(bench.put(saved.encode()))

    shown = ends.join(now)
    for same in (shown, shown + ends, "\ufeff" + shown):
        assert trio.run(unsaved, same) is None
    text = "\n".join(then)
    changed = trio.run(unsaved, text)
    if text in ("\n".join(now), "\n".join([*now, ""])):
        assert changed is None
    else:
        assert changed is not None
        assert changed.decode().replace("\r\n", "\n") in (text, f"{text}\n")
