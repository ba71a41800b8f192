"""Sessions in worktrees: made by the daemon, apart from everything else, landed and removed."""

import subprocess
from pathlib import Path

import pytest
import trio

from e2e.conftest import GIT
from e2e.test_sandbox import DEFAULT, needs_sandbox
from e2e.words import bash, calls, hang, text, write
from support.daemon import Daemon
from support.frontend import TIMEOUT_S, Frontend
from support.terminal import TILLER
from tiller_daemon.models.scripted import CallPart, ScriptStep
from tiller_protocol.answers import Created, Rejected, SessionListResult
from tiller_protocol.ops import (
    Answer,
    Interrupt,
    SessionCreate,
    SessionFork,
    SessionList,
    UserInput,
)
from tiller_protocol.sessions import SessionSearch, SessionSearchResult
from tiller_protocol.settings import Settings, TurnOverrides
from tiller_protocol.worktrees import (
    WorktreeChoice,
    WorktreeLand,
    WorktreeLanded,
    WorktreeList,
    WorktreeListResult,
    WorktreeRemove,
    WorktreeRestore,
    WorktreeSummary,
)

pytestmark = needs_sandbox

COMMIT = "git add -A && git commit -qm Work"


@pytest.fixture
def daemon(daemon: Daemon) -> Daemon:
    daemon.configure(DEFAULT)
    return daemon


@pytest.fixture
def workspace(workspace: Path) -> Path:
    """A repository whose own configuration says who commits, which worktrees read as well."""
    git(workspace, "config", "user.name", "t")
    git(workspace, "config", "user.email", "t@example.invalid")
    return workspace


def git(place: Path, *arguments: str) -> str:
    return subprocess.check_output([*GIT, *arguments], cwd=place, text=True).strip()


async def in_worktree(
    frontend: Frontend, workspace: Path, name: str, *steps: ScriptStep, base: str = ""
) -> str:
    """Make a session in a worktree whose model plays `steps`, unasked."""
    op = SessionCreate(
        str(workspace),
        model=frontend.daemon.script(*steps),
        settings=Settings(approve="always"),
        worktree=WorktreeChoice(name, base),
    )
    created = await frontend.must(op)
    assert isinstance(created, Created)
    frontend.follow(created.session_id)
    return created.session_id


def is_there(place: Path | str) -> bool:
    return Path(place).exists()


async def listed(frontend: Frontend, workspace: Path) -> tuple[WorktreeSummary, ...]:
    result = await frontend.must(WorktreeList(str(workspace)))
    assert isinstance(result, WorktreeListResult)
    return result.worktrees


async def test_a_session_works_on_a_branch_in_a_worktree_of_its_own(
    frontend: Frontend, workspace: Path
) -> None:
    steps = (calls(write("new.py", "x = 1\n")), calls(bash(COMMIT)), text("done"))
    session_id = await in_worktree(frontend, workspace, "feature", *steps)
    await frontend.say(session_id)
    assert (await frontend.turn_ended(session_id)).outcome == "completed"
    snapshot = await frontend.snapshot(session_id)
    place = workspace.with_name("repository.worktrees") / "feature"
    assert (snapshot.workspace, snapshot.worktree) == (str(place), "feature")
    assert (place / "new.py").read_text() == "x = 1\n"
    assert not (workspace / "new.py").exists()
    (tree,) = await listed(frontend, workspace)
    assert (tree.name, tree.ahead, tree.changed_files, tree.problem) == ("feature", 1, 0, "")
    assert tree.sessions == (session_id,)
    found = await frontend.must(SessionList(str(workspace)))
    assert isinstance(found, SessionListResult)
    assert [(one.session_id, one.checkout) for one in found.sessions] == [
        (session_id, str(workspace))
    ]
    searched = await frontend.must(SessionSearch("done", str(workspace)))
    assert isinstance(searched, SessionSearchResult)
    assert [one.session.session_id for one in searched.found] == [session_id]
    assert git(workspace, "log", "-1", "--format=%s", "feature") == "Work"
    assert git(workspace, "status", "--porcelain") == ""


