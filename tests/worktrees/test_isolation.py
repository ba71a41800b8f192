"""Nothing that runs in a worktree changes anything outside: the sandbox holds it.

Every attempt runs as a command that a person has approved. What it changed is judged from outside.
"""

from collections.abc import Generator
from pathlib import Path
from typing import Final

import pytest

from support.jail import MECHANISMS, WHO, Jail, Mechanism, jail_of, sandbox_for
from tiller_daemon.config import SandboxPolicy, Worktree
from tiller_daemon.policy.shell.levels import git_use
from tiller_daemon.sandbox.level import SandboxLevel
from tiller_daemon.sandbox.sandboxes import Sandboxes
from tiller_daemon.worktrees.records import Records
from tiller_daemon.worktrees.worktrees import Worktrees
from tiller_protocol.ids import Ulids

ATTEMPTS: Final = """
echo x >$MAIN/file
rm -rf $MAIN/file
echo x >>$MAIN/.git/config
echo x >$MAIN/.git/index
echo x >$MAIN/.git/HEAD
rm -rf $MAIN/.git/objects
rm -rf .git/../../../w/.git/refs
echo x >$OTHER/file
rm -rf $OTHER
mv $MAIN $MAIN.gone
mv $OTHER $OTHER.gone
mkdir -p ../new; touch ../new/x
touch ../x
git -C $MAIN commit --allow-empty -m x
git -C $MAIN checkout -b evil
git -C $MAIN stash
git -C $MAIN reset --hard
git -C $MAIN update-ref refs/heads/main HEAD~0
git -C $MAIN branch -D other
git -C $MAIN branch evil
git -C $MAIN tag evil
git -C $MAIN config user.name evil
git -C $MAIN config core.fsmonitor 'touch /tmp/x'
git -C $MAIN gc --prune=now
git -C $MAIN prune
git -C $MAIN repack -ad
git -C $MAIN pack-refs --all
git -C $MAIN worktree add ../evil
git -C $MAIN worktree prune
git -C $MAIN remote add evil /
git -C $MAIN add -A
git -C $MAIN clean -fdx
git -C $MAIN rm -q file
git -C $MAIN apply </dev/null
git -C $MAIN notes add -m x
git -C $MAIN submodule update --init
git -C $OTHER commit --allow-empty -m x
git -C $OTHER reset --hard
git -C $OTHER update-ref refs/heads/other HEAD
git --git-dir=$MAIN/.git update-ref refs/heads/main HEAD
git --git-dir=$MAIN/.git --work-tree=. add -A
git --git-dir=$MAIN/.git --work-tree=. commit -qam x
GIT_DIR=$MAIN/.git git update-ref -d refs/heads/main
GIT_DIR=$MAIN/.git git symbolic-ref HEAD refs/heads/evil
GIT_INDEX_FILE=$MAIN/.git/index git add -A
GIT_OBJECT_DIRECTORY=$MAIN/.git/objects git hash-object -w file
GIT_COMMON_DIR=$MAIN/.git git branch evil
git config --file $MAIN/.git/config user.name evil
git config --worktree user.name evil
git config core.worktree $MAIN && git checkout -f HEAD -- .
git worktree add -f $MAIN/evil
git worktree move . $MAIN/evil
git push $MAIN HEAD:refs/heads/evil
git push $MAIN HEAD:refs/heads/main --force
git push --mirror $MAIN
git fetch $MAIN main; git push $MAIN +FETCH_HEAD:refs/heads/main
git clone -q $MAIN $MAIN/clone
git init -q $MAIN/sub
git bundle create $MAIN/evil.bundle HEAD
git format-patch -o $MAIN HEAD~0..HEAD --root
git archive -o $MAIN/x.tar HEAD
git diff --output=$MAIN/x HEAD
git log --output=$MAIN/x
git stash && git stash pop; git gc --prune=now
git repack -ad; rm -f .git/objects/info/alternates; git gc
echo $MAIN/.git/objects >.git/objects/info/alternates; git prune
ln -s $MAIN/.git/refs/heads/main .git/refs/heads/evil; git update-ref refs/heads/evil HEAD
ln -sf $MAIN/.git/index .git/index; git add -A
rm -rf .git/objects; ln -s $MAIN/.git/objects .git/objects; git hash-object -w file
ln -s $MAIN/file link; echo x >link
ln $MAIN/file hard && echo x >hard
ln $MAIN/.git/config hard && echo x >hard
cp -l $OTHER/file hard && echo x >hard
printf 'touch %s/x' $MAIN >.git/hooks/post-commit; chmod +x .git/hooks/*; git commit -qm x
touch $MAIN/.git/hooks/post-commit
mount --bind /tmp $MAIN
chmod -R 777 $MAIN
chown -R 0 $OTHER
truncate -s 0 $MAIN/.git/packed-refs
find $MAIN -type f -delete
python3 -c "import os; os.rename('$MAIN/.git', '$MAIN/gone')"
tar -C $MAIN -xf /dev/null; touch $MAIN/.git/index.lock
mkdir -p $MAIN/.git/refs/heads/evil
exec 3>>$MAIN/file; echo x >&3
touch ~/evil
rm -rf ~/other
"""
"""Lines that try to change the main checkout (`MAIN`), another worktree (`OTHER`), or the home."""


