"""Searching without ripgrep gives the answers of ripgrep, and is ended like it."""

import io
import os
import subprocess
import tempfile
from contextlib import chdir
from pathlib import Path

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from support.trees import patterns, plant, trees
from tiller_daemon.tools.base import ToolFailure
from tiller_daemon.tools.search import ripgrep as search
from tiller_daemon.tools.search import search_plain
from tiller_daemon.tools.search.path_pattern import PathPattern


def plainly(place: Path, kind: str, pattern: str = "", *, rules: str = "", target: str = "./"):
    out = io.BytesIO()
    with chdir(place):
        status = search_plain.search(kind, rules, target, pattern, out)
    assert status == 0, out.getvalue()
    return sorted(out.getvalue().split(b"\0" if kind == "files" else b"\n"))


def by_ripgrep(place: Path, kind: str, pattern: str = "", *, rules: str = "", target: str = "./"):
    options = [f"--ignore-file={rules}"] if rules else []
    what = ["--files", target] if kind == "files" else [*search.LINES, "--", pattern, target]
    program = [search.find_ripgrep()[0], *search.ALWAYS, *options, *what]
    done = subprocess.run(program, cwd=place, capture_output=True, check=False)
    assert not done.stderr
    separator = b"\0" if kind == "files" else b"\n"
    records = done.stdout.split(separator)
    return sorted(one for one in records if kind == "files" or not one or b"\0" in one)


@settings(max_examples=400, deadline=None)
@given(tree=trees, pattern=patterns)
def test_the_same_files_are_found_and_left_out(tree, pattern):
    with tempfile.TemporaryDirectory() as place, tempfile.NamedTemporaryFile() as rules:
        plant(Path(place), tree)
        assert plainly(Path(place), "files") == by_ripgrep(Path(place), "files")
        rules.write("\n".join(PathPattern(pattern).only).encode())
        rules.flush()
        only = {"rules": rules.name}
        assert plainly(Path(place), "files", **only) == by_ripgrep(Path(place), "files", **only)


_atoms = st.sampled_from(
    ("a", "b", "é", " ", ".", r"\w", r"\s", r"\S", r"\d", r"\b", "^", "$", "[ab]", "[^a]", r"\A")
)
_repeats = st.sampled_from(("", "", "", "*", "+", "?", "{2}", "+?"))


def _is_sound(atoms) -> bool:
    return all(not repeat or atom not in ("^", "$", r"\b", r"\A") for atom, repeat in atoms)


_sequences = (
    st.lists(st.tuples(_atoms, _repeats), min_size=1, max_size=4)
    .filter(_is_sound)
    .map(lambda atoms: "".join(map("".join, atoms)))
)
expressions = st.one_of(
    _sequences,
    st.tuples(_sequences, _sequences).map("|".join),
    st.tuples(_sequences, _sequences).map(lambda two: f"({two[0]}){two[1]}"),
    _sequences.map(lambda one: f"(?i){one}"),
)
texts = st.text(st.sampled_from("aAbé1 \t\r\n\n\n_.-\N{GREEK SMALL LETTER SIGMA}"), max_size=60)
contents = st.one_of(
    texts.map(str.encode),
    texts.map(lambda text: text.encode("utf-16")),
    texts.map(lambda text: b"\xef\xbb\xbf" + text.encode()),
    # Of the lines before that of the first NUL ripgrep shows some and some not.
    texts.map(lambda text: f"x\0{text}".encode()),
)


@settings(max_examples=600, deadline=None)
@given(pattern=expressions, content=contents)
def test_the_same_lines_are_found_for_expressions_that_both_know(pattern, content):
    with tempfile.TemporaryDirectory() as place:
        Path(place, "a.txt").write_bytes(content)
        found = by_ripgrep(Path(place), "lines", pattern)
        assert plainly(Path(place), "lines", pattern) == found


@pytest.fixture
def without(bench, monkeypatch):
    """A bench on a machine without ripgrep."""
    monkeypatch.setattr(search, "find_ripgrep", list)
    return bench


