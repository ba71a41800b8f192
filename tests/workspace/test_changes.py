"""Changes of several files: all of them or none, whatever happens in the middle."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tiller_daemon.workspace.changes import Change, change_all, recover_changes
from tiller_daemon.workspace.paths import PathProblem, locate

DIE = Path(__file__).with_name("die_while_changing.py")


@pytest.mark.parametrize("files", [1, 2])
def test_g11_a_kill_at_any_system_call_leaves_all_files_old_or_all_new(tmp_path, files):
    done = subprocess.run(
        [sys.executable, DIE, tmp_path, str(files)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    points, old, new = map(int, done.stdout.split())
    assert points > 60 * files
    assert min(old, new) > 5


@pytest.fixture
def work(tmp_path):
    (tmp_path / "work").mkdir()
    (tmp_path / "work/a").write_text("one")
    (tmp_path / "work/b").write_text("two")
    return tmp_path / "work"


DIED = """
import os, sys
from pathlib import Path
from tiller_daemon.workspace import changes
from tiller_daemon.workspace.paths import locate
work, journals = map(Path, sys.argv[1:])
put, done = changes._put_in_place, []
changes._put_in_place = lambda step: os._exit(9) if done else done.append(put(step))
changes.change_all(
    [
        changes.Change(locate(work, "a"), b"one", b"1"),
        changes.Change(locate(work, "b"), b"two", b"2"),
    ],
    journals,
)
"""


def journal_of_a_change_that_died(work: Path, journals: Path) -> None:
    """As a kill between the two files leaves it."""
    command = [sys.executable, "-c", DIED, work, journals]
    assert subprocess.run(command, check=False).returncode == 9


def test_what_somebody_else_changed_by_then_stays_theirs(work, tmp_path):
    journal_of_a_change_that_died(work, tmp_path / "journals")
    assert (work / "a").read_text() == "1"
    (work / "b").write_text("the user's")
    recover_changes(tmp_path / "journals")
    assert (work / "a").read_text() == "one"
    assert (work / "b").read_text() == "the user's"
    assert sorted(work.iterdir()) == [work / "a", work / "b"]


def test_a_recovery_follows_no_link_that_stands_where_a_directory_was(work, tmp_path):
    journal_of_a_change_that_died(work, tmp_path / "journals")
    other = tmp_path / "other"
    work.rename(other)
    work.symlink_to(other)
    recover_changes(tmp_path / "journals")
    assert (other / "a").read_text() == "1"
    assert (other / "b").read_text() == "two"


def test_a_journal_that_makes_no_sense_is_dropped(tmp_path):
    for name in ("x.journal", "x.done", "x.new"):
        (tmp_path / name).write_bytes(b"{")
    assert recover_changes(tmp_path) == []
    assert list(tmp_path.iterdir()) == []
    assert recover_changes(tmp_path / "missing") == []


def test_a_file_that_is_not_as_it_must_be_stops_all(work, tmp_path):
    for second in (
        Change(locate(work, "b"), b"other", b"2"),
        Change(locate(work, "b"), None, b"2"),
        Change(locate(work, "c"), b"gone", b"2"),
        Change(locate(work, "c"), b"gone", None),
    ):
        with pytest.raises(PathProblem, match=r"No file was changed"):
            change_all([Change(locate(work, "a"), b"one", b"1"), second], tmp_path / "journals")
        assert {path.name: path.read_text() for path in work.iterdir()} == {"a": "one", "b": "two"}


def test_without_a_journal_nothing_is_changed(work, tmp_path):
    (tmp_path / "journals").write_text("a file")
    with pytest.raises(PathProblem, match="No file was changed: the journal"):
        change_all([Change(locate(work, "a"), b"one", b"1")], tmp_path / "journals")
    assert (work / "a").read_text() == "one"


def test_where_there_are_no_links_the_old_file_is_copied(work, tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    (work / "a").chmod(0o640)
    change_all([Change(locate(work, "a"), b"one", b"1")], tmp_path / "journals")
    assert (work / "a").read_text() == "1"
    assert (work / "a").stat().st_mode & 0o777 == 0o640
    with pytest.raises(PathProblem, match="b has changed"):
        change_all(
            [Change(locate(work, "a"), b"1", b"2"), Change(locate(work, "b"), b"", b"2")],
            tmp_path / "journals",
        )
    assert (work / "a").read_text() == "1"
    assert sorted(work.iterdir()) == [work / "a", work / "b"]
