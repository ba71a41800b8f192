"""Changes of several files: all of them or none, whatever happens in the middle."""

import errno
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.interrupted_edits import FAULTS, cases, faults_of
from tiller_daemon.files.changes import Change, change_all, recover_changes
from tiller_daemon.files.paths import Location, PathProblem, locate
from tiller_daemon.files.whole_files import read_whole, state_of

SIZES = (1, 3)
STEPS = {"kill": 17, "fails once": 17, "full from then on": 17, "half a write": 1}
"""Every 17th call is enough here; `scripts/soak/edits.py` takes all."""


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.promise("G11")
def test_a_fault_at_any_system_call_leaves_all_files_old_or_all_new(tmp_path, fault):
    """Killed, or with a full disk: nothing is torn, half applied, or left behind."""
    left = [
        (case.name, number, one)
        for case in cases(*SIZES)
        for number, one in faults_of(case, fault, tmp_path, STEPS[fault])
    ]
    assert [one for one in left if one[2].complaints] == []
    trees = [one.tree for _, _, one in left]
    assert "old" in trees
    assert "new" in trees or fault in ("full from then on", "half a write")


@pytest.fixture
def work(tmp_path):
    (tmp_path / "work").mkdir()
    (tmp_path / "work/a").write_text("one")
    (tmp_path / "work/b").write_text("two")
    return tmp_path / "work"


