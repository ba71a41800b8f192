"""Whole files: read within a bound, replaced in one step (never torn)."""

import errno
import os
import stat
import threading

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tiller_daemon.workspace import files as room
from tiller_daemon.workspace.files import EDITABLE_BYTES_MAX, read_whole, replace, size_of
from tiller_daemon.workspace.paths import PathProblem, locate


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.binary(max_size=1000))
def test_what_is_written_is_read_to_the_byte(tmp_path, data):
    file = locate(tmp_path, "deep/er/file")
    replace(file, data)
    assert read_whole(file) == data
    assert size_of(file) == len(data)


def test_a_reader_sees_the_old_file_or_the_new_one(tmp_path):
    file = locate(tmp_path, "file")
    contents = [bytes([letter]) * 300_000 for letter in b"ab"]
    replace(file, contents[0])
    torn: list[bytes] = []
    done = threading.Event()

    def look() -> None:
        while not done.is_set():
            if (seen := read_whole(file)) not in contents:
                torn.append(seen)

    looking = threading.Thread(target=look)
    looking.start()
    for turn in range(40):
        replace(file, contents[turn % 2])
    done.set()
    looking.join()
    assert torn == []


def test_writes_that_take_only_a_part_are_completed(tmp_path, monkeypatch):
    write = room.os.write
    monkeypatch.setattr(room.os, "write", lambda opened, data: write(opened, data[:7]))
    replace(locate(tmp_path, "file"), b"0123456789" * 10)
    assert (tmp_path / "file").read_bytes() == b"0123456789" * 10


def test_a_file_is_on_disk_before_it_takes_the_place_of_the_old_one(tmp_path, monkeypatch):
    done: list[str] = []
    fsync, rename = room.os.fsync, room.os.rename
    monkeypatch.setattr(room.os, "fsync", lambda opened: (done.append("fsync"), fsync(opened))[1])
    monkeypatch.setattr(
        room.os, "rename", lambda *paths, **at: (done.append("rename"), rename(*paths, **at))[1]
    )
    replace(locate(tmp_path, "file"), b"x")
    assert done == ["fsync", "rename"]


def test_the_owner_is_kept_where_that_is_permitted(tmp_path, monkeypatch):
    asked: list[tuple[int, int]] = []

    def refuse(_, uid, gid):
        asked.append((uid, gid))
        raise PermissionError(errno.EPERM, "Operation not permitted")

    (tmp_path / "file").write_text("old")
    (tmp_path / "file").chmod(0o640)
    monkeypatch.setattr(room.os, "fchown", refuse)
    replace(locate(tmp_path, "file"), b"new")
    state = (tmp_path / "file").stat()
    assert asked == [(state.st_uid, state.st_gid)]
    assert stat.S_IMODE(state.st_mode) == 0o640


def test_a_file_too_large_to_edit_is_refused_and_the_limit_is_not(tmp_path):
    (tmp_path / "file").touch()
    file = locate(tmp_path, "file")
    os.truncate(file.path, EDITABLE_BYTES_MAX)
    assert len(read_whole(file)) == EDITABLE_BYTES_MAX
    os.truncate(file.path, EDITABLE_BYTES_MAX + 1)
    with pytest.raises(PathProblem, match="file is larger than 16 MiB"):
        read_whole(file)


def test_what_is_not_there_has_no_size(tmp_path):
    assert size_of(locate(tmp_path, "file")) is None
    (tmp_path / "file").touch()
    with pytest.raises(PathProblem, match="a part of its path is a file"):
        size_of(locate(tmp_path, "file/deeper"))


def test_a_directory_that_can_not_be_made_is_said(tmp_path):
    (tmp_path / "file").touch()
    for path in ("file/x", "file/deeper/x"):
        with pytest.raises(PathProblem, match=f"{path} .* is a file, not a directory"):
            replace(locate(tmp_path, path), b"")
