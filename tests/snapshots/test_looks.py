"""Looks by stamps and by a watch, compared with looks by git at the same moments."""

import mmap
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import trio
from hypothesis import example, given, settings
from hypothesis import strategies as st

from support.stamps import let_stamps_age
from tiller_daemon.files.restore import FILE_BYTES_MAX
from tiller_daemon.snapshots.looks import Looks
from tiller_daemon.snapshots.shadow_repository import ShadowRepository

VARIABLES = {"PATH": os.environ["PATH"]}
KEY = "sk-canary-0123456789"
NAMES = ("a", "b", "x.log", "my.env", "d", "d/a", "d/x.log", "d/e", "d/e/a", "build", "build/a")
IGNORES = ("", "*.log\n", "build/\n", "d/\n", "*\n!a\n", "/d/e\n!x.log\n", "[ab]\n", "\\a\n")
CONTENTS = ("", "1", "2", "two\nlines", f"key {KEY}")

Edit = Callable[[Path, str, str], None]


def require_no_fifo(path: Path) -> None:
    """Opening a FIFO would wait for another process."""
    if path.is_fifo():
        raise OSError


def write(root: Path, name: str, other: str) -> None:
    require_no_fifo(root / name)
    (root / name).write_text(CONTENTS[NAMES.index(other) % len(CONTENTS)])


def write_and_restore_time(root: Path, name: str, other: str) -> None:
    """The same size and modification time as before: only the change time tells."""
    path = root / name
    require_no_fifo(path)
    before = path.stat()
    data = path.read_bytes()
    path.write_bytes(bytes((one + 1) % 128 for one in data))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def write_through_mapping(root: Path, name: str, other: str) -> None:
    require_no_fifo(root / name)
    with (root / name).open("r+b") as stream, mmap.mmap(stream.fileno(), 0) as mapped:
        mapped[0] = (mapped[0] + 1) % 128


def rename(root: Path, name: str, other: str) -> None:
    (root / name).rename(root / other)


def exchange(root: Path, name: str, other: str) -> None:
    """Two entries change places, as when a directory is replaced by another one."""
    (root / name).rename(root / "between")
    (root / other).rename(root / name)
    (root / "between").rename(root / other)


def remove(root: Path, name: str, other: str) -> None:
    path = root / name
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def make_directory(root: Path, name: str, other: str) -> None:
    (root / name).mkdir(parents=True)


def link(root: Path, name: str, other: str) -> None:
    (root / name).symlink_to(root / other)


def hard_link(root: Path, name: str, other: str) -> None:
    (root / name).hardlink_to(root / other)


def change_mode(root: Path, name: str, other: str) -> None:
    (root / name).chmod((root / name).stat().st_mode ^ 0o111)


def make_fifo(root: Path, name: str, other: str) -> None:
    os.mkfifo(root / name)


def make_large(root: Path, name: str, other: str) -> None:
    os.truncate(root / name, FILE_BYTES_MAX + 1)


def ignore(root: Path, name: str, other: str) -> None:
    directory = root / name if (root / name).is_dir() else root
    (directory / ".gitignore").write_text(IGNORES[NAMES.index(other) % len(IGNORES)])


def ignore_above(root: Path, name: str, other: str) -> None:
    """In the project around the workspace, if there is one."""
    (root.parent / ".gitignore").write_text(IGNORES[NAMES.index(other) % len(IGNORES)])


def exclude(root: Path, name: str, other: str) -> None:
    top = root if (root / ".git").exists() else root.parent
    (top / ".git" / "info" / "exclude").write_text(IGNORES[NAMES.index(other) % len(IGNORES)])


def make_repository(root: Path, name: str, other: str) -> None:
    git_directory = root / name / ".git"
    for folder in ("objects", "refs"):
        (git_directory / folder).mkdir(parents=True)
    (git_directory / "HEAD").write_text("ref: refs/heads/x\n")