@pytest.fixture
def jail() -> Generator[Jail]:
    with jail_of() as made:
        made.git("config", "user.name", "t")
        made.git("config", "user.email", "t@t")
        yield made


async def two_worktrees(jail: Jail) -> tuple[Records, Path, Path]:
    """Make two worktrees of the jail's repository; return them."""
    records = Records(jail.runtime / "worktrees")
    ulids, numbers = Ulids(), iter(range(1, 100))
    worktrees = Worktrees(
        records,
        lambda _place, _use: None,
        dict,
        lambda: ulids.make(next(numbers), bytes(10)),
        lambda: 1.0,
    )
    made = [await worktrees.make(jail.workspace, name, "", Worktree()) for name in ("own", "other")]
    own, other = (one.workspace for one in made)
    return records, own, other


def outside(jail: Jail, own: Path) -> dict[str, str]:
    """Return the state of everything but the worktree itself."""
    inside = str(own.relative_to(jail.root))
    return {
        name: state
        for name, state in jail.state().items()
        if name != inside and not name.startswith(f"{inside}/")
    }


@pytest.mark.promise("B61")
@pytest.mark.parametrize("who", WHO)
@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("share", [len(WHO), pytest.param(1, marks=pytest.mark.nightly)])
async def test_no_approved_command_in_a_worktree_changes_anything_outside(
    jail: Jail, mechanism: Mechanism, who: str, share: int
) -> None:
    """Each user tries a `share` of the attempts, which together are all of them."""
    records, own, other = await two_worktrees(jail)
    prefix = jail.as_user(who)
    found = sandbox_for(mechanism, prefix, jail.root)
    # Even if the user lets commands write to all places above.
    named = (str(jail.workspace), str(jail.home), str(other))
    policy = SandboxPolicy("workspace_write", writable=named, network=True)
    path = "/usr/local/bin:/usr/bin:/bin"
    sandboxes = Sandboxes(
        lambda: found, jail.home, {"PATH": path}, private=(jail.runtime,), worktrees=records
    )
    variables = {"MAIN": str(jail.workspace), "OTHER": str(other), "HOME": str(jail.home)}
    before = outside(jail, own)
    escaped: list[str] = []
    lines = [line for line in ATTEMPTS.splitlines() if line][WHO.index(who) % share :: share]
    if mechanism == "landlock":
        # Landlock does not limit modes and owners.
        lines = [line for line in lines if not line.startswith(("chmod", "chown"))]
    for line in lines:
        with jail.eyes():
            sandbox = sandboxes.make(
                SandboxLevel.SESSION, policy, own, jail.spill, git_use=git_use(line)
            )
        assert sandbox
        sandbox = sandbox._replace(guard=None)
        await jail.run(sandbox, line, place=own, variables=variables)
        after = outside(jail, own)
        if after != before:
            changed = sorted(n for n in {*after, *before} if after.get(n) != before.get(n))
            escaped.append(f"{line}: {changed[:3]}")
            before = after
    assert not escaped
    assert len(lines) >= 60 // share


@pytest.mark.parametrize("who", WHO)
async def test_git_works_as_usual_in_a_worktree(jail: Jail, who: str) -> None:
    records, own, _ = await two_worktrees(jail)
    prefix = jail.as_user(who)
    found = sandbox_for("bubblewrap", prefix, jail.root)
    sandboxes = Sandboxes(lambda: found, jail.home, {}, private=(jail.runtime,), worktrees=records)
    lines = (
        "git status", "echo more >>file", "git add -A", "git commit -qm two", "git log -p --all",
        "git stash list", "git branch topic", "git checkout -q topic", "git checkout -q own",
        "git diff main", "git rebase main", "git tag here", "git show HEAD~1:file", "git gc",
        "git fsck", "git merge -q topic", "git reset -q --hard HEAD", "git blame file",
    )  # fmt: skip
    for line in lines:
        with jail.eyes():
            sandbox = sandboxes.make(
                SandboxLevel.SESSION,
                SandboxPolicy("workspace_write"),
                own,
                jail.spill,
                git_use=git_use(line),
            )
        assert sandbox
        jail.said = ""
        status = await jail.run(sandbox._replace(guard=None), line, place=own)
        assert status == 0, (line, jail.said)
