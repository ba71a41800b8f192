"""Snapshots of real directories by the real git: what they store, what not, and going back."""

import contextlib
import ctypes
import hashlib
import itertools
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from tiller_daemon.files.restore import FILE_BYTES_MAX, NO_CONTENT
from tiller_daemon.session.reverting import moves_back
from tiller_daemon.snapshots import taking
from tiller_daemon.snapshots.snapshots import JOURNAL, SnapshotProblem, Snapshots
from tiller_daemon.snapshots.taking import PACKED_FROM

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
    return (await snapshots.take(str(workspace), session_id)).tree


async def undo(snapshots: Snapshots, workspace: Path, *trees: str) -> tuple[str, ...]:
    """Go back from the last tree to the first; returns what was left."""
    steps = [
        await snapshots.changes(str(workspace), before, after)
        for before, after in itertools.pairwise(trees)
    ]
    moves, _ = moves_back(steps)
    return tuple(await snapshots.restore(str(workspace), moves, "X"))


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


@pytest.mark.promise("G13")
async def test_secrets_and_ignored_large_and_others_repositories_files_are_not_kept(
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


@pytest.mark.promise("B60")
async def test_nothing_of_the_project_is_run_or_touched(
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


@pytest.mark.nightly
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux exchanges two names at once")
async def test_no_snapshot_follows_a_link_that_takes_the_place_of_a_file(
    snapshots: Snapshots, workspace: Path, tmp_path: Path
):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("what lies outside\n")
    (workspace / "d").mkdir()
    (workspace / "d" / "secret").write_text("what lies inside.\n")
    (workspace / "d.link").symlink_to(outside)
    (workspace / "f").write_text("what lies inside.\n")
    (workspace / "f.link").symlink_to(outside / "secret")
    ended = threading.Event()

    def exchange_names() -> None:
        renameat2 = ctypes.CDLL(None).renameat2
        while not ended.is_set():
            for name in (b"d", b"f"):
                path = os.fsencode(workspace) + b"/" + name
                renameat2(-100, path, -100, path + b".link", 2)

    thread = threading.Thread(target=exchange_names)
    thread.start()
    try:
        for number in range(300):
            (workspace / "other").write_text(str(number))
            with contextlib.suppress(SnapshotProblem):
                await take(snapshots, workspace)
    finally:
        ended.set()
        thread.join()
    (store,) = (tmp_path / "s").glob("*.git")
    kept = subprocess.run(  # noqa: ASYNC221
        ["git", "cat-file", "--batch-all-objects", "--batch"], cwd=store, capture_output=True
    )
    assert b"what lies inside" in kept.stdout
    assert b"what lies outside" not in kept.stdout


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


@pytest.mark.promise("B55")
async def test_what_somebody_else_changed_is_left_and_named(snapshots: Snapshots, workspace: Path):
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


@pytest.mark.promise("B55")
async def test_a_directory_that_became_a_link_is_not_followed(
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
@pytest.mark.promise("B49")
async def test_a_daemon_killed_while_it_puts_back_undoes_the_half_at_its_next_start(
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


async def test_a_git_that_is_missing_is_said(make: Make, workspace: Path, tmp_path: Path):
    snapshots = make(variables={"PATH": str(tmp_path)})
    with pytest.raises(SnapshotProblem, match=r"^Git could not be started: .+\.$"):
        await take(snapshots, workspace)


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
    snapshots: Snapshots, make: Make, workspace: Path, tmp_path: Path, nursery: trio.Nursery
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
    nursery.start_soon(started.run, exists, time.time())
    while (store / "refs" / "tiller" / "doomed").exists() or list(store.glob("objects/??/*")):
        await take(started, workspace, "kept")
    assert await undo(started, workspace, before, both) == ()
    assert not (workspace / "a").exists()
    started.forget("kept")
    while store.exists():
        await changed_or_gone(started, workspace)
    nursery.cancel_scope.cancel()


async def test_snapshots_go_on_after_the_only_session_with_the_latest_content_was_deleted(
    snapshots: Snapshots, workspace: Path, tmp_path: Path, nursery: trio.Nursery
):
    async def exists(session_id: str) -> bool:
        return True

    await take(snapshots, workspace, "B")
    (workspace / "a").write_text("by A")
    tree = await take(snapshots, workspace, "A")
    snapshots.forget("A")
    nursery.start_soon(snapshots.run, exists, time.time())
    (store,) = (tmp_path / "s").glob("*.git")
    while list(store.glob("objects/??/*")):
        await changed_or_gone(snapshots, workspace)
    assert await take(snapshots, workspace, "B") == tree
    nursery.cancel_scope.cancel()


DAMAGED = ("HEAD", "config", "info/attributes", "info/exclude", "index", "refs/tiller/S/{tree}")


@pytest.mark.parametrize("name", DAMAGED)
@pytest.mark.parametrize("damage", [b"\x80\xff", b"", None])
async def test_a_damaged_file_of_the_repository_is_made_again(
    snapshots: Snapshots,
    make: Make,
    workspace: Path,
    tmp_path: Path,
    nursery: trio.Nursery,
    name: str,
    damage: bytes | None,
):
    async def exists(session_id: str) -> bool:
        return session_id == "S"

    (workspace / "a").write_text("0")
    before = await take(snapshots, workspace)
    (workspace / "a").write_text("1")
    after = await take(snapshots, workspace)
    await take(snapshots, workspace, "gone")
    (store,) = (tmp_path / "s").glob("*.git")
    damaged = store / name.format(tree=before)
    if damage is None:
        damaged.unlink()
    else:
        damaged.write_bytes(damage)
    # A deleted session's snapshots are removed, which reads all references.
    started = make()
    nursery.start_soon(started.run, exists, time.time())
    while list(store.glob("objects/??/*")):
        await changed_or_gone(started, workspace)
    assert await take(started, workspace) == after
    if damage is not None or not name.startswith("refs"):
        assert await undo(started, workspace, before, after) == ()
        assert (workspace / "a").read_text() == "0"
    nursery.cancel_scope.cancel()


async def test_missing_and_damaged_objects_are_stored_again_and_their_files_stay(
    snapshots: Snapshots, workspace: Path, tmp_path: Path
):
    for name in "abc":
        (workspace / name).write_text(f"0 {name}")
    before = await take(snapshots, workspace)
    (store,) = (tmp_path / "s").glob("*.git")
    for name in "abc":
        (workspace / name).write_text(f"1 {name}")
    after = await take(snapshots, workspace)
    steps = [await snapshots.changes(str(workspace), before, after)]
    data = b"blob 3\0" + b"0 a"
    digits = hashlib.sha1(data, usedforsecurity=False).hexdigest()
    damaged = store / "objects" / digits[:2] / digits[2:]
    damaged.chmod(0o600)
    damaged.write_bytes(b"\x80" * 20)
    left = await snapshots.restore(str(workspace), moves_back(steps)[0], "X")
    assert left == {"a": NO_CONTENT}
    snapshots.confirm_restore(str(workspace))
    assert {path: data.decode() for path, data in all_bytes(workspace).items()} == {
        "a": "1 a",
        "b": "0 b",
        "c": "0 c",
    }
    shutil.rmtree(store / "objects")
    (workspace / "a").write_text("2")
    again = await take(snapshots, workspace)
    (workspace / "c").write_text("3")
    last = await take(snapshots, workspace)
    assert await undo(snapshots, workspace, again, last) == ()
    assert (workspace / "c").read_text() == "0 c"


@pytest.mark.parametrize("ahead_days", [0, 31, 3_000])
async def test_a_wrong_clock_deletes_no_snapshots(
    snapshots: Snapshots,
    make: Make,
    workspace: Path,
    tmp_path: Path,
    nursery: trio.Nursery,
    ahead_days: int,
):
    """What the clock says is as if the files were older."""
    now = time.time()
    yesterday = now - (ahead_days + 1) * 86_400
    old = now - (ahead_days + 40) * 86_400

    async def exists(session_id: str) -> bool:
        return True

    for session_id, at in (("yesterday", yesterday), ("old", old)):
        (workspace / session_id).write_text(session_id)
        tree = await take(snapshots, workspace, session_id)
        (store,) = (tmp_path / "s").glob("*.git")
        os.utime(store / "refs" / "tiller" / session_id / tree, (at, at))
    nursery.start_soon(make().run, exists, yesterday)
    while list(store.glob("refs/tiller/old/*")):
        await trio.lowlevel.checkpoint()
    assert list(store.glob("refs/tiller/yesterday/*"))
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize("name", [".gitignore", "d/.gitignore", ".gitattributes", "n/.git/HEAD"])
async def test_a_pipe_that_git_would_read_is_named_and_blocks_nothing(
    make: Make, workspace: Path, monkeypatch: pytest.MonkeyPatch, name: str
):
    monkeypatch.setattr(taking, "LIST_S_MAX", 0.3)
    snapshots = make()
    for place in ("d/f", "n/.git/objects/o", "n/.git/refs/r"):
        (workspace / place).parent.mkdir(parents=True, exist_ok=True)
        (workspace / place).write_text("1")
    os.mkfifo(workspace / name)
    for _ in range(2):
        with pytest.raises(SnapshotProblem, match=f"{name}, which is a pipe: remove it"):
            await take(snapshots, workspace)
    (workspace / name).unlink()
    assert await take(snapshots, workspace)


async def changed_or_gone(snapshots: Snapshots, workspace: Path) -> None:
    """Let others go on for as long as one look takes."""
    tree = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
    with contextlib.suppress(SnapshotProblem):
        await snapshots.changes(str(workspace), tree, tree)