def spoil_repository(root: Path, name: str, other: str) -> None:
    (root / name / ".git" / "HEAD").unlink()


def end_repository(root: Path, name: str, other: str) -> None:
    shutil.rmtree(root / name / ".git")


EDITS: tuple[Edit, ...] = (
    *(write, write_and_restore_time, write_through_mapping, rename, exchange, remove),
    *(make_directory, link, hard_link, change_mode, make_fifo, make_large, ignore, exclude),
    ignore_above,
    *(make_repository, spoil_repository, end_repository),
)

edits = st.tuples(st.sampled_from(EDITS), st.sampled_from(NAMES), st.sampled_from(NAMES))
rounds = st.tuples(st.lists(edits, max_size=6), st.booleans(), st.booleans())


@contextmanager
def places(below: str) -> Iterator[tuple[Path, Path]]:
    """Gives a workspace with files, in a project, and a directory for stores."""
    with TemporaryDirectory() as name:
        top, stores = Path(name).resolve() / "w", Path(name).resolve() / "s"
        root = top / below
        (root / "d" / "e").mkdir(parents=True)
        subprocess.run(["git", "init", "-q", top], check=True)
        for path in ("a", "b", "d/a", "d/e/a"):
            (root / path).write_text("1")
        stores.mkdir()
        yield root, stores


def forget_stamps(store: Path) -> None:
    """Let git read every file: it takes a change for none that keeps size and second."""
    if (store / "index").exists():
        git = ("git", "--git-dir", store)
        entries = subprocess.run([*git, "ls-files", "-s", "-z"], check=True, capture_output=True)
        put = (*git, "update-index", "-z", "--index-info")
        subprocess.run(put, input=entries.stdout, check=True)


def looks_of(root: Path, store: Path, *, learn_from: int) -> Looks:
    shadow = ShadowRepository(store, root, VARIABLES)
    return Looks(
        shadow, lambda _, name: name.endswith(".env"), lambda: (KEY,), learn_from=learn_from
    )


@given(st.lists(rounds, min_size=1, max_size=6), st.sampled_from(("", "inside")))
@settings(max_examples=20, deadline=None)
@example([([(write_and_restore_time, "a", "a")], True, True)], "")
@example([([(write_and_restore_time, "a", "a")], False, True)], "")
@example([([(hard_link, "d/x.log", "a"), (rename, "d", "build")], False, True)], "")
@example(
    [
        ([(make_directory, "build", "a"), (write, "build/a", "b")], False, True),
        ([(exchange, "d", "build")], False, False),
        ([(write, "d/a", "x.log")], False, False),
    ],
    "",
)
@example(
    [
        ([(make_repository, "d", "a")], False, True),
        ([(spoil_repository, "d", "a")], False, False),
    ],
    "",
)
@example(
    [
        ([(make_repository, "d", "a")], False, True),
        ([(end_repository, "d", "a")], False, False),
    ],
    "",
)
@example([([(hard_link, "x.log", "d/e/a"), (write, "x.log", "a")], False, True)], "")
@pytest.mark.nightly
def test_a_look_finds_what_git_would_find(
    script: list[tuple[list[tuple[Edit, str, str]], bool, bool]], below: str
):
    async def play() -> None:
        with places(below) as (root, stores):
            ours = looks_of(root, stores / "ours", learn_from=1)
            gits = looks_of(root, stores / "gits", learn_from=sys.maxsize)
            for some, thorough, aged in (([], True, True), *script):
                if aged:
                    let_stamps_age(stores)
                    # Trusts the stamps from now on.
                    await ours.take(thorough=True)
                for edit, name, other in some:
                    with suppress(OSError, ValueError, shutil.Error):
                        edit(root, name, other)
                for name in ("ours", "gits"):
                    forget_stamps(stores / name)
                assert await ours.take(thorough=thorough) == await gits.take(thorough=True), some
            ours.forget()

    trio.run(play)
