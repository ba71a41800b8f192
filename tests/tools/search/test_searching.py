"""The tools `ls`, `glob` and `grep`: what is found, what is left out, and that it is bounded."""

import os
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.each import each
from tiller_daemon.tools import ls as ls_module
from tiller_daemon.tools.base import ToolFailure
from tiller_daemon.tools.search import glob as glob_module
from tiller_daemon.tools.search import grep as grep_module
from tiller_daemon.tools.search.path_pattern import PathPattern
from tiller_daemon.tools.search.ripgrep import SEARCH_S_MAX


@pytest.fixture
def tree(bench):
    bench.put(".gitignore", "*.log\nbuilt/\n")
    bench.put(".git/config", "needle\n")
    bench.put(".hidden/a.py", "needle\n")
    bench.put("src/a.py", "hay\nneedle one\n")
    bench.put("src/deep/b.ts", "needle two\r\n")
    bench.put("debug.log", "needle\n")
    bench.put("built/c.py", "needle\n")
    bench.put("binary.py", b"needle\0\n")
    return bench


async def test_ls_marks_directories_and_links(tree):
    (tree.workspace / "door").symlink_to("src")
    listed = (await tree.call("ls")).output.split("\n")
    assert listed[:5] == [".git/", ".gitignore", ".hidden/", "binary.py", "built/"]
    assert listed[5:] == ["debug.log", "door -> src", "src/"]
    assert (await tree.call("ls", path="src")).output == "a.py\ndeep/"


async def test_ls_says_what_it_can_not_list(tree):
    with pytest.raises(ToolFailure, match=r"src/a\.py is not a directory; use `read`"):
        await tree.call("ls", path="src/a.py")
    with pytest.raises(ToolFailure, match="nowhere does not exist"):
        await tree.call("ls", path="nowhere")
    (tree.workspace / "empty").mkdir()
    assert (await tree.call("ls", path="empty")).output == "(The directory is empty.)"


async def test_ls_shows_a_name_that_is_no_text(bench):
    (bench.workspace / os.fsdecode(b"caf\xe9")).mkdir()
    assert (await bench.call("ls")).output == "caf\ufffd/"


async def test_ls_is_bounded(bench, monkeypatch):
    monkeypatch.setattr(ls_module, "ENTRIES_MAX", 2)
    for name in "abcd":
        bench.put(name, "")
    assert (await bench.call("ls")).output.startswith("a\nb\n(At least 2 more;")


async def test_glob_finds_by_name_at_any_depth_and_leaves_out_what_git_ignores(tree):
    found = (await tree.call("glob", pattern="*.py")).output
    assert sorted(found.split("\n")) == [".hidden/a.py", "binary.py", "src/a.py"]
    assert (await tree.call("glob", pattern="*.log")).output.startswith("No file matches.")
    assert (await tree.call("glob", pattern="built/*.py")).output.startswith("No file matches.")


async def test_glob_takes_paths_braces_and_a_directory(tree):
    assert (await tree.call("glob", pattern="src/**/*.{ts,tsx}")).output == "src/deep/b.ts"
    assert (await tree.call("glob", pattern="*/b.ts", path="src")).output == "src/deep/b.ts"
    with pytest.raises(ToolFailure, match=r"src/a\.py is not a directory"):
        await tree.call("glob", pattern="*", path="src/a.py")


async def test_glob_shows_the_newest_first_and_is_bounded(bench, monkeypatch):
    for age, name in enumerate(["z.py", "y.py", "x.py"]):
        os.utime(bench.put(name, ""), (1_000_000 - age, 1_000_000 - age))
    assert (await bench.call("glob", pattern="*.py")).output == "z.py\ny.py\nx.py"
    monkeypatch.setattr(glob_module, "FILES_SHOWN_MAX", 1)
    output = (await bench.call("glob", pattern="*.py")).output
    assert output == "z.py\n(1 of 3 files. Narrow the pattern.)"
    monkeypatch.setattr(glob_module, "FILES_FOUND_MAX", 2)
    output = (await bench.call("glob", pattern="*.py")).output
    assert output.endswith("(1 of at least 2 files. Narrow the pattern.)")


async def test_grep_shows_lines_by_file_and_leaves_out_what_git_ignores(tree):
    output = (await tree.call("grep", pattern="needle")).output
    assert output == (
        ".hidden/a.py\n     1\tneedle\n"
        "src/a.py\n     2\tneedle one\n"
        "src/deep/b.ts\n     1\tneedle two"
    )


async def test_grep_takes_a_directory_a_file_and_a_kind_of_file(tree):
    one, two = "src/a.py\n     2\tneedle one", "src/deep/b.ts\n     1\tneedle two"
    assert (await tree.call("grep", pattern="needle", path="src")).output == f"{one}\n{two}"
    assert (await tree.call("grep", pattern="needle", path="src/a.py")).output == one
    assert (await tree.call("grep", pattern="needle", path="src", include="*.ts")).output == two
    assert (await tree.call("grep", pattern="needle", include="src/**/*.ts")).output == two
    assert "No line" in (await tree.call("grep", pattern="needle", include="*.log")).output
    assert "No line" in (await tree.call("grep", pattern="needle", include="other/*.ts")).output


async def test_what_is_ignored_is_left_out_where_there_is_no_repository_too(bench):
    bench.put(".gitignore", "*.log\n")
    bench.put("debug.log", "needle\n")
    assert (await bench.call("glob", pattern="*")).output == ".gitignore"
    assert "No line" in (await bench.call("grep", pattern="needle")).output