DIED = """
import os, sys
from pathlib import Path
from tiller_daemon.files import changes
from tiller_daemon.files.paths import locate
work, journals = map(Path, sys.argv[1:])
put, done = changes._put_in_place, []
changes._put_in_place = lambda *to: os._exit(9) if done else done.append(put(*to))
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
    for name in ("x.journal", "x.untidy"):
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


def replace(file: Location, data: bytes, root: Path) -> None:
    """Change one file as the tools do."""
    before = read_whole(file) if state_of(file) is not None else None
    change_all([Change(file, before, data)], root / "journals")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.binary(max_size=1000))
def test_what_is_written_is_read_to_the_byte(tmp_path, data):
    file = locate(tmp_path, "work/deep/er/file")
    replace(file, data, tmp_path)
    assert read_whole(file) == data
    state = state_of(file)
    assert state
    assert state.st_size == len(data)


def test_a_reader_sees_the_old_file_or_the_new_one(tmp_path):
    file = locate(tmp_path, "file")
    contents = [bytes([letter]) * 300_000 for letter in b"ab"]
    replace(file, contents[0], tmp_path)
    torn: list[bytes] = []
    done = threading.Event()

    def look() -> None:
        while not done.is_set():
            if (seen := read_whole(file)) not in contents:
                torn.append(seen)

    looking = threading.Thread(target=look)
    looking.start()
    for turn in range(40):
        replace(file, contents[turn % 2], tmp_path)
    done.set()
    looking.join()
    assert torn == []


def test_writes_that_take_only_a_part_are_completed(tmp_path, monkeypatch):
    write = os.write
    monkeypatch.setattr(os, "write", lambda opened, data: write(opened, data[:7]))
    replace(locate(tmp_path, "file"), b"0123456789" * 10, tmp_path)
    assert (tmp_path / "file").read_bytes() == b"0123456789" * 10


def test_a_file_is_on_disk_before_it_takes_the_place_of_the_old_one(tmp_path, monkeypatch):
    done: list[str] = []
    fsync, rename = os.fsync, os.rename
    monkeypatch.setattr(os, "fsync", lambda opened: (done.append("fsync"), fsync(opened))[1])
    monkeypatch.setattr(
        os, "rename", lambda *paths, **at: (done.append("rename"), rename(*paths, **at))[1]
    )
    replace(locate(tmp_path, "file"), b"x", tmp_path)
    # The directory comes after; the journal of one file is not waited for.
    assert done == ["fsync", "rename", "fsync", "rename"]


def test_the_owner_is_kept_where_that_is_permitted(tmp_path, monkeypatch):
    asked: list[tuple[int, int]] = []

    def refuse(_, uid, gid):
        asked.append((uid, gid))
        raise PermissionError(errno.EPERM, "Operation not permitted")

    (tmp_path / "file").write_text("old")
    (tmp_path / "file").chmod(0o640)
    monkeypatch.setattr(os, "fchown", refuse)
    replace(locate(tmp_path, "file"), b"new", tmp_path)
    state = (tmp_path / "file").stat()
    assert asked == [(state.st_uid, state.st_gid)]
    assert stat.S_IMODE(state.st_mode) == 0o640


def test_a_directory_that_can_not_be_made_is_said(tmp_path):
    (tmp_path / "file").touch()
    for path in ("file/x", "file/deeper/x"):
        with pytest.raises(PathProblem, match=r"file/\S+ .* is a file, not a directory"):
            replace(locate(tmp_path, path), b"", tmp_path)


def test_what_can_not_be_reached_is_tidied_up_at_a_later_start(work, tmp_path):
    journals, away = tmp_path / "journals", tmp_path / "away"
    journal_of_a_change_that_died(work, journals)
    work.rename(away)
    work.symlink_to(away)
    assert recover_changes(journals) == []
    work.unlink()
    away.rename(work)
    assert recover_changes(journals) == [str(work / "a")]
    assert (work / "a").read_text() == "one"
    assert sorted(work.iterdir()) == [work / "a", work / "b"]
    assert list(journals.iterdir()) == []


def test_a_directory_that_gets_another_name_meanwhile_is_put_back_all_the_same(
    work, tmp_path, monkeypatch
):
    rename = os.rename

    def swap(*names, **at):
        if not (tmp_path / "away").exists():
            rename(work, tmp_path / "away")
            work.symlink_to("/")
            raise OSError(errno.EIO, "Input/output error")
        rename(*names, **at)

    monkeypatch.setattr(os, "rename", swap)
    with pytest.raises(PathProblem, match=r"Input/output error\. No file was changed\."):
        change_all([Change(locate(work, "a"), b"one", b"1")], tmp_path / "journals")
    assert sorted(tmp_path.glob("away/*")) == [tmp_path / "away/a", tmp_path / "away/b"]
    assert list((tmp_path / "journals").iterdir()) == []


def test_what_can_not_be_taken_back_is_named(work, tmp_path, monkeypatch):
    rename, calls = os.rename, []

    def fail(*names, **at):
        calls.append(names)
        if len(calls) > 1:
            raise OSError(errno.EIO, "Input/output error")
        rename(*names, **at)

    monkeypatch.setattr(os, "rename", fail)
    changes = [Change(locate(work, name), (work / name).read_bytes(), b"x") for name in "ab"]
    with pytest.raises(PathProblem, match=r"could not be undone in a\. Read what is there now"):
        change_all(changes, tmp_path / "journals")
    assert (work / "a").read_text() == "x"
    assert (work / "b").read_text() == "two"


@pytest.mark.parametrize(("number", "works"), [(errno.EINVAL, True), (errno.EIO, False)])
def test_a_file_system_that_can_not_sync_directories_is_used_and_a_broken_one_is_not(
    work, tmp_path, monkeypatch, number, works
):
    fsync = os.fsync

    def refuse(opened):
        if stat.S_ISDIR(os.fstat(opened).st_mode):
            raise OSError(number, os.strerror(number))
        fsync(opened)

    monkeypatch.setattr(os, "fsync", refuse)
    changes = [Change(locate(work, "a"), b"one", b"1")]
    if works:
        change_all(changes, tmp_path / "journals")
    else:
        with pytest.raises(PathProblem, match=r"Input/output error\. No file was changed\."):
            change_all(changes, tmp_path / "journals")
    assert (work / "a").read_text() == ("1" if works else "one")
    assert sorted(work.iterdir()) == [work / "a", work / "b"]
