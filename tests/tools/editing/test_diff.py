"""Changes as unified diffs: they say exactly what changes, as git reads them."""

import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from tiller_daemon.tools.editing import diff as room
from tiller_daemon.tools.editing.diff import unified_diff

lines = st.lists(st.sampled_from(["a", "b", "c", "", "d\u2028e", "f\r"]), max_size=30)
texts = st.builds(lambda ones, end: "\n".join(ones) + end, lines, st.sampled_from(["", "\n"]))


@settings(max_examples=200, deadline=None)
@given(before=texts.filter(bool), after=texts.filter(bool))
def test_git_makes_the_one_text_of_the_other(before, after):
    assert _apply(before, unified_diff(before, after, "name")) == after


def test_a_change_beside_lines_like_it_keeps_its_context():
    before, after = "b\nb\nb\na", "a\nb\nb\nb\nb\na"
    assert _apply(before, unified_diff(before, after, "name")) == after


def test_three_lines_are_shown_around_a_change_and_far_changes_have_hunks_of_their_own():
    before = "".join(f"{i}\n" for i in range(1, 31))
    after = before.replace("\n7\n", "\nseven\n").replace("\n20\n", "\ntwenty\n")
    shown = unified_diff(before, after, "name")
    assert [line for line in shown.split("\n") if line.startswith("@@")] == [
        "@@ -4,7 +4,7 @@",
        "@@ -17,7 +17,7 @@",
    ]
    assert shown.endswith(" 19\n-20\n+twenty\n 21\n 22\n 23\n")
    near_the_end = unified_diff(before, before.replace("\n25\n", "\nx\n"), "name")
    assert near_the_end.endswith(" 24\n-25\n+x\n 26\n 27\n 28\n")


def test_nothing_changed_is_no_diff():
    assert unified_diff("a\n", "a\n", "x") == ""


def test_a_new_file_comes_from_nowhere():
    assert unified_diff(None, "a\n", "x") == "--- /dev/null\n+++ b/x\n@@ -0,0 +1 @@\n+a\n"


def test_a_change_far_into_a_large_file_has_its_line_number():
    old = [f"{i}" for i in range(200_000)]
    new = [*old[:150_000], "here", *old[150_000:]]
    shown = unified_diff("\n".join(old), "\n".join(new), "x")
    assert shown.split("\n")[2:7] == [
        "@@ -149998,6 +149998,7 @@", " 149997", " 149998", " 149999", "+here"
    ]  # fmt: skip


def test_too_many_changed_lines_are_one_hunk(monkeypatch):
    monkeypatch.setattr(room, "MATCHED_LINES_MAX", 3)
    before, after = "a\nb\nc\nd\n", "a\nB\nc\nD\n"
    shown = unified_diff(before, after, "name")
    assert shown.count("@@ -") == 1
    assert "-b\n-c\n-d\n+B\n+c\n+D\n" in shown
    assert _apply(before, shown) == after


def _apply(before: str, shown: str) -> str:
    with TemporaryDirectory() as directory:
        file = Path(directory, "name")
        file.write_bytes(before.encode())
        if shown:
            arguments = ["git", "apply", "--whitespace=nowarn", "-"]
            subprocess.run(arguments, cwd=directory, input=shown.encode(), check=True)
        return file.read_bytes().decode()
