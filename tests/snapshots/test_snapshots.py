"""Snapshots of real directories by the real git: what they store, what not, and going back."""

import contextlib
import itertools
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from tiller_daemon.files.restore import FILE_BYTES_MAX
from tiller_daemon.session.reverting import moves_back
from tiller_daemon.snapshots.looks import PACKED_FROM
from tiller_daemon.snapshots.snapshots import JOURNAL, SnapshotProblem, Snapshots

VARIABLES = {"PATH": os.environ["PATH"]}
GIT = ("git", "-c", "user.name=t", "-c", "user.email=t@example.invalid", "-c", "gc.auto=0")
KEY = "sk-canary-0123456789"

Make = Callable[..., Snapshots]


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    place = tmp_path / "w"
    place.mkdir()
    return place


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Makes the snapshots of a daemon; `confirm_restore` are the submissions that its log has."""

    def make(*confirm_restore: str, variables: dict[str, str] = VARIABLES) -> Snapshots:
        async def is_settled(submission_id: str) -> bool:
            return submission_id in confirm_restore

        return Snapshots(
            tmp_path / "s",
            variables,
            lambda workspace, name: name.endswith(".env"),
            lambda: (KEY,),
            is_settled,
        )

    return make


@pytest.fixture
def snapshots(make: Make) -> Snapshots:
    return make()


def git(directory: Path, *arguments: str) -> str:
    run = subprocess.run([*GIT, *arguments], cwd=directory, check=True, capture_output=True)
    return run.stdout.decode()


def all_bytes(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file() and not path.is_symlink()
    }


async def take(snapshots: Snapshots, workspace: Path, session_id: str = "S") -> str:
    return await snapshots.take(str(workspace), session_id)


async def undo(snapshots: Snapshots, workspace: Path, *trees: str) -> tuple[str, ...]:
    """Go back from the last tree to the first; returns what was left."""
    steps = [
        await snapshots.changes(str(workspace), before, after)
        for before, after in itertools.pairwise(trees)
    ]
    moves, _ = moves_back(steps)
    return await snapshots.restore(str(workspace), moves, "X")


async def changed(snapshots: Snapshots, workspace: Path, before: str, after: str) -> set[str]:
    return {change.path for change in await snapshots.changes(str(workspace), before, after)}


async def test_a_snapshot_of_nothing_new_is_the_same_one(snapshots: Snapshots, workspace: Path):
    empty = await take(snapshots, workspace)
    (workspace / "a").write_text("1")
    first = await take(snapshots, workspace)
    assert first != empty
    assert await take(snapshots, workspace) == first
    (workspace / "a").write_text("2")
    assert await take(snapshots, workspace) not in (first, empty)
    (workspace / "a").write_text("1")
    assert await take(snapshots, workspace) == first


async def test_added_changed_and_removed_files_come_back_byte_by_byte(
    snapshots: Snapshots, workspace: Path
):
    (workspace / ".gitattributes").write_text(
        "* text=auto eol=crlf ident filter=evil\n*.u16 working-tree-encoding=UTF-16\n"
    )
    contents = {
        "crlf": b"a\r\nb\n",
        "bom": b"\xef\xbb\xbfx",
        "binary": bytes(range(256)),
        "x.u16": b"$Id$",
        "ident": b"$Id$ $Id: 1 $\n",
        "d/e/f": b"deep",
        "none": b"",
        os.fsdecode(b"b\xffd"): b"odd name",
        "back\\slash": b"1",
        " blank \n": b"2",
        "umläut": b"3",
    }
    for name, data in contents.items():
        (workspace / name).parent.mkdir(parents=True, exist_ok=True)
        (workspace / name).write_bytes(data)
    (workspace / "link").symlink_to("crlf")
    (workspace / "run").write_text("#!/bin/sh\n")
    (workspace / "run").chmod(0o750)
    kept = all_bytes(workspace)
    before = await take(snapshots, workspace)
    for name in contents:
        (workspace / name).unlink()
    (workspace / "d" / "e").rmdir()
    (workspace / "d").rmdir()
    (workspace / "d").write_text("a file now")
    (workspace / "crlf").write_bytes(b"other")
    (workspace / "link").unlink()
    (workspace / "link").mkdir()
    (workspace / "link" / "new").write_text("x")
    (workspace / "run").chmod(0o640)
    after = await take(snapshots, workspace)
    assert await undo(snapshots, workspace, before, after) == ()
    assert all_bytes(workspace) == kept
    assert (workspace / "link").readlink() == Path("crlf")
    assert (workspace / "run").stat().st_mode & 0o777 == 0o750
    assert await take(snapshots, workspace) == before


async def test_many_new_files_come_back_as_well(snapshots: Snapshots, workspace: Path):
    before = await take(snapshots, workspace)
    (workspace / ".gitattributes").write_text("* text=auto eol=crlf\n")
    for number in range(PACKED_FROM):
        (workspace / f"f{number}").write_bytes(b"%d\r\n\n" % number)
    many = await take(snapshots, workspace)
    kept = all_bytes(workspace)
    for number in range(PACKED_FROM):
        (workspace / f"f{number}").write_text("other")
    await take(snapshots, workspace)
    for number in range(1, PACKED_FROM):
        (workspace / f"f{number}").unlink()
    last = await take(snapshots, workspace)
    assert await undo(snapshots, workspace, many, last) == ()
    snapshots.confirm_restore(str(workspace))
    assert all_bytes(workspace) == kept
    assert await undo(snapshots, workspace, before, many) == ()
    assert all_bytes(workspace) == {}


async def test_g13_secrets_and_ignored_large_and_others_repositories_files_are_not_kept(
    snapshots: Snapshots, workspace: Path, tmp_path: Path
):
    git(workspace, "init", "-q")
    (workspace / ".gitignore").write_text("build/\n")
    (workspace / ".git" / "info" / "exclude").write_text("private\n")
    before = await take(snapshots, workspace)
    for name in ("build/x", "private", "my.env", "inner/y", "holds-key", "large"):
        (workspace / name).parent.mkdir(exist_ok=True)
        (workspace / name).write_text("x")
    git(workspace / "inner", "init", "-q")
    (workspace / "holds-key").write_text(f"key = {KEY}")
    with (workspace / "large").open("wb") as stream:
        stream.truncate(FILE_BYTES_MAX + 1)
    os.mkfifo(workspace / "fifo")
    assert await take(snapshots, workspace) == before
    git(workspace / "inner", *["add", "."])
    git(workspace / "inner", *["commit", "-qm", "x"])
    assert await take(snapshots, workspace) == before
    (workspace / "plain").write_text("x")
    after = await take(snapshots, workspace)
    assert await changed(snapshots, workspace, before, after) == {"plain"}
    (workspace / "plain").write_text(KEY)
    assert await take(snapshots, workspace) == before
    objects = [path for path in (tmp_path / "s").rglob("objects/*/*") if path.is_file()]
    assert objects
    store = next((tmp_path / "s").glob("*.git"))
    for path in objects:
        name = path.parent.name + path.name
        shown = subprocess.run(  # noqa: ASYNC221
            ["git", "cat-file", "-p", name], cwd=store, capture_output=True
        )
        assert KEY.encode() not in shown.stdout


async def test_b60_nothing_of_the_project_is_run_or_touched(
    snapshots: Snapshots, workspace: Path, tmp_path: Path
):
    git(workspace, "init", "-q")
    (workspace / "a").write_text("1")
    inner = workspace / "inner"
    inner.mkdir()
    for place in (workspace, inner):
        if place is inner:
            git(inner, "init", "-q")
            (inner / "b").write_text("1")
        git(place, "add", ".")
        git(place, "commit", "-qm", "x")
        trap = f"touch {tmp_path}/sprung; cat"
        for key in ("core.fsmonitor", "filter.x.clean", "filter.x.smudge", "diff.x.textconv"):
            git(place, "config", key, trap)
        git(place, "config", "diff.external", trap)
        for hook in ("post-index-change", "pre-commit", "post-checkout", "reference-transaction"):
            (place / ".git" / "hooks" / hook).write_text(f"#!/bin/sh\n{trap}\n")
            (place / ".git" / "hooks" / hook).chmod(0o755)
    (workspace / ".gitattributes").write_text("* filter=x diff=x\n")
    its_own = all_bytes(workspace / ".git")
    (tmp_path / "sprung").unlink(missing_ok=True)
    before = await take(snapshots, workspace)
    (workspace / "a").write_text("2")
    (inner / "b").write_text("2")
    after = await take(snapshots, workspace)
    assert "+2" in await snapshots.diff(str(workspace), before, after, ["a"])
    await undo(snapshots, workspace, before, after)
    assert (workspace / "a").read_text() == "1"
    assert all_bytes(workspace / ".git") == its_own
    assert not (tmp_path / "sprung").exists()


async def test_a_workspace_inside_of_a_project_heeds_the_ignore_files_above_it(
    snapshots: Snapshots, workspace: Path
):
    git(workspace, "init", "-q")
    (workspace / ".gitignore").write_text("node_modules\n/ignored\n")
    inside = workspace / "packages" / "one"
    (inside / "node_modules").mkdir(parents=True)
    (inside / "node_modules" / "x").write_text("x")
    before = await take(snapshots, inside)
    (inside / "a").write_text("1")
    (workspace / "beside").write_text("1")
    after = await take(snapshots, inside)
    assert await changed(snapshots, inside, before, after) == {"a"}
    assert "+1" in await snapshots.diff(str(inside), before, after, ["a"])
    await undo(snapshots, inside, before, after)
    assert not (inside / "a").exists()
    ignored = workspace / "ignored"
    ignored.mkdir()
    before = await take(snapshots, ignored)
    (ignored / "a").write_text("1")
    assert await take(snapshots, ignored) != before


async def test_b55_what_somebody_else_changed_is_left_and_named(
    snapshots: Snapshots, workspace: Path
):
    for name in "abcd":
        (workspace / name).write_text("0")
    before = await take(snapshots, workspace)
    for name in "abc":
        (workspace / name).write_text("1")
    (workspace / "d").unlink()
    (workspace / "e").write_text("1")
    after = await take(snapshots, workspace)
    (workspace / "a").write_text("mine")
    (workspace / "b").chmod(0o755)
    (workspace / "d").mkdir()
    (workspace / "d" / "mine").write_text("1")
    (workspace / "e").unlink()
    (workspace / "other").write_text("mine")
    left = await undo(snapshots, workspace, before, after)
    assert sorted(left) == ["a", "b", "d", "e"]
    there = {"a": b"mine", "b": b"1", "c": b"0", "d/mine": b"1", "other": b"mine"}
    assert all_bytes(workspace) == there


async def test_b55_a_directory_that_became_a_link_is_not_followed(
    snapshots: Snapshots, workspace: Path, tmp_path: Path
):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    before = await take(snapshots, workspace)
    (workspace / "d").mkdir()
    (workspace / "d" / "f").write_text("1")
    after = await take(snapshots, workspace)
    (workspace / "d" / "f").rename(elsewhere / "f")
    (workspace / "d").rmdir()
    (workspace / "d").symlink_to(elsewhere)
    assert await undo(snapshots, workspace, before, after) == ("d/f",)
    assert (elsewhere / "f").read_text() == "1"


@pytest.mark.parametrize("logged", [False, True])
async def test_b49_a_daemon_killed_while_it_puts_back_undoes_the_half_at_its_next_start(
    make: Make, workspace: Path, tmp_path: Path, *, logged: bool
):
    for name in "ab":
        (workspace / name).write_text("0")
    killed = make()
    before = await take(killed, workspace)
    for name in "ab":
        (workspace / name).write_text("1")
    after = await take(killed, workspace)
    await undo(killed, workspace, before, after)
    (workspace / "b").write_text("mine")  # or never put back: in both cases not ours to touch
    started = make(*(["X"] if logged else []))
    await started.repair()
    assert (workspace / "a").read_text() == ("0" if logged else "1")
    assert (workspace / "b").read_text() == "mine"
    assert not list((tmp_path / "s").rglob(JOURNAL))


async def test_what_is_in_the_log_is_not_undone(make: Make, workspace: Path, tmp_path: Path):
    snapshots = make()
    before = await take(snapshots, workspace)
    (workspace / "a").write_text("1")
    after = await take(snapshots, workspace)
    await undo(snapshots, workspace, before, after)
    snapshots.confirm_restore(str(workspace))
    await make().repair()
    assert not (workspace / "a").exists()


async def test_a_git_that_fails_is_said_once_and_left_alone_for_a_while(
    make: Make, workspace: Path, tmp_path: Path, autojump_clock
):
    snapshots = make(variables={"PATH": str(tmp_path)})
    with pytest.raises(SnapshotProblem, match=r"^Git could not be started: .+\.$") as first:
        await take(snapshots, workspace)
    with pytest.raises(SnapshotProblem) as second:
        await take(snapshots, workspace)
    assert (first.value.known, second.value.known) == (False, True)


async def test_a_lock_that_a_killed_git_left_does_not_stop_the_next_one(
    snapshots: Snapshots, workspace: Path, tmp_path: Path
):
    await take(snapshots, workspace)
    (workspace / "a").write_text("1")
    (next((tmp_path / "s").glob("*.git")) / "index.lock").touch()
    await take(snapshots, workspace)


async def test_a_snapshot_that_is_given_up_anywhere_leaves_the_next_one_right(
    snapshots: Snapshots, workspace: Path
):
    """Whenever git was cancelled, the next snapshot has the files as they are."""
    before = await take(snapshots, workspace)
    for number in range(15):
        (workspace / "a").write_text(str(number))
        (workspace / f"new{number}").write_text("x")
        with trio.move_on_after(0.002 * number):
            await take(snapshots, workspace)
        after = await take(snapshots, workspace)
        assert await changed(snapshots, workspace, before, after) == {"a", f"new{number}"}
        before = after


async def test_snapshots_of_deleted_sessions_are_removed_and_the_others_stay(
    snapshots: Snapshots, make: Make, workspace: Path, tmp_path: Path, nursery
):
    before = await take(snapshots, workspace, "kept")
    (workspace / "a").write_text("of both")
    both = await take(snapshots, workspace, "kept")
    await take(snapshots, workspace, "doomed")
    (workspace / "b").write_text("doomed " * 100)
    await take(snapshots, workspace, "doomed")
    (workspace / "b").unlink()
    await take(snapshots, workspace, "kept")

    async def exists(session_id: str) -> bool:
        return session_id == "kept"

    store = next((tmp_path / "s").glob("*.git"))
    started = make()
    nursery.start_soon(started.run, exists)
    while (store / "refs" / "tiller" / "doomed").exists() or list(store.glob("objects/??/*")):
        await take(started, workspace, "kept")
    assert await undo(started, workspace, before, both) == ()
    assert not (workspace / "a").exists()
    started.forget("kept")
    while store.exists():
        await changed_or_gone(started, workspace)
    nursery.cancel_scope.cancel()


async def changed_or_gone(snapshots: Snapshots, workspace: Path) -> None:
    """Let others go on for as long as one look takes."""
    tree = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
    with contextlib.suppress(SnapshotProblem):
        await snapshots.changes(str(workspace), tree, tree)