async def test_a_fork_of_a_session_in_a_worktree_works_there_too(
    frontend: Frontend, workspace: Path
) -> None:
    session_id = await in_worktree(frontend, workspace, "forked", text("hi"))
    await frontend.say(session_id)
    await frontend.turn_ended(session_id)
    fork = await frontend.must(SessionFork(session_id))
    assert isinstance(fork, Created)
    assert (await frontend.snapshot(fork.session_id)).worktree == "forked"


async def test_a_worktree_with_the_same_name_is_used_again(
    frontend: Frontend, workspace: Path
) -> None:
    first = await in_worktree(frontend, workspace, "again", text("a"))
    second = await in_worktree(frontend, workspace, "again", text("b"))
    places = {(await frontend.snapshot(one)).workspace for one in (first, second)}
    assert len(places) == 1
    assert (await listed(frontend, workspace))[0].sessions == (second, first)


async def test_a_worktree_lands_on_the_branch_that_it_came_from(
    frontend: Frontend, workspace: Path
) -> None:
    steps = (calls(bash(f"echo more >>greeting.txt; {COMMIT}")), text("done"))
    session_id = await in_worktree(frontend, workspace, "land", *steps)
    await frontend.say(session_id)
    await frontend.turn_ended(session_id)
    (tree,) = await listed(frontend, workspace)
    landed = await frontend.must(WorktreeLand(tree.id))
    assert isinstance(landed, WorktreeLanded)
    assert (landed.onto, landed.checkout) == ("master", str(workspace))
    assert (workspace / "greeting.txt").read_text() == "hello\nmore\n"
    assert git(workspace, "rev-parse", "master") == landed.commit
    await frontend.must(WorktreeRemove(tree.id))
    assert not is_there(tree.path)
    (removed,) = await listed(frontend, workspace)
    assert removed.state == "removed"
    assert removed.disk_bytes
    await frontend.must(WorktreeRestore(tree.id))
    assert (Path(tree.path) / "greeting.txt").read_text() == "hello\nmore\n"


@pytest.mark.parametrize("how", ["merge", "rebase", "squash"])
async def test_conflicts_change_nothing_and_become_a_task(
    frontend: Frontend, workspace: Path, how: str
) -> None:
    merge = f"git merge -q master; echo both >greeting.txt; {COMMIT}"
    steps = (
        calls(bash(f"echo theirs >greeting.txt; {COMMIT}")),
        text("done"),
        calls(bash(merge)),
        text("merged"),
    )
    session_id = await in_worktree(frontend, workspace, "conflict", *steps)
    await frontend.say(session_id)
    await frontend.turn_ended(session_id)
    (workspace / "greeting.txt").write_text("ours\n")
    git(workspace, "commit", "-qam", "Ours")
    before = git(workspace, "rev-parse", "HEAD")
    (tree,) = await listed(frontend, workspace)
    head = git(Path(tree.path), "rev-parse", "HEAD")
    refused = await frontend.refused(WorktreeLand(tree.id, how))  # type: ignore[arg-type]
    assert (refused.code, refused.data["files"]) == ("conflict", ["greeting.txt"])
    assert git(workspace, "rev-parse", "HEAD") == before
    assert git(workspace, "status", "--porcelain") == ""
    assert git(Path(tree.path), "rev-parse", "HEAD") == head
    assert git(Path(tree.path), "status", "--porcelain") == ""
    await frontend.say(session_id, str(refused.data["task"]))
    await frontend.turn_ended(session_id, 2)
    await frontend.must(WorktreeLand(tree.id))
    assert (workspace / "greeting.txt").read_text() == "both\n"


