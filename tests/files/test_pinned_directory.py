"""Files below an open directory: no link leads out, whenever it appears."""

import os
from pathlib import Path

import pytest

from tiller_daemon.files.paths import PathProblem, locate
from tiller_daemon.files.pinned_directory import pinned_directory, pinned_parent


@pytest.fixture
def place(tmp_path):
    (tmp_path / "w/a/b").mkdir(parents=True)
    (tmp_path / "out/b").mkdir(parents=True)
    for path in ("w/f", "w/a/f", "w/a/b/f"):
        (tmp_path / path).write_text("mine")
    for path in ("out/f", "out/b/f", "f"):
        (tmp_path / path).write_text("secret")
    return tmp_path


def content(beneath, path):
    with os.fdopen(beneath.open_regular(path)) as file:
        return file.read()


def test_files_are_found_by_their_paths_in_any_order(place):
    with pinned_directory(locate(place, "w")) as beneath:
        for path in (b"f", b"a/b/f", b"a/f", b"f", b"a/b/f", b"a/b/f"):
            assert content(beneath, path) == "mine"
            assert beneath.state(path).st_size == 4


@pytest.mark.promise("B58")
def test_no_link_and_no_step_up_is_followed(place):
    (place / "w/link").symlink_to(place / "out")
    (place / "w/file").symlink_to(place / "f")
    (place / "w/a/up").symlink_to("../..")
    with pinned_directory(locate(place, "w")) as beneath:
        for path in (b"link/f", b"link/b/f", b"a/up/f", b"../f", b"a/../../f", b"a//f", b"", b"a/"):
            with pytest.raises(OSError):  # noqa: PT011 - whichever it is
                beneath.state(path)
        with pytest.raises(PathProblem, match="is a link"):
            beneath.open_regular(b"file")
        # What failed half-way leaves nothing behind to begin from.
        with pytest.raises(OSError, match="No such"):
            beneath.state(b"a/none/f")
        assert content(beneath, b"f") == "mine"


@pytest.mark.promise("B58")
def test_a_directory_that_has_become_a_link_meanwhile_stays_what_it_was(place):
    with pinned_directory(locate(place, "w/a")) as beneath:
        (place / "w/a").rename(place / "w/away")
        (place / "w/a").symlink_to(place / "out")
        assert content(beneath, b"f") == "mine"
        assert content(beneath, b"b/f") == "mine"
        began = Path(os.readlink(beneath.directory))  # noqa: PTH115 - of a descriptor
        assert began == place / "w/away"


@pytest.mark.promise("B58")
def test_a_place_that_became_a_link_after_it_was_judged_is_not_opened(place):
    inside, file = locate(place, "w/a"), locate(place, "w/a/f")
    (place / "w/a").rename(place / "w/away")
    (place / "w/a").symlink_to(place / "out")
    with pytest.raises(PathProblem), pinned_directory(inside):
        pass
    with pytest.raises(PathProblem, match="has been replaced by a link"), pinned_parent(file):
        pass


def test_nothing_stays_open(place):
    before = os.listdir("/proc/self/fd")  # noqa: PTH208
    with pinned_directory(locate(place, "w")) as beneath:
        content(beneath, b"a/b/f")
        with pytest.raises(OSError, match="No such"):
            beneath.state(b"a/b/none/f")
        content(beneath, b"a/b/f")
    assert os.listdir("/proc/self/fd") == before  # noqa: PTH208