async def test_without_ripgrep_the_tools_give_the_same_answers(bench, monkeypatch):
    bench.put(".gitignore", "*.log\nbuilt/\n")
    bench.put(".git/info/exclude", "secret*\n")
    bench.put("src/.ignore", "!debug.log\n/gen\n")
    for number, path in enumerate(
        (
            "src/a.py",
            "src/debug.log",
            "src/gen/b.py",
            "other.log",
            "built/c.py",
            "secret.py",
            "é.py",
        )
    ):
        os.utime(bench.put(path, f"one\nneedle {'x' * 200 * number}\n"), (number, number))
    (bench.workspace / "door").symlink_to("src")
    os.mkfifo(bench.workspace / "fifo")
    asked = (
        ("glob", {"pattern": "*.{py,log}"}),
        ("glob", {"pattern": "**", "path": "src"}),
        ("grep", {"pattern": r"needle\s\w*"}),
        ("grep", {"pattern": "needle", "path": "other.log"}),
        ("grep", {"pattern": "^(?:one|two)$", "include": "src/**"}),
        ("grep", {"pattern": "nowhere"}),
    )
    answers = [(await bench.call(name, **arguments)).output for name, arguments in asked]
    assert "src/debug.log" in answers[0]
    assert "omitted end of long line" in answers[2]
    monkeypatch.setattr(search, "find_ripgrep", list)
    assert [(await bench.call(name, **arguments)).output for name, arguments in asked] == answers


async def test_a_ripgrep_that_does_not_run_is_passed_over(bench, tmp_path, monkeypatch):
    bench.put("a.py", "needle\n")
    broken = {
        "missing_library": "#!/bin/sh\necho error while loading shared libraries\nexit 127\n",
        "killed": "#!/bin/sh\nkill -ILL $$\n",
        "other_machine": "\x7fELF of another machine",
    }
    for name, text in broken.items():
        program = tmp_path / name
        program.write_text(text)
        program.chmod(0o755)
        monkeypatch.setattr(search, "find_ripgrep", lambda program=program: [str(program)])
        assert (await bench.call("grep", pattern="needle")).output == "a.py\n     1\tneedle"
        assert (await bench.call("glob", pattern="*")).output == "a.py"


async def test_a_ripgrep_that_breaks_off_is_no_answer(bench, tmp_path, monkeypatch):
    program = tmp_path / "rg"
    program.write_text("#!/bin/sh\nprintf './a\\0001:needle\\n'\nkill -KILL $$\n")
    program.chmod(0o755)
    monkeypatch.setattr(search, "find_ripgrep", lambda: [str(program)])
    with pytest.raises(ToolFailure, match=r"broke off: .* ended with -9"):
        await bench.call("grep", pattern="needle")


async def test_without_ripgrep_it_says_what_is_wrong_with_an_expression(without):
    without.put("a.py", "needle\n")
    for pattern in ("needle(", r"\pL", "a{99999999999}"):
        with pytest.raises(ToolFailure, match=r"regex parse error.*those of Python"):
            await without.call("grep", pattern=pattern)


async def test_an_expression_that_takes_for_ever_is_ended_and_what_was_found_is_shown(
    without, monkeypatch
):
    without.put("a.py", "aaaab\n")
    without.put("b.py", "a" * 60 + "\n")
    monkeypatch.setattr(search, "SEARCH_S_MAX", 1.0)
    found = (await without.call("grep", pattern="(a+)+b")).output
    assert found.startswith("a.py\n     1\taaaab\n(The search was ended after")


async def test_an_interrupt_ends_a_search_without_ripgrep_at_once(without):
    without.put("b.py", "a" * 60 + "\n")
    before = without.descriptors()
    began = trio.current_time()
    with trio.move_on_after(0.5) as scope:
        await without.call("grep", pattern="(a+)+b")
    assert scope.cancelled_caught
    assert trio.current_time() - began < 2
    assert len(without.descriptors()) == len(before)


async def test_b58_an_ignore_file_that_is_none_holds_nobody_up(without):
    os.mkfifo(without.workspace / ".gitignore")
    (without.workspace / ".ignore").mkdir()
    without.put("a.py", "x\n")
    with trio.fail_after(10):
        assert (await without.call("glob", pattern="*.py")).output == "a.py"


async def test_a_long_line_and_a_long_file_are_searched_in_pieces(without):
    line = "x" * (search_plain.BLOCK_CHARS + 10)
    without.put("a.txt", f"{line}\n" * 3 + "needle\n" + "y\n" * search_plain.BLOCK_CHARS + "needle")
    found = (await without.call("grep", pattern="^needle$")).output
    assert found == f"a.txt\n     4\tneedle\n{search_plain.BLOCK_CHARS + 5:>6}\tneedle"


def test_a_name_that_is_no_text_is_passed_on(tmp_path):
    (tmp_path / os.fsdecode(b"caf\xe9.txt")).write_bytes(b"needle \xe9\n")
    assert plainly(tmp_path, "files") == [b"", b"./caf\xe9.txt"]
    assert plainly(tmp_path, "lines", "needle") == [b"", b"./caf\xe9.txt\x001:needle \xe9"]