async def test_the_command_line_removes_what_it_can_and_says_what_it_can_not(
    frontend: Frontend, workspace: Path
) -> None:
    for name in ("rm-1", "rm-2", "rm-3"):
        session_id = await in_worktree(frontend, workspace, name, hang("hi"))
        place = Path((await frontend.snapshot(session_id)).workspace)
        if name != "rm-3":
            (place / "draft.txt").write_text("draft")
    await frontend.say(session_id)
    await frontend.must(UserInput(session_id, "later", delivery="queue"))
    await frontend.must(Interrupt(session_id))
    await frontend.turn_ended(session_id)
    words = ("worktree", "rm", "rm-1", "rm-2", "rm-3")
    with trio.fail_after(TIMEOUT_S):
        done = await trio.run_process(
            [*TILLER, *words],
            cwd=workspace,
            env=frontend.daemon.variables,
            capture_stdout=True,
            capture_stderr=True,
            check=False,
        )
    assert done.returncode == 1
    assert b"removed rm-3" in done.stdout
    assert b"1 message still waits for its session, until it is restored" in done.stdout
    refused = await frontend.refused(UserInput(session_id, "again"))
    assert refused.message.endswith("was removed, put it back: tiller worktree restore rm-3")
    assert b"`rm-1` has changes" in done.stderr
    assert b"`rm-2` has changes" in done.stderr
    here = [one.name for one in await listed(frontend, workspace) if one.state == "ready"]
    assert here == ["rm-1", "rm-2"]


async def test_always_here_in_a_worktree_counts_for_its_repository(
    frontend: Frontend, workspace: Path
) -> None:
    ask = Settings(approve="ask")
    here, apart = str(workspace), WorktreeChoice("asks")
    for tree in (apart, None, WorktreeChoice("other")):
        model = frontend.daemon.script(calls(bash("touch made")), text("done"))
        op = SessionCreate(here, model=model, settings=ask, worktree=tree)
        created = await frontend.must(op)
        assert isinstance(created, Created)
        frontend.follow(created.session_id)
        await frontend.say(created.session_id)
        if tree is apart:
            request = await frontend.request_opened(created.session_id)
            assert request.always_here == here
            await frontend.must(Answer(request.id, "always_here"))
        assert (await frontend.turn_ended(created.session_id)).outcome == "completed"
        assert frontend.completed_calls(created.session_id)[0].state == "completed"


async def test_what_exists_only_in_a_worktree_keeps_it(frontend: Frontend, workspace: Path) -> None:
    (workspace / ".gitignore").write_text("*.log\nnode_modules/\n")
    git(workspace, "add", "-A")
    git(workspace, "commit", "-qm", "Ignore")
    session_id = await in_worktree(frontend, workspace, "keep", text("hi"))
    place = Path((await frontend.snapshot(session_id)).workspace)
    (tree,) = await listed(frontend, workspace)

    async def why() -> str:
        refused = await frontend.refused(WorktreeRemove(tree.id))
        assert isinstance(refused, Rejected)
        assert is_there(place)
        return refused.message

    (place / "draft.txt").write_text("draft")
    assert "draft.txt" in await why()
    git(place, "add", "-A")
    git(place, "commit", "-qm", "Draft")
    assert "not in `master`" in await why()
    await frontend.must(WorktreeLand(tree.id))
    (place / "precious.log").write_text("only here")
    (place / "node_modules").mkdir()
    (place / "node_modules/x.js").write_text("x")
    assert "precious.log" in await why()
    (place / "precious.log").unlink()
    await frontend.must(WorktreeRemove(tree.id))


async def test_uncommitted_changes_stay_in_the_checkout_and_are_named(
    frontend: Frontend, workspace: Path
) -> None:
    (workspace / "greeting.txt").write_text("changed\n")
    session_id = await in_worktree(frontend, workspace, "clean", text("hi"))
    place = Path((await frontend.snapshot(session_id)).workspace)
    assert (place / "greeting.txt").read_text() == "hello\n"
    with trio.fail_after(5):
        await frontend.until(
            session_id, lambda event: "1 file" in getattr(event.body, "message", "")
        )


@pytest.mark.parametrize(
    ("name", "base", "why"),
    [
        ("a..b", "", "can't be the name of a branch"),
        ("-x", "", "can't be the name of a branch"),
        ("master", "", "is checked out in"),
        ("fine", "nowhere", "no branch or commit `nowhere`"),
        ("there", "master", "exists already"),
    ],
)
async def test_a_worktree_that_can_not_be_made_is_an_error(
    frontend: Frontend, workspace: Path, name: str, base: str, why: str
) -> None:
    git(workspace, "branch", "there")
    op = SessionCreate(str(workspace), worktree=WorktreeChoice(name, base))
    refused = await frontend.refused(op)
    assert refused.code == "worktree"
    assert why in refused.message
    assert await listed(frontend, workspace) == ()
    assert not workspace.with_name("repository.worktrees").exists()


