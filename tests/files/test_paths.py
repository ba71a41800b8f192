"""Where paths lead: every link is followed before a path is judged."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tiller_daemon.files.paths import PathProblem, locate, open_regular


@pytest.fixture
def world(tmp_path):
    (tmp_path / "work" / "src").mkdir(parents=True)
    (tmp_path / "work" / "src" / "a.py").write_text("a")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "b.py").write_text("b")
    (tmp_path / "work" / "in").symlink_to("src")
    (tmp_path / "work" / "out").symlink_to(tmp_path / "other")
    (tmp_path / "work" / "gone").symlink_to(tmp_path / "other" / "missing")
    (tmp_path / "door").symlink_to("work")
    return tmp_path


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (".", "."),
        ("src", "src"),
        ("in/a.py", "src/a.py"),
        ("./src/../src//a.py", "src/a.py"),
        ("new/deep/file", "new/deep/file"),
        ("in/../x", "x"),
        ("..name", "..name"),
    ],
)
def test_a_path_inside_is_named_from_the_workspace(world, path, text):
    found = locate(world / "work", path)
    assert (found.inside, found.text) == (True, text)
    assert found == locate(world / "door", path)
    assert found == locate(world / "work", str(world / "work" / path))


@pytest.mark.parametrize(
    ("path", "leads_to"),
    [
        ("..", "."),
        ("out/b.py", "other/b.py"),
        ("out/new", "other/new"),
        ("gone", "other/missing"),
        ("in/../../other/b.py", "other/b.py"),
        ("../work2", "work2"),
        ("out/../work3", "work3"),
    ],
)
def test_a_path_that_leads_out_is_outside_and_absolute(world, path, leads_to):
    found = locate(world / "work", path)
    assert not found.inside
    assert found.text == os.path.normpath(world / leads_to)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    parts=st.lists(st.sampled_from(["..", ".", "src", "in", "out", "a.py", "", "new"]), max_size=8)
)
def test_a_path_said_to_be_inside_really_is(world, parts):
    found = locate(world / "work", "/".join(parts) or ".")
    really = Path(os.path.realpath(world / "work" / "/".join(parts)))
    assert found.path == really
    assert found.inside is (really == world / "work" or world / "work" in really.parents)


def test_a_name_that_is_no_text_is_shown_as_text(tmp_path):
    found = locate(tmp_path, os.fsdecode(b"caf\xe9"))
    assert found.text == "caf\ufffd"
    assert os.fsencode(found.path).endswith(b"caf\xe9")


def test_what_is_no_path_is_refused(tmp_path):
    for path in ("", "a\0b", "é" * 2100, "\ud900"):
        with pytest.raises(PathProblem, match="is not a path: a path has 1 to 4096 bytes"):
            locate(tmp_path, path)
    with pytest.raises(PathProblem, match="File name too long"):
        open_regular(locate(tmp_path, "x" * 300))


def test_a_file_that_becomes_a_link_after_it_was_judged_is_not_opened(world):
    judged = locate(world / "work", "src/a.py")
    judged.path.unlink()
    judged.path.symlink_to(world / "other" / "b.py")
    with pytest.raises(PathProblem, match="is a link"):
        open_regular(judged)


@pytest.mark.parametrize(
    ("on_disk", "asked"),
    [
        ("cafe\u0301.txt", "caf\xe9.txt"),
        ("caf\xe9.txt", "cafe\u0301.txt"),
        ("Screenshot 9.41\u202fAM.png", "Screenshot 9.41 AM.png"),
        ("a\xa0b.txt", "a b.txt"),
        ("Capture d\u2019e\u0301cran.png", "Capture d'\xe9cran.png"),
        ("e\u0301t\xe9/a\u202fb", "\xe9te\u0301/a b"),
    ],
)
def test_a_name_that_looks_the_same_finds_the_one_file(tmp_path, on_disk, asked):
    file = tmp_path / on_disk
    file.parent.mkdir(exist_ok=True)
    file.write_text("x")
    found = locate(tmp_path, asked)
    assert (found.path, found.text) == (file, on_disk)
    file.with_name(file.name.replace(".", "x.") + "y").write_text("other")
    assert locate(tmp_path, asked).path == file


def test_a_name_that_looks_like_two_or_like_a_link_leads_nowhere_new(tmp_path):
    (tmp_path / "a\xa0b").write_text("x")
    (tmp_path / "a\u202fb").write_text("x")
    assert locate(tmp_path, "a b").path == tmp_path / "a b"
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    (workspace / "l\xa0k").symlink_to(tmp_path / "outside")
    found = locate(workspace, "l k")
    assert (found.path, found.inside) == (tmp_path / "outside", False)
