"""Whole files: read within a bound."""

import os

import pytest

from tiller_daemon.files.paths import PathProblem, locate
from tiller_daemon.files.whole_files import EDITABLE_BYTES_MAX, read_whole, state_of


def test_a_file_too_large_to_edit_is_refused_and_the_limit_is_not(tmp_path):
    (tmp_path / "file").touch()
    file = locate(tmp_path, "file")
    os.truncate(file.path, EDITABLE_BYTES_MAX)
    assert len(read_whole(file)) == EDITABLE_BYTES_MAX
    os.truncate(file.path, EDITABLE_BYTES_MAX + 1)
    with pytest.raises(PathProblem, match="file is larger than 16 MiB"):
        read_whole(file)


def test_what_is_not_there_has_no_state(tmp_path):
    assert state_of(locate(tmp_path, "file")) is None
    (tmp_path / "file").touch()
    with pytest.raises(PathProblem, match="a part of its path is a file"):
        state_of(locate(tmp_path, "file/deeper"))
