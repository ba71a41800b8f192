"""What is put back after a command, whatever it has made of it."""

import os
import socket
import subprocess
from collections.abc import Callable, Generator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tiller_daemon.workspace.sandbox_put_back import BYTES_MAX, REMOVED, NotKept, PutBack


@pytest.fixture
def root(tmp_path: Path) -> Generator[Path]:
    root = tmp_path.resolve() / "w"
    (root / ".git" / "hooks").mkdir(parents=True)
    (root / ".git" / "hooks" / "x").write_text("mine")
    (root / ".git" / "hooks" / "x").chmod(0o755)
    (root / ".git" / "config").write_text("mine")
    (root / ".claude").symlink_to("elsewhere")
    (root / "other" / "hooks").mkdir(parents=True)
    yield root
    # Too deep for Python, which would find it in the way at the next run.
    subprocess.run(["rm", "-rf", root], check=True)


NAMES = (".git/hooks", ".git/config", ".git/config.worktree", ".claude", ".tiller")


def places(root: Path) -> dict[Path, Path]:
    return {root / name: root for name in NAMES}


def seen(root: Path) -> dict[str, object]:
    """All that git and agents would find under these names."""
    found: dict[str, object] = {}
    for name in NAMES:
        path = root / name
        for one in (path, *(path.rglob("*") if path.is_dir() else ())):
            if one.is_symlink():
                found[str(one)] = one.readlink()
            elif one.is_file():
                found[str(one)] = (one.read_text(), one.stat().st_mode)
            elif one.exists():
                found[str(one)] = one.is_dir()
    return found


def rewrite(root: Path) -> None:
    (root / ".git" / "config").write_text("evil")
    (root / ".git" / "hooks" / "x").chmod(0o644)


def make(root: Path) -> None:
    (root / ".tiller").mkdir()
    (root / ".git" / "config.worktree").write_text("evil")
    (root / ".git" / "hooks" / "y").write_text("evil")


def move(root: Path) -> None:
    (root / ".git").rename(root / ".git-old")
    (root / ".git" / "hooks").mkdir(parents=True)


def remove(root: Path) -> None:
    move(root)
    (root / ".git" / "hooks").rmdir()
    (root / ".git").rmdir()
    (root / ".claude").unlink()


def lead_away(root: Path) -> None:
    (root / ".git").rename(root / ".git-old")
    (root / ".git").symlink_to("other")


def name_another(root: Path) -> None:
    (root / ".git").rename(root / ".git-old")
    (root / ".git").write_text("gitdir: other\n")


def close_up(root: Path) -> None:
    (root / ".git" / "config").write_text("evil")
    (root / ".git" / "hooks").chmod(0)
    (root / ".git").chmod(0)


def fill_the_names(root: Path) -> None:
    for name in (f".tiller{REMOVED}", f".git/config{REMOVED}"):
        (root / name).mkdir()
    make(root)
    rewrite(root)


def put_odd_things(root: Path) -> None:
    os.mkfifo(root / ".tiller")
    (root / ".git" / "config").unlink()
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(root / ".git" / "config"))


def overfill(root: Path) -> None:
    (root / ".git" / "hooks" / "big").write_bytes(bytes(BYTES_MAX + 1))


def dig(root: Path) -> None:
    place = os.open(root / ".git" / "hooks", os.O_RDONLY)
    for _ in range(3_000):
        os.mkdir("d", dir_fd=place)
        deeper = os.open("d", os.O_RDONLY, dir_fd=place)
        os.close(place)
        place = deeper
    os.close(place)


def close_all(root: Path) -> None:
    rewrite(root)
    root.chmod(0)


DEEDS = (
    rewrite, make, move, remove, lead_away, name_another, close_up, close_all, fill_the_names,
    put_odd_things, overfill, dig,
)  # fmt: skip


@pytest.mark.parametrize("deed", DEEDS)
def test_whatever_a_command_does_all_is_as_before(root: Path, deed: Callable[[Path], None]) -> None:
    before, told = seen(root), list[str]()
    with PutBack().around(places(root), told.append):
        deed(root)
    assert seen(root) == before
    assert told
    assert all("put back" in text for text in told)


def test_nothing_is_said_or_touched_when_nothing_has_changed(root: Path) -> None:
    told, before = list[str](), (root / ".git" / "config").stat()
    with PutBack().around(places(root), told.append):
        (root / ".git" / "HEAD").write_text("x")
    assert told == []
    assert (root / ".git" / "config").stat() == before


def test_what_stands_behind_a_link_on_the_way_is_left_alone(root: Path) -> None:
    """The daemon writes where the user may: no command may choose where."""
    with PutBack().around(places(root), lambda _: None):
        lead_away(root)
        (root / "other" / "config").write_text("not ours")
    assert (root / "other" / "config").read_text() == "not ours"


def test_a_workspace_that_was_moved_away_does_not_lead_to_another(root: Path) -> None:
    with PutBack().around(places(root), lambda _: None):
        rewrite(root)
        root.rename(root.with_name("moved"))
        (root / ".git").mkdir(parents=True)
        (root / ".git" / "config").write_text("not ours")
    assert (root / ".git" / "config").read_text() == "not ours"
    assert (root.with_name("moved") / ".git" / "config").read_text() == "mine"


def test_a_command_that_begins_amid_another_does_not_keep_what_that_one_did(root: Path) -> None:
    sandbox, before = PutBack(), seen(root)
    first = ExitStack()
    first.enter_context(sandbox.around(places(root), lambda _: None))
    rewrite(root)
    with sandbox.around(places(root), lambda _: None):
        first.close()
        assert seen(root) == before
        make(root)
    assert seen(root) == before


def test_what_is_too_much_to_be_kept_is_refused_before(root: Path) -> None:
    overfill(root)
    with (
        pytest.raises(NotKept, match="holds more than 8 MB"),
        PutBack().around(places(root), lambda _: None),
    ):
        pass
