"""Changes that stamps or a watch could easily miss, each compared with what git finds."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import trio

from support.stamps import let_stamps_age
from tiller_daemon.snapshots.git_trees import compare
from tiller_daemon.snapshots.ignore_files import may_match, parse_patterns
from tiller_daemon.snapshots.looks import LEARN_FROM, Looks
from tiller_daemon.snapshots.shadow_repository import ShadowRepository
from tiller_daemon.snapshots.snapshots import SnapshotProblem, Snapshots
from tiller_daemon.snapshots.watch import is_local

needs_watch = pytest.mark.skipif(
    sys.platform != "linux" or not is_local(Path("/tmp").resolve()),
    reason="needs inotify on a local disk",
)

VARIABLES = {"PATH": os.environ["PATH"]}
EVENTS_MAX = 16_384
"""What inotify queues by default (`max_queued_events`)."""

DEEP = 300
"""More levels of directories than Python has stack frames for, at four frames for each."""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    place = tmp_path / "above" / "w"
    for name in ("a", "x.log", "d/a", "d/e/a"):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text("1")
    return place


def init(directory: Path) -> None:
    subprocess.run(["git", "init", "-q", directory], check=True)


def shadow_of(root: Path, tmp_path: Path) -> ShadowRepository:
    return ShadowRepository(tmp_path / "gits", root, VARIABLES)


def looks_of(root: Path, store: Path, *, learn_from: int) -> Looks:
    return Looks(
        ShadowRepository(store, root, VARIABLES), lambda *_: False, tuple, learn_from=learn_from
    )


@pytest.fixture
def looks(root: Path, tmp_path: Path) -> Iterator[Looks]:
    looks = looks_of(root, tmp_path / "ours", learn_from=LEARN_FROM)
    yield looks
    looks.forget()


@pytest.fixture
def by_git(root: Path, tmp_path: Path) -> Looks:
    return looks_of(root, tmp_path / "gits", learn_from=sys.maxsize)


async def learn(looks: Looks, by_git: Looks, tmp_path: Path) -> str:
    """Take snapshots until all files are known, and their stamps are trusted."""
    let_stamps_age(tmp_path)
    tree = await by_git.take(thorough=True)
    for _ in range(LEARN_FROM + 1):
        assert await looks.take(thorough=True) == tree
    assert looks.is_known
    assert await looks.take(thorough=False) == tree
    return tree


async def same_tree(looks: Looks, by_git: Looks) -> str:
    tree = await looks.take(thorough=False)
    assert tree == await by_git.take(thorough=True)
    return tree


@needs_watch
@pytest.mark.parametrize("below", ["d", "."])
async def test_a_directory_that_was_made_again_is_still_watched(
    looks: Looks, by_git: Looks, root: Path, tmp_path: Path, below: str
):
    await learn(looks, by_git, tmp_path)
    inodes: set[int] = set()
    # The new directory often has the inode of the old one.
    for number in range(4):
        shutil.rmtree(root / below)
        (root / below / "e").mkdir(parents=True)
        inodes.add((root / below).stat().st_ino)
        (root / below / "e" / "a").write_text(f"made {number}")
        (root / below / "f").write_text("1")
        await same_tree(looks, by_git)
        (root / below / "f").write_text(f"later {number}")
        await same_tree(looks, by_git)
        (root / below / "e" / "a").write_text(f"later {number} too")
        await same_tree(looks, by_git)
        assert looks.is_known


@needs_watch
async def test_a_directory_that_was_made_again_among_too_many_events_is_still_watched(
    looks: Looks, by_git: Looks, root: Path, tmp_path: Path
):
    await learn(looks, by_git, tmp_path)
    for number in range(EVENTS_MAX // 2 + 1):
        # Different events in turn, as equal ones are joined.
        (root / "d" / f"n{number}").touch()
        (root / "d" / f"n{number}").unlink()
    (root / "a").write_text("in the last event that is lost")
    shutil.rmtree(root / "d" / "e")
    (root / "d" / "e").mkdir()
    (root / "d" / "e" / "a").write_text("made")
    await same_tree(looks, by_git)
    (root / "d" / "e" / "a").write_text("later")
    await same_tree(looks, by_git)
    assert looks.is_known


@needs_watch
async def test_a_change_above_the_workspace_puts_another_one_in_its_place(
    looks: Looks, by_git: Looks, root: Path, tmp_path: Path
):
    await learn(looks, by_git, tmp_path)
    above = root.parent
    above.rename(tmp_path / "aside")
    shutil.copytree(tmp_path / "aside", above)
    (root / "d" / "a").write_text("another")
    await same_tree(looks, by_git)


@needs_watch
async def test_what_changes_while_the_files_become_known_is_in_the_next_snapshot(
    looks: Looks, by_git: Looks, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    let_stamps_age(tmp_path)
    for _ in range(LEARN_FROM - 1):
        await looks.take(thorough=True)
    run = ShadowRepository.run

    async def change_after_git(shadow: ShadowRepository, *arguments: str, **how: object) -> bytes:
        output = await run(shadow, *arguments, **how)  # type: ignore[arg-type]
        if "ls-files" in arguments:
            (root / "d" / "new").write_text("1")
            (root / "d" / "e" / "a").write_text("2")
        return output

    with monkeypatch.context() as patched:
        patched.setattr(ShadowRepository, "run", change_after_git)
        await looks.take(thorough=True)
    assert looks.is_known
    await same_tree(looks, by_git)


async def test_a_stored_file_that_is_ignored_now_may_become_a_link(
    looks: Looks, by_git: Looks, root: Path, tmp_path: Path
):
    await by_git.take(thorough=True)
    await looks.take(thorough=True)
    (root / ".gitignore").write_text("*.log\n")
    await learn(looks, by_git, tmp_path)
    (root / "x.log").unlink()
    (root / "x.log").symlink_to("a")
    await same_tree(looks, by_git)
    (root / "x.log").unlink()
    (root / "x.log").write_text("2")
    await same_tree(looks, by_git)
    (root / "x.log").unlink()
    await same_tree(looks, by_git)
    (root / "x.log").write_text("3")
    await same_tree(looks, by_git)


def git_directory_in_capitals(root: Path) -> None:
    (root / ".GIT").mkdir()
    (root / ".GIT" / "config").write_text("1")


def file_named_git_in_capitals(root: Path) -> None:
    (root / "d" / ".Git").write_text("1")


def short_name_of_git(root: Path) -> None:
    (root / "git~1").write_text("1")
    (root / ".git .x").write_text("1")
    (root / "d\\.git").write_text("1")


def link_named_gitmodules(root: Path) -> None:
    (root / ".gitmodules").symlink_to("a")


def link_in_place_of_gitmodules(root: Path) -> None:
    (root / "d" / ".gitmodules").unlink(missing_ok=True)
    (root / "d" / ".gitmodules").symlink_to("a")


def directory_with_a_temporary_name(root: Path) -> None:
    (root / ".tiller-notes").mkdir()
    (root / ".tiller-notes" / "a").write_text("1")
    (root / "d" / ".tiller-0123").write_text("1")


def odd_names(root: Path) -> None:
    for name in (b"\xff\xfe", b"a\nb", b" a ", b":a", b"-a", b"*", b"A", b"\\a", b'"', b"x" * 255):
        with open(os.fsencode(root) + b"/d/" + name, "wb") as file:  # noqa: PTH123 - bytes
            file.write(name)


@pytest.mark.parametrize(
    "change",
    [
        git_directory_in_capitals,
        file_named_git_in_capitals,
        short_name_of_git,
        link_named_gitmodules,
        link_in_place_of_gitmodules,
        directory_with_a_temporary_name,
        odd_names,
    ],
)
@pytest.mark.parametrize("when", ["before", "after"])
async def test_names_that_git_treats_in_its_own_way(
    looks: Looks,
    by_git: Looks,
    root: Path,
    tmp_path: Path,
    change: Callable[[Path], None],
    when: str,
):
    (root / "d" / ".gitmodules").write_text("1")
    if when == "before":
        change(root)
        let_stamps_age(tmp_path)
        for _ in range(LEARN_FROM + 1):
            await looks.take(thorough=True)
    else:
        await learn(looks, by_git, tmp_path)
        change(root)
    await same_tree(looks, by_git)
    (root / "d" / "other").write_text("1")
    await same_tree(looks, by_git)
    looks.forget()
    await same_tree(looks, by_git)


async def test_very_deep_directories_are_left_to_git(
    looks: Looks, by_git: Looks, root: Path, tmp_path: Path
):
    await learn(looks, by_git, tmp_path)
    deep = root.joinpath(*"n" * DEEP)
    deep.mkdir(parents=True)
    (deep / "a").write_text("1")
    for number in range(LEARN_FROM + 2):
        (deep / "a").write_text(str(number))
        await same_tree(looks, by_git)


@needs_watch
async def test_another_repository_at_the_end_of_a_link_is_seen(
    looks: Looks, by_git: Looks, root: Path, tmp_path: Path
):
    init(tmp_path / "elsewhere")
    (root.parent / ".git").symlink_to(tmp_path / "elsewhere" / ".git")
    (root.parent / ".gitignore").write_text("new\n")
    await learn(looks, by_git, tmp_path)
    # Without it the ignore file above the workspace has no meaning.
    shutil.rmtree(tmp_path / "elsewhere")
    (root / "d" / "new").write_text("1")
    await same_tree(looks, by_git)


async def test_a_repository_that_is_none_any_more_is_seen(
    looks: Looks, by_git: Looks, root: Path, tmp_path: Path
):
    init(root / "d")
    before = await learn(looks, by_git, tmp_path)
    shutil.rmtree(root / "d" / ".git" / "refs")
    assert await same_tree(looks, by_git) != before


async def test_a_new_repository_around_the_workspace_is_seen(
    looks: Looks, by_git: Looks, root: Path, tmp_path: Path
):
    (root.parent / ".gitignore").write_text("new\n")
    before = await learn(looks, by_git, tmp_path)
    init(root.parent)
    (root / "d" / "new").write_text("1")
    assert await same_tree(looks, by_git) == before


async def test_another_rule_in_an_ignore_file_is_seen(
    looks: Looks, by_git: Looks, root: Path, tmp_path: Path
):
    (root / "d" / ".gitignore").write_text("x*\n")
    (root / "d" / "x").write_text("1")
    before = await learn(looks, by_git, tmp_path)
    (root / "d" / ".gitignore").write_text("y*\n")
    after = await same_tree(looks, by_git)
    names = [change.path for change in await compare(before, after, shadow_of(root, tmp_path))]
    assert names == ["d/.gitignore", "d/x"]


@pytest.mark.parametrize("left", [(), ("B",)])
async def test_snapshots_go_on_after_a_session_with_the_latest_content_was_deleted(
    root: Path, tmp_path: Path, nursery: trio.Nursery, left: tuple[str, ...]
):
    async def exists(_: str) -> bool:
        return True

    async def is_committed(_: str) -> bool:
        return False

    snapshots = Snapshots(tmp_path / "s", VARIABLES, lambda *_: False, tuple, is_committed)
    for session in (*left, *["A"] * LEARN_FROM):
        await snapshots.take(str(root), session)
    # From here on only the daemon knows of this content, and not the index.
    (root / "a").write_text("by A")
    tree = await snapshots.take(str(root), "A")
    (store,) = (tmp_path / "s").glob("*.git")
    snapshots.forget("A")
    nursery.start_soon(snapshots.run, exists)
    while list(store.glob("objects/??/*")):
        # Lets the others go on for as long as one git process takes.
        with suppress(SnapshotProblem):
            await snapshots.changes(str(root), tree, tree)
    assert await snapshots.take(str(root), "B") == tree
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize("damage", [b"", b"DIRC", b"DIRC\0\0\0\2\0\0\0\x09", None])
async def test_a_damaged_index_is_made_again(
    looks: Looks, by_git: Looks, root: Path, tmp_path: Path, damage: bytes | None
):
    await learn(looks, by_git, tmp_path)
    (root / "a").write_text("2")
    await same_tree(looks, by_git)
    index = tmp_path / "ours" / "index"
    data = index.read_bytes()
    index.write_bytes(data[: len(data) // 2] if damage is None else damage)
    looks.forget()
    for number in range(LEARN_FROM + 1):
        (root / "d" / "a").write_text(str(number))
        await same_tree(looks, by_git)


def test_an_ignore_file_ends_a_pattern_at_a_nul():
    assert may_match("foo", [parse_patterns(b"foo\0bar\n")])
