"""Restoring files: killed at any system call, and with directories in the way.

Everything else is tested in `test_snapshots`.
"""

import os
import sys
from itertools import count
from pathlib import Path

import pytest

from support.interrupted_edits import UNREACHED, in_child
from tiller_daemon.files.restore import (
    EMPTY_LEVELS_MAX,
    EXECUTABLE,
    LINK,
    PLAIN,
    FileRestore,
    GitEntry,
    blob_id,
    restore_files,
)

OLD, NEW = b"old\n", b"new\n"


def entry(mode: int, content: bytes) -> GitEntry:
    return GitEntry(mode, blob_id(content))


MOVES = (
    FileRestore("a", entry(PLAIN, OLD), entry(EXECUTABLE, NEW)),
    FileRestore("gone", entry(PLAIN, OLD), None),
    FileRestore("link", entry(PLAIN, OLD), entry(LINK, NEW)),
    FileRestore("made", None, entry(PLAIN, NEW)),
)
CONTENTS = {blob_id(content): content for content in (OLD, NEW)}


def put(work: Path) -> None:
    work.mkdir(exist_ok=True)
    for path in work.iterdir():
        path.unlink()
    for move in MOVES:
        if move.expected:
            (work / move.path).write_bytes(OLD)


def tree(work: Path) -> dict[str, bytes]:
    return {
        path.name: os.fsencode(path.readlink()) if path.is_symlink() else path.read_bytes()
        for path in work.iterdir()
    }


@pytest.mark.promise("G11")
@pytest.mark.nightly
def test_a_kill_at_any_system_call_is_undone_and_leaves_nothing_beside_the_files(tmp_path):
    work = tmp_path / "work"
    put(work)
    before = tree(work)
    halves = 0
    for number in count(0, 2):
        put(work)
        ended = in_child(lambda: len(restore_files(work, MOVES, CONTENTS)), "kill", number)
        if ended == UNREACHED:
            break
        halves += tree(work) != before
        back = [move.reversed() for move in MOVES]
        in_child(
            lambda restores=back: len(restore_files(work, restores, CONTENTS)), "kill", number % 30
        )
        restore_files(work, back, CONTENTS)
        assert tree(work) == before, f"call {number}"
    assert halves > 10
    assert set(tree(work)) == {"a", "link", "made"}


@pytest.mark.promise("B55")
def test_directories_make_room_for_a_file_unless_anything_else_is_in_them(tmp_path):
    deepest = "/".join("d" * EMPTY_LEVELS_MAX)
    empty = ("empty/a/b", "empty/c", deepest)
    for directory in (*empty, "file/a/b", "link", "linked/a", f"deeper/{deepest}"):
        (tmp_path / directory).mkdir(parents=True)
    (tmp_path / "file/a/mine").write_bytes(NEW)
    (tmp_path / "link/a").symlink_to(tmp_path / "linked")
    conflicts = ("deeper", "file", "link")
    kept = {path for name in (*conflicts, "linked") for path in (tmp_path / name).rglob("*")}
    restores = [FileRestore(name, None, entry(PLAIN, OLD)) for name in ("empty", "d", *conflicts)]
    assert restore_files(tmp_path, restores, CONTENTS) == dict.fromkeys(conflicts, "")
    assert (tmp_path / "empty").read_bytes() == (tmp_path / "d").read_bytes() == OLD
    assert kept <= {*tmp_path.rglob("*")}


@pytest.mark.parametrize(
    ("wanted", "by"), [(None, "writing"), (None, "replacing"), (OLD, "writing")]
)
def test_what_the_user_saves_while_a_file_is_being_restored_stays(
    tmp_path: Path, wanted: bytes | None, by: str
) -> None:
    """The user saves right before the system call that would take the file away."""
    path = tmp_path / "a"
    path.write_bytes(NEW)
    events = ["os.rename", "os.remove"]

    def save(event: str, arguments: tuple[object, ...]) -> None:
        if event in events and "a" in arguments:
            events.clear()
            if by == "replacing":
                (tmp_path / "b").write_bytes(b"mine")
                (tmp_path / "b").rename(path)
            else:
                path.write_bytes(b"mine")

    # A hook of Python that sees each call before it is made; it can't be removed again.
    sys.addaudithook(save)
    one = FileRestore("a", entry(PLAIN, NEW), entry(PLAIN, wanted) if wanted else None)
    assert restore_files(tmp_path, [one], CONTENTS) == {"a": ""}
    assert events == []
    assert [*tmp_path.iterdir()] == [path]
    assert path.read_bytes() == b"mine"