async def test_grep_takes_a_pattern_that_looks_like_an_option(bench):
    bench.put("a.txt", "--files\n")
    assert (await bench.call("grep", pattern="--files")).output == "a.txt\n     1\t--files"


async def test_grep_says_what_is_wrong_with_an_expression(tree):
    with pytest.raises(ToolFailure, match=r"(?s)regex parse error.*unclosed group"):
        await tree.call("grep", pattern="needle(")
    with pytest.raises(ToolFailure, match="could not be started"):
        await tree.call("grep", pattern="a\0b")


@pytest.mark.parametrize("pattern", ["end;$", "^foo end;$", r"end;\r$", r"end;\r?$", r"\w+;$"])
async def test_the_end_of_a_line_is_found_in_a_file_of_windows_too(bench, pattern):
    (bench.workspace / "a.txt").write_bytes(b"foo end;\r\nno end; here\r\n")
    found = await bench.call("grep", pattern=pattern)
    assert found.output == "a.txt\n     1\tfoo end;"


async def test_pipes_in_place_of_ignore_files_stop_no_search(bench):
    names = (".gitignore", "sub/.gitignore", "sub/.ignore", ".rgignore", ".git/info/exclude")
    for pipe in (bench.workspace / name for name in names):
        pipe.parent.mkdir(parents=True, exist_ok=True)
        os.mkfifo(pipe)
    (bench.workspace.parent / ".gitignore").symlink_to(bench.workspace / ".gitignore")
    bench.put("sub/a.txt", "foo\n")
    began = time.monotonic()
    assert (await bench.call("glob", pattern="*.txt")).output == "sub/a.txt"
    assert time.monotonic() - began < SEARCH_S_MAX / 2


@pytest.mark.promise("B58")
async def test_grep_refuses_what_would_hang(bench):
    os.mkfifo(bench.workspace / "fifo")
    with pytest.raises(ToolFailure, match="fifo is a FIFO"):
        await bench.call("grep", pattern="x", path="fifo")
    with pytest.raises(ToolFailure, match="nowhere does not exist"):
        await bench.call("grep", pattern="x", path="nowhere")
    assert (await bench.call("grep", pattern="x")).output.startswith("No line matches")


async def test_grep_is_bounded_in_lines_and_in_their_length(bench, monkeypatch):
    bench.put("a.txt", f"{'x' * 5_000_000}\n" + "x\n" * 100_000)
    output = (await bench.call("grep", pattern="x")).output
    assert output.count("\n") <= grep_module.MATCHES_SHOWN_MAX + 1
    assert output.endswith("(200 of at least 2000 lines. Narrow the pattern, or give a path.)")
    assert len(output) < 10_000


async def test_a_search_shows_names_and_lines_that_are_no_text(bench):
    (bench.workspace / os.fsdecode(b"caf\xe9.txt")).write_bytes(b"needle \xc3\xa9 \xff\n")
    output = (await bench.call("grep", pattern="needle")).output
    assert output == "caf\ufffd.txt\n     1\tneedle é \ufffd"
    assert (await bench.call("glob", pattern="caf*")).output == "caf\ufffd.txt"


@each(
    ("pattern", "fits", "not_fits"),
    [
        ("*.py", "a.py src/a.py .a.py", "a.pyc py"),
        ("./*.py", "a.py src/a.py", "a.pyc"),
        ("src/*.py", "src/a.py", "a.py src/deep/a.py x/src/a.py"),
        ("src/**", "src/a.py src/deep/a.py", "srcs/a a/src/b"),
        ("**/test/*.py", "test/a.py x/y/test/a.py", "test/x/a.py"),
        ("a/**/**/b", "a/b a/x/b a/x/y/b", "a/bb ab"),
        ("{a,b/c}.txt", "a.txt x/a.txt b/c.txt", "c.txt x/b/c.txt"),
        ("[a-c]?.t", "b1.t", "d1.t b.t"),
        ("[!a].t", "b.t", "a.t"),
        ("app/[id]/page.tsx", "app/[id]/page.tsx app/i/page.tsx", "app/id/page.tsx"),
        ("app/[id]/*.tsx", "app/[id]/page.tsx", "app/[x]/page.tsx"),
        ("[[...slug]].ts", "[[...slug]].ts x/[[...slug]].ts", "slug.ts"),
        ("a[!].{t,u}", "a[!].t a[!].u", "ab.t"),
        ("{x}", "{x}", "x"),
        ("a{,b}", "a ab", "b"),
    ],
)
def test_a_path_pattern_means_what_the_field_means_by_it(pattern, fits, not_fits):
    ready = PathPattern(pattern)
    assert [path for path in fits.split() if not ready.matches(path)] == []
    assert [path for path in not_fits.split() if ready.matches(path)] == []


def test_a_pattern_that_leads_elsewhere_is_refused():
    for pattern in ("/etc/*", "../*", "", "a\0", "{a,b}" * 8, "a/" * 40):
        with pytest.raises(ToolFailure, match="pattern"):
            PathPattern(pattern)


@given(stars=st.text(st.sampled_from("*a/?["), max_size=60), path=st.text("ab/", max_size=200))
def test_no_pattern_takes_for_ever(stars, path):
    pattern = f"x{stars}".rstrip("/")
    if pattern.count("/") < 30:
        PathPattern(pattern).matches(path)
        PathPattern(pattern).matches("a" * 200 + "b")
