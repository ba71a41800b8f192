"""A worktree has exactly the files of its commit, whatever the repository is like."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from msgspec import structs

from support.worktrees import Ground, git
from tiller_daemon.config import Worktree
from tiller_daemon.worktrees.git import WorktreeProblem
from tiller_daemon.worktrees.landing import Conflict
from tiller_daemon.worktrees.removing import DAY_S, KEPT_DAYS
from tiller_daemon.worktrees.worktrees import Made, Worktrees

FILE = ("-c", "protocol.file.allow=always")


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground.new(tmp_path)


async def made_in(
    place: Path, worktrees: Worktrees, name: str = "one", base: str = "", *copy: str
) -> Made:
    made = await worktrees.make(place, name, base, Worktree(copy=copy))
    top = Path(made.record.path)
    assert git(top, "status", "--porcelain") == ""
    assert git(top, "branch", "--show-current") == name
    assert git(top, "rev-parse", "HEAD") == made.record.origin.base
    git(top, "fsck", "--strict")
    return made


def commit(place: Path, name: str, content: str = "x\n") -> str:
    (place / name).parent.mkdir(parents=True, exist_ok=True)
    (place / name).write_text(content)
    git(place, "add", "-A")
    git(place, "commit", "-qm", name)
    return git(place, "rev-parse", "HEAD")


async def test_a_session_in_a_subdirectory_stays_there(ground: Ground) -> None:
    commit(ground.main, "packages/a/x.py")
    made = await made_in(ground.main / "packages/a", ground.worktrees())
    assert made.workspace == ground.tree("one") / "packages/a"


async def test_submodules_are_filled_from_the_checkout(ground: Ground) -> None:
    library = ground.root / "library"
    library.mkdir()
    git(library, "init", "-q", "-b", "main")
    commit(library, "lib.py", "lib\n")
    git(ground.main, *FILE, "submodule", "add", "-q", str(library), "vendor/lib")
    git(ground.main, "commit", "-qm", "Add a submodule")
    shutil.rmtree(library)  # nothing but the checkout is needed
    made = await made_in(ground.main, ground.worktrees())
    place = Path(made.record.path)
    assert (place / "vendor/lib/lib.py").read_text() == "lib\n"
    assert git(place / "vendor/lib", "status", "--porcelain") == ""
    head = commit(place / "vendor/lib", "more.py")
    git(place, "commit", "-qam", "Use more")
    worktrees = ground.worktrees()
    with pytest.raises(WorktreeProblem, match=f"fetch them in {ground.main}/vendor/lib"):
        await worktrees.land(made.record, "merge", "", Worktree())
    git(
        place / "vendor/lib",
        *FILE,
        "push",
        "-q",
        str(ground.main / "vendor/lib"),
        f"{head}:refs/heads/w",
    )
    landed = await worktrees.land(made.record, "merge", "", Worktree())
    assert landed.submodules == ("vendor/lib",)


async def test_no_other_repository_is_taken_for_a_submodule(ground: Ground) -> None:
    private = ground.root / "private"
    private.mkdir()
    git(private, "init", "-q", "-b", "main")
    head = commit(private, "secret.py")
    git(ground.main, "update-index", "--add", "--cacheinfo", f"160000,{head},vendor")
    git(ground.main, "commit", "-qm", "Name a commit")
    (ground.main / "vendor").mkdir()
    (ground.main / "vendor/.git").write_text(f"gitdir: {private}/.git\n")
    made = await made_in(ground.main, ground.worktrees())
    assert list((made.workspace / "vendor").iterdir()) == []


async def test_a_sparse_checkout_stays_sparse(ground: Ground) -> None:
    commit(ground.main, "a/x")
    commit(ground.main, "b/x")
    git(ground.main, "sparse-checkout", "set", "a")
    made = await made_in(ground.main, ground.worktrees())
    assert (Path(made.record.path) / "a/x").exists()
    assert not (Path(made.record.path) / "b").exists()


async def test_a_shallow_repository_has_worktrees(ground: Ground) -> None:
    commit(ground.main, "two")
    shallow = ground.root / "shallow"
    git(ground.root, "clone", "-q", "--depth=1", f"file://{ground.main}", str(shallow))
    made = await made_in(shallow, ground.worktrees())
    assert made.record.path == f"{shallow}.worktrees/one"


async def test_a_bare_repository_with_work_trees_around_it(ground: Ground) -> None:
    around = ground.root / "around"
    git(ground.root, "clone", "-q", "--bare", str(ground.main), str(around / ".bare"))
    git(around / ".bare", "worktree", "add", "-q", str(around / "main"), "main")
    worktrees = ground.worktrees()
    made = await made_in(around / "main", worktrees)
    assert made.record.path == str(around / "main.worktrees/one")
    commit(Path(made.record.path), "new")
    await worktrees.land(made.record, "merge", "", Worktree())
    assert (around / "main/new").exists()


async def test_a_detached_head_lands_only_where_it_is_told_to(ground: Ground) -> None:
    git(ground.main, "checkout", "-q", "--detach")
    worktrees = ground.worktrees()
    made = await made_in(ground.main, worktrees)
    commit(Path(made.record.path), "new")
    with pytest.raises(WorktreeProblem, match="--onto"):
        await worktrees.land(made.record, "merge", "", Worktree())
    await worktrees.land(made.record, "merge", "main", Worktree())
    assert git(ground.main, "log", "-1", "--format=%s", "main") == "new"


async def test_a_worktree_of_a_worktree_begins_with_its_last_commit(ground: Ground) -> None:
    worktrees = ground.worktrees()
    first = await made_in(ground.main, worktrees, "first")
    head = commit(Path(first.record.path), "new")
    second = await made_in(first.workspace, worktrees, "second")
    assert second.record.origin.base == head
    assert second.record.origin.repository == first.record.origin.repository
    assert second.record.origin.base_branch == "main"


async def test_a_worktree_that_somebody_has_deleted_is_made_again(ground: Ground) -> None:
    worktrees = ground.worktrees()
    first = await made_in(ground.main, worktrees)
    commit(first.workspace, "new")
    assert await worktrees.publish(str(first.workspace)) == ""
    shutil.rmtree(first.workspace)
    again = await made_in(ground.main, worktrees)
    assert (again.workspace / "new").exists()


async def test_nothing_that_the_original_repository_prunes_is_missing(ground: Ground) -> None:
    commit(ground.main, "two")
    worktrees = ground.worktrees()
    made = await made_in(ground.main, worktrees)
    git(ground.main, "reset", "-q", "--hard", "HEAD~1")
    git(ground.main, "branch", "-qD", "one")
    git(ground.main, "reflog", "expire", "--expire=now", "--all")
    git(ground.main, "gc", "-q", "--prune=now")
    git(made.workspace, "fsck", "--strict")
    assert git(made.workspace, "log", "--oneline").count("\n") == 1


async def test_a_branch_that_the_user_moves_is_left_alone(ground: Ground) -> None:
    worktrees = ground.worktrees()
    made = await made_in(ground.main, worktrees)
    users = commit(ground.main, "users")
    git(ground.main, "branch", "-f", "one", users)
    head = commit(made.workspace, "new")
    assert "has other commits" in await worktrees.publish(str(made.workspace))
    assert git(ground.main, "rev-parse", "one") == users
    assert git(ground.main, "rev-parse", f"refs/tiller/worktrees/{made.record.id}/head") == head


async def test_a_daemon_that_dies_before_it_notes_a_moved_branch_moves_it_again(
    ground: Ground,
) -> None:
    worktrees = ground.worktrees()
    made = await made_in(ground.main, worktrees)
    commit(made.workspace, "one more")
    assert await worktrees.publish(str(made.workspace)) == ""
    worktrees.records.put(made.record)  # as it was before
    head = commit(made.workspace, "and another")
    assert await worktrees.publish(str(made.workspace)) == ""
    assert git(ground.main, "rev-parse", "one") == head


async def test_what_is_known_of_worktrees_is_never_older_than_the_last_change(
    ground: Ground,
) -> None:
    made = await made_in(ground.main, ground.worktrees())
    records = ground.worktrees().records
    for number in range(200):  # many within one tick of the file system's clock
        records.put(structs.replace(made.record, landed=str(number)))
        assert [one.landed for one in records.all()] == [str(number)]
    assert ground.worktrees().records.all() == records.all()
    records.drop(made.record)
    assert records.around(made.workspace) is None


async def test_a_state_directory_that_can_not_be_written_is_a_problem_and_no_crash(
    ground: Ground,
) -> None:
    worktrees = ground.worktrees()
    made = await made_in(ground.main, worktrees)
    commit(made.workspace, "new")
    shutil.rmtree(ground.root / "state")
    (ground.root / "state").write_text("as on a full disk, nothing can be stored")
    assert "state" in await worktrees.publish(str(made.workspace))
    assert "[worktree" in await worktrees.describe(str(made.workspace))
    for attempt in (
        lambda: worktrees.make(ground.main, "two", "", Worktree()),
        lambda: worktrees.land(made.record, "merge", "", Worktree()),
        lambda: worktrees.remove(made.record, Worktree(), force=True),
    ):
        with pytest.raises(WorktreeProblem, match="state"):
            await attempt()
    assert (made.workspace / "new").exists()


@pytest.mark.parametrize("name", [".env", "linked/secret", "pipe", "folder", "missing"])
async def test_a_copied_file_is_never_what_a_link_leads_to(ground: Ground, name: str) -> None:
    outside = ground.root / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    (ground.main / ".env").unlink()
    (ground.main / ".env").symlink_to(outside / "secret")
    (ground.main / "linked").symlink_to(outside)
    (ground.main / "folder").mkdir()
    os.mkfifo(ground.main / "pipe")
    made = await made_in(ground.main, ground.worktrees(), "one", "", name)
    assert not (made.workspace / name).exists()
    assert made.record.origin.copied == {}


async def test_a_removed_worktree_is_kept_for_a_month(ground: Ground) -> None:
    worktrees = ground.worktrees()
    made = await made_in(ground.main, worktrees, "one", "", ".env")
    (made.workspace / "draft").write_text("draft")
    removed = await worktrees.remove(made.record, Worktree(), force=True)
    assert not made.workspace.exists()
    assert worktrees.kept_until(removed) - removed.removed_at == KEPT_DAYS * DAY_S
    await worktrees.restore(removed)
    assert (made.workspace / "draft").read_text() == "draft"
    assert git(ground.main, "rev-parse", "one") == made.record.origin.base


@pytest.mark.parametrize("place", ["none", "empty"])
async def test_no_repository_or_no_commit_is_a_clear_error(ground: Ground, place: str) -> None:
    there = ground.root / place
    there.mkdir()
    if place == "empty":
        subprocess.run(["git", "init", "-q"], cwd=there, check=True)  # noqa: ASYNC221
    with pytest.raises(WorktreeProblem, match=r"no work tree of git|no commit yet"):
        await ground.worktrees().make(there, "one", "", Worktree())
    assert ground.worktrees().records.all() == ()


async def test_a_place_that_can_not_be_written_leaves_nothing(ground: Ground) -> None:
    (ground.root / "main.worktrees").write_text("a file is in the way")
    with pytest.raises(WorktreeProblem, match="can't be made"):
        await ground.worktrees().make(ground.main, "one", "", Worktree())
    assert ground.worktrees().records.all() == ()
    assert git(ground.main, "branch", "--list", "one") == ""


@pytest.mark.parametrize(("there", "wanted"), [("a/b", "a"), ("a", "a/b/c")])
async def test_a_name_that_git_can_not_have_beside_another_is_refused(
    ground: Ground, there: str, wanted: str
) -> None:
    git(ground.main, "branch", there)
    with pytest.raises(WorktreeProblem, match=f"`{wanted}` beside the branch `{there}`"):
        await ground.worktrees().make(ground.main, wanted, "", Worktree())
    assert not ground.trees.exists()


async def test_a_branch_that_git_refuses_leaves_nothing(ground: Ground) -> None:
    lock = ground.main / ".git/refs/heads/one.lock"
    lock.touch()
    worktrees = ground.worktrees()
    with pytest.raises(WorktreeProblem, match=r"one\.lock"):
        await worktrees.make(ground.main, "one", "", Worktree())
    assert worktrees.records.all() == ()
    assert not ground.trees.exists()
    lock.unlink()
    assert (await made_in(ground.main, worktrees)).is_new


async def test_a_worktree_that_was_not_finished_is_not_used_before_it_is(ground: Ground) -> None:
    worktrees = ground.worktrees()
    made = await made_in(ground.main, worktrees)
    git(ground.main, "branch", "-D", "one")
    worktrees.records.put(structs.replace(made.record, state="making"))
    again = await worktrees.make(ground.main, "one", "", Worktree())
    assert (again.record.id, again.record.state) == (made.record.id, "ready")
    assert git(ground.main, "rev-parse", "one") == made.record.origin.base


async def test_conflicts_are_found_before_a_long_check_runs(ground: Ground) -> None:
    worktrees = ground.worktrees()
    made = await made_in(ground.main, worktrees)
    commit(ground.tree("one"), "file", "theirs\n")
    commit(ground.main, "file", "ours\n")
    with pytest.raises(Conflict, match="in file"):
        await worktrees.land(made.record, "merge", "", Worktree(check="touch product"))
    assert git(ground.tree("one"), "status", "--porcelain") == ""


async def test_commits_that_fit_land_after_their_check(ground: Ground) -> None:
    worktrees = ground.worktrees()
    made = await made_in(ground.main, worktrees)
    commit(ground.tree("one"), "theirs")
    commit(ground.main, "ours")
    await worktrees.land(made.record, "merge", "", Worktree(check="test -e theirs"))
    assert (ground.main / "theirs").exists()


async def test_nothing_is_left_to_land_after_commits_landed_as_one(ground: Ground) -> None:
    worktrees = ground.worktrees()
    made = await made_in(ground.main, worktrees)
    commit(ground.tree("one"), "a")
    commit(ground.tree("one"), "b")
    assert (await worktrees.state_of(made.record)).ahead == 2
    await worktrees.land(made.record, "squash", "", Worktree())
    assert (await worktrees.state_of(worktrees.find(made.record.id))).ahead == 0


async def test_a_worktree_whose_directory_is_gone_does_not_land(ground: Ground) -> None:
    worktrees = ground.worktrees()
    made = await made_in(ground.main, worktrees)
    shutil.rmtree(ground.tree("one"))
    with pytest.raises(WorktreeProblem, match=r"does not exist any more.*tiller worktree rm one"):
        await worktrees.land(made.record, "merge", "", Worktree())