async def test_the_editing_tools_write_to_no_other_checkout(
    frontend: Frontend, workspace: Path
) -> None:
    other = await in_worktree(frontend, workspace, "other", text("hi"))
    place = (await frontend.snapshot(other)).workspace
    targets = (f"{workspace}/greeting.txt", f"{workspace}/.git/hooks/x", f"{place}/new.txt")
    steps = (calls(*(write(path, "x", path[-9:]) for path in targets)), text("done"))
    session_id = await in_worktree(frontend, workspace, "own", *steps)
    await frontend.say(session_id)
    await frontend.turn_ended(session_id)
    for call in frontend.completed_calls(session_id):
        assert (call.state, "another checkout" in call.output) == ("error", True), call
    assert (workspace / "greeting.txt").read_text() == "hello\n"
    assert not is_there(f"{place}/new.txt")


async def test_a_worktree_gets_files_and_its_set_up_is_the_first_turn(
    daemon: Daemon, frontend: Frontend, workspace: Path
) -> None:
    daemon.configure(
        DEFAULT + '[worktree]\ncopy = [".env", "missing"]\nsetup = "cat .env; echo ok >made.txt"\n'
        'check = "test -e made.txt && exit 3"\n'
    )
    (workspace / ".gitignore").write_text(".env\nmade.txt\n")
    (workspace / "sub").mkdir()
    (workspace / "sub/x").write_text("x")
    git(workspace, "add", "-A")
    git(workspace, "commit", "-qm", "Ignore")
    (workspace / ".env").write_text("KEY=1\n")
    session_id = await in_worktree(frontend, workspace / "sub", "set-up", text("done"))
    assert (await frontend.turn_ended(session_id)).steps == 0
    (call,) = frontend.completed_calls(session_id)
    assert (call.by_user, call.in_sandbox, call.exit_status) == (True, True, 0)
    here = Path((await frontend.snapshot(session_id)).workspace)
    assert here.name == "sub"
    place = here.parent
    assert (place / "made.txt").read_text() == "ok\n"
    assert (place / ".env").read_text() == "KEY=1\n"
    (place / "new").write_text("x")
    git(place, "add", "-A")
    git(place, "commit", "-qm", "New")
    (tree,) = await listed(frontend, workspace)
    refused = await frontend.refused(WorktreeLand(tree.id))
    assert "ended with status 3" in refused.message


async def test_what_a_check_leaves_hinders_neither_landing_nor_removing(
    daemon: Daemon, frontend: Frontend, workspace: Path
) -> None:
    check = "touch junit.xml a.log; test -e fixed"
    daemon.configure(DEFAULT + f'[worktree]\ncheck = "{check}"\n')
    (workspace / ".gitignore").write_text("*.log\n")
    git(workspace, "add", "-A")
    git(workspace, "commit", "-qm", "Ignore")
    session_id = await in_worktree(frontend, workspace, "checked", text("done"))
    place = Path((await frontend.snapshot(session_id)).workspace)
    (tree,) = await listed(frontend, workspace)
    for name in ("new", "fixed"):
        (place / name).write_text("x")
        git(place, "add", name)
        git(place, "commit", "-qm", name)
        if name == "new":
            assert "status 1" in (await frontend.refused(WorktreeLand(tree.id))).message
    await frontend.must(WorktreeLand(tree.id, "rebase"))
    (place / "own.log").write_text("x")
    assert "there: own.log." in (await frontend.refused(WorktreeRemove(tree.id))).message
    (place / "own.log").unlink()
    await frontend.must(WorktreeRemove(tree.id))


@pytest.mark.parametrize(
    ("check", "why"),
    [
        ("echo x >>greeting.txt", "in no commit: greeting.txt. Commit them, let git ignore them, "),
        ("touch theirs", "can't be rebased there, but perhaps they land without --rebase."),
    ],
)
async def test_files_of_a_check_that_keep_commits_from_being_rebased_are_named(
    daemon: Daemon,
    frontend: Frontend,
    workspace: Path,
    check: str,
    why: str,
) -> None:
    daemon.configure(DEFAULT + f'[worktree]\ncheck = "{check}"\n')
    session_id = await in_worktree(frontend, workspace, "stuck", text("done"))
    place = Path((await frontend.snapshot(session_id)).workspace)
    for where, name in ((place, "mine"), (workspace, "theirs")):
        (where / name).write_text("x")
        git(where, "add", name)
        git(where, "commit", "-qm", name)
    (tree,) = await listed(frontend, workspace)
    assert why in (await frontend.refused(WorktreeLand(tree.id, "rebase"))).message


async def test_a_set_up_that_fails_is_told_to_the_user(
    daemon: Daemon, frontend: Frontend, workspace: Path
) -> None:
    daemon.configure(DEFAULT + '[worktree]\nsetup = "echo no such package; exit 3"\n')
    session_id = await in_worktree(frontend, workspace, "broken", text("done"))
    assert (await frontend.turn_ended(session_id)).outcome == "failed"
    with trio.fail_after(TIMEOUT_S):
        shown = await trio.run_process(
            [*TILLER, "show", session_id], env=daemon.variables, capture_stdout=True
        )
        listed = await trio.run_process(
            [*TILLER, "board", "--json"], env=daemon.variables, capture_stdout=True
        )
    assert b"set-up of this worktree" in shown.stdout
    assert b"failed with status 3" in shown.stdout
    assert b"failed with status 3" in listed.stdout
    await frontend.say(session_id)
    assert (await frontend.turn_ended(session_id, 2)).outcome == "completed"


async def test_what_a_set_up_prints_is_no_part_of_the_answer(
    daemon: Daemon, workspace: Path
) -> None:
    daemon.configure(DEFAULT + '[worktree]\nsetup = "cat greeting.txt"\n')
    model = daemon.script(text("the answer"))
    words = ("exec", "--worktree", "one", "-m", model, "-C", str(workspace), "hi")
    with trio.fail_after(TIMEOUT_S):
        done = await trio.run_process(
            [*TILLER, *words], env=daemon.variables, capture_stdout=True, capture_stderr=True
        )
    assert done.stdout == b"the answer\n"
    assert b"hello" in done.stderr


async def test_sub_agents_in_worktrees_write_side_by_side(
    daemon: Daemon, frontend: Frontend, workspace: Path
) -> None:
    daemon.configure(DEFAULT + '[agents.writer]\nmodel = "scripted/writer"\n')
    work = (calls(write("mine.txt", "sub-agent\n")), calls(bash(COMMIT)), text("written"))
    daemon.play("writer", *work)
    tasks = [
        CallPart(
            "task",
            arguments={"prompt": one, "agent": "writer", "isolation": "worktree"},
            call_id=one,
        )
        for one in ("a", "b")
    ]
    session_id = await frontend.session(workspace, calls(*tasks), text("both are done"))
    await frontend.say(session_id)
    await frontend.turn_ended(session_id)
    branches = []
    for call in frontend.completed_calls(session_id):
        assert "1 new commits]" in call.output, call
        branches.append(call.output.partition("branch `")[2].partition("`")[0])
    assert len(set(branches)) == 2
    for branch in branches:
        assert git(workspace, "show", f"{branch}:mine.txt") == "sub-agent"
    assert not (workspace / "mine.txt").exists()


async def test_the_worktree_of_a_sub_agent_that_changed_nothing_goes_and_comes_back_to_resume_it(
    daemon: Daemon, frontend: Frontend, workspace: Path
) -> None:
    daemon.configure(DEFAULT + '[agents.writer]\nmodel = "scripted/writer"\n')
    look = calls(bash("cat greeting.txt; mkdir -p build; touch build/x"))
    daemon.play("writer", look, text("seen"), calls(write("mine.txt", "x")), text("written"))
    task = {"prompt": "look", "agent": "writer", "isolation": "worktree"}
    first = calls(CallPart("task", arguments=task, call_id="a"))
    session_id = await frontend.session(workspace, first, text("done"))
    (workspace / ".gitignore").write_text("build\n")
    git(workspace, "add", "-A")
    git(workspace, "commit", "-qm", "Ignore")
    await frontend.say(session_id)
    await frontend.turn_ended(session_id)
    (call,) = frontend.completed_calls(session_id)
    assert "removed, as nothing was changed" in call.output, call
    assert call.sub_agent
    assert await listed(frontend, workspace) == ()
    assert not is_there(f"{workspace}.worktrees")
    assert git(workspace, "for-each-ref", "--format=%(refname)") == "refs/heads/master"

    resume = {"prompt": "write", "resume": call.sub_agent.session_id}
    second = calls(CallPart("task", arguments=resume, call_id="b"))
    daemon.play("again", text(""), text(""), second, text("done"))  # a script counts all steps
    await frontend.say(session_id, overrides=TurnOverrides(model="scripted/again"))
    await frontend.turn_ended(session_id, 2)
    (tree,) = await listed(frontend, workspace)
    assert (Path(tree.path) / "mine.txt").read_text() == "x"


def state_of(checkout: Path) -> tuple[object, ...]:
    """Everything of a checkout that its worktrees must not change."""
    own = checkout / ".git"
    names = [path for path in checkout.rglob("*") if own not in path.parents and path.is_file()]
    refs = git(checkout, "for-each-ref", "--format=%(refname) %(objectname)").splitlines()
    kept = [line for line in refs if not line.startswith(("refs/heads/n", "refs/tiller/"))]
    parts = ("index", "config", "HEAD", "packed-refs")
    files = [(own / name).read_bytes() for name in parts if (own / name).exists()]
    hooks = sorted((path.name, path.read_bytes()) for path in (own / "hooks").iterdir())
    return {path: path.read_bytes() for path in names}, kept, files, hooks


@pytest.mark.parametrize("number", [3, pytest.param(20, marks=pytest.mark.nightly)])
async def test_sessions_at_once_keep_to_their_own_worktrees(
    frontend: Frontend, workspace: Path, number: int
) -> None:
    for one in range(500):
        (workspace / f"src/{one % 10}").mkdir(parents=True, exist_ok=True)
        (workspace / f"src/{one % 10}/{one}.py").write_text(f"x = {one}\n")
    (workspace / "Makefile").write_text("all:\n\tcat src/*/*.py >built.txt\n")
    (workspace / ".gitignore").write_text("built.txt\n")
    library = workspace.with_name("library")
    git(workspace.parent, "clone", "-q", str(workspace), str(library))
    file = ("-c", "protocol.file.allow=always")
    git(workspace, *file, "submodule", "add", "-q", str(library), "vendor/lib")
    git(workspace, "add", "-A")
    git(workspace, "commit", "-qm", "Many files")
    before = state_of(workspace)
    sessions: dict[str, str] = {}

    async def work(name: str) -> None:
        steps = (
            calls(write(f"src/{name}.py", f"x = '{name}'\n"), bash("make")),
            calls(bash(f"echo {name} >>greeting.txt; git stash -q; git stash pop; {COMMIT}")),
            text("done"),
        )
        sessions[name] = await in_worktree(frontend, workspace, name, *steps)
        await frontend.say(sessions[name])
        await frontend.turn_ended(sessions[name])

    async with trio.open_nursery() as nursery:
        for one in range(number):
            nursery.start_soon(work, f"n{one}")
    assert state_of(workspace) == before
    base = git(workspace, "rev-parse", "HEAD")
    trees = {one.name: one for one in await listed(frontend, workspace)}
    assert set(trees) == set(sessions)
    for name, tree in trees.items():
        place = Path(tree.path)
        assert (tree.ahead, tree.changed_files, tree.problem) == (1, 0, "")
        changed = git(place, "diff", "--name-only", base, "HEAD").splitlines()
        assert changed == ["greeting.txt", f"src/{name}.py"]
        assert (place / "greeting.txt").read_text() == f"hello\n{name}\n"
        assert "x = 499" in (place / "built.txt").read_text()
        assert (place / "vendor/lib/greeting.txt").exists()
        assert git(workspace, "rev-parse", name) == git(place, "rev-parse", "HEAD")
