"""What a command made and other programs would execute is put aside, whatever the command tries.

The commands run in the sandbox, and the user's git or the names that are left judge.
"""

import os
import shutil
import subprocess
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Final

import pytest

from support.jail import WHO, Jail, jail_of, sandbox_for
from tiller_daemon.config import SandboxPolicy
from tiller_daemon.sandbox.base import CommandSandbox, GitUse
from tiller_daemon.sandbox.level import SandboxLevel
from tiller_daemon.sandbox.quarantine import Watch, finish_abandoned, put_aside, quarantine
from tiller_daemon.sandbox.sandboxes import Sandboxes
from tiller_daemon.sandbox.scan import Scanner


@pytest.fixture
def jail() -> Generator[Jail]:
    with jail_of() as made:
        yield made


class Runner:
    """Runs commands in a jail's workspace as the daemon would: it scans before and after."""

    def __init__(self, jail: Jail, who: str, protected: tuple[Path, ...] = ()) -> None:
        self.jail, self.workspace, self._protected = jail, jail.workspace, protected
        self._prefix = jail.as_user(who)
        self._found = sandbox_for("bubblewrap", self._prefix, jail.root)
        self._scanner = Scanner(jail.workspace, lambda name: name.endswith(".env"))
        self.records = jail.runtime / "quarantine"
        self.git_use: GitUse = "data"

    async def run(self, script: str, level: SandboxLevel = SandboxLevel.BUILD) -> str:
        """Run a script; return what the user is told."""
        with self.jail.eyes():
            before = self._scanner.scan()
            sandbox = self._confined(level, before)
        await self.jail.run(sandbox, script)
        return " ".join(sandbox.notices)

    def _confined(self, level: SandboxLevel, before: object) -> CommandSandbox:
        found = self._scanner.scan()
        sandboxes = Sandboxes(
            lambda: self._found, self.jail.home, {}, private=(self.jail.runtime,),
            protected=lambda: self._protected, records=self.records,
        )  # fmt: skip
        sandbox = sandboxes.make(
            level,
            SandboxPolicy("workspace_write"),
            self.workspace,
            self.jail.spill,
            found=found,
            masked=(*found.protected, *found.closed),
            git_use=self.git_use if level is SandboxLevel.SESSION else "",
            find_nested=lambda: self._scanner.scan_again(found),
        )
        assert sandbox
        guard = sandbox.guard

        @contextmanager
        def as_user(report: Callable[[str], None]) -> Generator[None]:
            with ExitStack() as stack:
                with self.jail.eyes():
                    stack.enter_context(guard(report) if guard else nullcontext())
                yield
                with self.jail.eyes():
                    stack.close()

        return sandbox._replace(guard=as_user)

    def git(self, *arguments: str, directory: Path | None = None) -> None:
        """Run git as the user does afterwards, which executes what is planted."""
        subprocess.run(
            [*self._prefix, "git", "-c", "safe.directory=*", *arguments],
            cwd=directory or self.workspace, check=False, capture_output=True,
            env={"PATH": os.environ["PATH"], "HOME": str(self.jail.root)},
        )  # fmt: skip


@pytest.fixture
def runner(jail: Jail) -> Callable[[str], Runner]:
    return lambda who: Runner(jail, who)


PLANT: Final = (
    "git init -q {0} && cd {0} && git config core.fsmonitor 'touch $W/ran; true' && cd $W;"
)

PLANTED: Final = {
    "a repository": "sub",
    "a repository with closed directories": "sub; chmod 311 sub",
    "a directory that can't be listed above": "deep/sub; chmod 311 deep",
    "a repository that can't be renamed": "sub; chmod 555 sub",
    "a git directory that can't be renamed": "sub; chmod 555 sub/.git",
    "neither listed nor renamed": "sub; chmod 111 sub",
    "at a gitlink": "vendor/lib",
    "at a gitlink that can't be listed": "vendor/lib; chmod 311 vendor/lib",
    "at a gitlink in installed packages": "node_modules/x",
    "in installed packages and closed": "node_modules/x; chmod 111 node_modules/x",
    "closed above a gitlink": "vendor/lib; chmod 311 vendor",
    "many levels down": "a/b/c/d/e/f; chmod 311 a/b/c",
    "after a disabled one": "sub; mkdir -p sub/.git.disabled/full",
    "beside many directories": "sub; mkdir -p many/$(seq -s/ 1 300)",
}


@pytest.mark.parametrize("who", WHO[-1:])
@pytest.mark.parametrize("name", PLANTED)
async def test_no_repository_that_a_build_makes_is_opened_by_the_users_git(
    runner: Callable[[str], Runner], jail: Jail, name: str, who: str
) -> None:
    path, _, more = PLANTED[name].partition(";")
    head = jail.git("rev-parse", "HEAD").strip()
    for link in ("vendor/lib", "node_modules/x"):
        jail.git("update-index", "--add", "--cacheinfo", f"160000,{head},{link}")
        if who == "ordinary":
            (jail.workspace / link).mkdir(parents=True)
            (jail.workspace / link / "file").touch()
    run = runner(who)
    await run.run(f"{PLANT.format(path)} {more}")
    run.git("status")
    if (jail.workspace / path).is_dir():
        run.git("status", directory=jail.workspace / path)
    assert not (jail.workspace / "ran").exists()


BARE: Final = {
    "a file": "echo ref: refs/heads/master >HEAD",
    "a link that leads nowhere": "ln -s refs/heads/master HEAD",
    "with objects": "echo ref: refs/heads/master >HEAD; mkdir objects; touch objects/x",
    "with references": "echo ref: refs/heads/master >HEAD; mkdir refs; touch refs/x",
    "with a file as objects": "echo ref: refs/heads/master >HEAD; touch objects",
}
COMPLETE: Final = """
mkdir -p objects refs/heads
cat >config <<END
[core]
    repositoryformatversion = 0
    bare = false
    worktree = .
    fsmonitor = "touch ran; true"
END
rm -f objects; mkdir -p objects
"""


@pytest.mark.parametrize("who", WHO[-1:])
@pytest.mark.parametrize("script", BARE.values(), ids=BARE.keys())
async def test_no_build_completes_a_repository_around_a_head_that_was_there(
    runner: Callable[[str], Runner], jail: Jail, script: str, who: str
) -> None:
    shutil.rmtree(jail.workspace / ".git")
    subprocess.run(["sh", "-c", script], cwd=jail.workspace, check=True)  # noqa: ASYNC221
    run = runner(who)
    await run.run(COMPLETE)
    run.git("status")
    assert not (jail.workspace / "ran").exists()


async def test_builds_may_make_objects_and_references_where_no_head_is(
    runner: Callable[[str], Runner], jail: Jail
) -> None:
    told = await runner("ordinary").run("mkdir objects refs; echo x >HEAD")
    assert (jail.workspace / "objects").is_dir()
    assert (jail.workspace / "refs").is_dir()
    assert "HEAD" in told


MADE: Final = (
    ".envrc", ".vscode/tasks.json", ".claude/settings.json", ".mcp.json", ".qwen/settings.json",
    ".kiro/x", ".amazonq/mcp.json", ".roo/mcp.json", ".devcontainer/devcontainer.json",
    ".devcontainer.json", ".nvim.lua", ".exrc", ".vimrc", ".dir-locals.el", ".gdbinit",
    ".pre-commit-config.yaml", ".aider.conf.yml", ".fleet/run.json", ".unheard-of", ".zshenv",
    ".profile", ".GIT/config", ".Git/hooks/x", "opencode.json", "OpenCode.JSON", "opencode.jsonc",
    "crush.json", "a.code-workspace", "mise.toml", "mise.local.toml", "lefthook.yml", "HEAD",
    "x.desktop", "mcp.json", "autorun.inf", "devbox.json",
    "rust-toolchain.toml", "prek.toml",
)  # fmt: skip


@pytest.mark.parametrize("who", WHO)
async def test_names_that_programs_execute_do_not_stay_and_products_do(
    runner: Callable[[str], Runner], jail: Jail, who: str
) -> None:
    run = runner(who)
    products = (".venv/bin/x", ".pytest_cache/x", ".next/x", ".coverage", "build/x", "x.config")
    script = "".join(
        f"mkdir -p $(dirname {name}); echo made >{name};" for name in (*MADE, *products)
    )
    told = await run.run(script)
    left = [name for name in MADE if (jail.workspace / name).exists()]
    assert left == []
    assert [name for name in products if not (jail.workspace / name).exists()] == []
    assert "what other programs execute by themselves" in told
    assert (jail.workspace / ".envrc.disabled").read_text() == "made\n"


CHANGES: Final = {
    "append": "echo x >>.envrc",
    "replace": "echo x >new; mv new .envrc",
    "remove": "rm .envrc",
    "move": "mv .envrc other; echo x >.envrc",
    "link over it": "ln -sf /etc/passwd .envrc",
    "a hard link": "ln .envrc other && echo x >>other",
    "inside a directory": "echo x >>.vscode/tasks.json",
    "a new file in a directory": "echo x >.vscode/new",
    "replace a directory": "mv .vscode old; mkdir .vscode; echo x >.vscode/tasks.json",
    "remove a directory": "rm -rf .vscode",
    "through a link": "ln -s .vscode code; echo x >code/tasks.json",
    "the target of a link": "echo x >>linked/file",
    "change a mode": "chmod 777 .envrc",
    "cut off": ": >.envrc",
    "a workspace that is renamed": "mv $W $W-old; mkdir $W; echo x >$W/.envrc",
}


@pytest.mark.parametrize("who", WHO)
async def test_what_programs_execute_is_changed_by_no_build(
    runner: Callable[[str], Runner], jail: Jail, who: str
) -> None:
    w = jail.workspace
    for folder in (".vscode", "linked"):
        (w / folder).mkdir()
    for name in (".envrc", ".vscode/tasks.json", "linked/file"):
        (w / name).write_text("before\n")
    (w / ".zed").symlink_to("linked")
    run = runner(who)
    names = (".envrc", ".vscode", ".vscode/tasks.json", ".zed", "linked/file")
    before = {name: _state(w / name) for name in names}
    for script in CHANGES.values():
        await run.run(script)
    assert {name: _state(w / name) for name in names} == before
    assert sorted(path.name for path in (w / ".vscode").iterdir()) == ["tasks.json"]


LINKED: Final = {
    "a hook": (".git/hooks/pre-commit", "tools/pre-commit"),
    "a directory of hooks": (".git/hooks", "tools"),
    "a hook of a nested repository": ("sub/.git/hooks/pre-commit", "tools/deep/pre-commit"),
    "the configuration of a nested repository": ("sub/.git/config", "settings/config"),
    "a task of an editor": (".vscode/tasks.json", "vs/tasks.json"),
    "settings deep in a directory": (".claude/a/b/settings.json", "c2/settings.json"),
    "a directory in a directory": (".claude/skills", "skills"),
    "a link to a link": (".idea/x", "first/x"),
}

REPLACE: Final = (
    "echo x >>{0}", "echo x >{0}/new", "echo x >new; mv -f new {0}", "rm -rf {0}; echo x >{0}",
    "mv {0} old; mkdir {0}; echo x >{0}/new",
    "mv {1} old-$$; mkdir -p $(dirname {0}); echo x >{0}",
    "mv {1} old-$$; mkdir -p {0}; echo x >{0}/new",
)  # fmt: skip


@pytest.mark.parametrize("who", WHO[-1:])
@pytest.mark.parametrize("name", LINKED)
async def test_no_build_changes_what_programs_execute_through_a_link(
    runner: Callable[[str], Runner], jail: Jail, name: str, who: str
) -> None:
    jail.git("init", "-q", "sub")
    link = jail.workspace / LINKED[name][0]
    real = _linked(jail.workspace, link, jail.workspace / LINKED[name][1])
    run = runner(who)
    for script in REPLACE:
        await run.run(script.format(real, real.parts[0]))
        files = link.rglob("*") if link.is_dir() else [link] if link.exists() else []
        assert [file for file in files if file.is_file() and file.read_text()] == [], script


def _linked(workspace: Path, link: Path, target: Path) -> Path:
    """Make a link to an empty file, or to a directory with one; return where it leads."""
    is_folder = target.name in ("tools", "skills")
    for folder in ("first", "second", link.parent, target if is_folder else target.parent):
        (workspace / folder).mkdir(parents=True, exist_ok=True)
    (workspace / "first/x").symlink_to("../second/x")
    if link.is_dir():
        shutil.rmtree(link)
    link.unlink(missing_ok=True)
    link.symlink_to(os.path.relpath(target, link.parent))
    real = target.resolve()
    (real / "file" if is_folder else real).touch()
    return real.relative_to(workspace)


def _state(path: Path) -> tuple[object, ...]:
    state = path.lstat()
    text = path.read_text() if path.is_file() else ""
    return state.st_ino, state.st_mode, text


OF_GIT: Final = {
    "a link to a secret": "mkdir -p .git/rebase-merge; ln -s $HOME/.ssh/id .git/rebase-merge/k",
    "a link among references": "ln -s $HOME/.ssh/id .git/refs/heads/k",
    "a link for a directory": "rm -rf .git/logs; ln -s $OUT .git/logs",
    "a link to itself": "rm -rf .git/logs; ln -s . .git/logs",
    "a pipe": "mkdir -p .git/rebase-merge; mkfifo .git/rebase-merge/f",
    "a pipe for a file": "rm -f .git/ORIG_HEAD; mkfifo .git/ORIG_HEAD",
    "a socket": (
        '"$PYTHON" -c "import socket; socket.socket(socket.AF_UNIX).bind(\'.git/refs/s\')"'
    ),
    "configuration": "echo '[core] fsmonitor = evil' >.git/config.worktree",
    "a common directory": "echo ../evil >.git/commondir",
    "a link that replaces hooks": "mv .git/hooks .git/h2; ln -s $OUT .git/hooks",
    "remotes": "mkdir .git/remotes; echo 'URL: x' >.git/remotes/origin",
    "a link deep down": "mkdir -p .git/refs/a/b/c; ln -s $HOME/.netrc .git/refs/a/b/c/d",
    "a closed directory with a link": (
        "mkdir -p .git/refs/a; ln -s $HOME/.netrc .git/refs/a/k; chmod 311 .git/refs/a"
    ),
    "a directory that can't be changed": (
        "mkdir -p .git/refs/a; ln -s $HOME/.netrc .git/refs/a/k; chmod 555 .git/refs/a"
    ),
}


@pytest.mark.parametrize("who", WHO[-1:])
@pytest.mark.parametrize("name", OF_GIT)
async def test_what_an_approved_git_command_leaves_in_a_git_directory_is_data(
    runner: Callable[[str], Runner], jail: Jail, name: str, who: str
) -> None:
    run = runner(who)
    before = _outside(jail)
    told = await run.run(OF_GIT[name], SandboxLevel.SESSION)
    found = (jail.workspace / ".git").rglob("*")
    odd = [path for path in found if path.is_symlink() or not (path.is_file() or path.is_dir())]
    assert [path for path in odd if ".disabled" not in str(path)] == [], told
    for path in (".git/commondir", ".git/config.worktree", ".git/remotes"):
        assert not (jail.workspace / path).exists()
    assert _outside(jail) == before


def _outside(jail: Jail) -> dict[str, str]:
    """What is outside the workspace, except for what the daemon keeps itself."""
    found = jail.state().items()
    return {path: text for path, text in found if not path.startswith(("home/w", "runtime"))}


async def test_what_a_commit_contains_is_checked_out_and_a_commit_itself_changes_nothing(
    runner: Callable[[str], Runner], jail: Jail
) -> None:
    jail.git("checkout", "-qb", "other")
    for name in (".vscode/tasks.json", "mise.toml", ".github/x"):
        (jail.workspace / name).parent.mkdir(exist_ok=True)
        (jail.workspace / name).write_text("committed\n")
    jail.git("add", "-f", ".vscode", "mise.toml", ".github")
    jail.git("commit", "-qm", "two")
    jail.git("checkout", "-q", "main")
    run = runner("root")
    assert "mise.toml" in await run.run("echo evil >mise.toml; git commit --allow-empty", SESSION)
    assert not (jail.workspace / "mise.toml").exists()
    run.git_use = "work_tree"
    assert await run.run("git checkout -q other", SESSION) == ""
    assert (jail.workspace / ".vscode" / "tasks.json").read_text() == "committed\n"
    assert await run.run("git checkout -q main && git merge -q other", SESSION) == ""
    assert (jail.workspace / "mise.toml").exists()
    run.git_use = "data"
    await run.run("echo evil >mise.toml; echo evil >.vscode/tasks.json", SESSION)
    assert (jail.workspace / "mise.toml").read_text() == "committed\n"
    assert (jail.workspace / ".vscode" / "tasks.json").read_text() == "committed\n"


SESSION: Final = SandboxLevel.SESSION


async def test_an_index_that_would_write_hooks_is_put_aside(
    runner: Callable[[str], Runner], jail: Jail
) -> None:
    run = runner("root")
    script = (
        "b=$(echo 'touch $W/ran' | git hash-object -w --stdin)\n"
        "git update-index --add --cacheinfo 100755,$b,-git/hooks/post-checkout\n"
        "\"$PYTHON\" - <<'E'\n"
        "import hashlib, pathlib\n"
        "index = pathlib.Path('.git/index')\n"
        "body = index.read_bytes()[:-20].replace(b'-git/hooks', b'.git/hooks')\n"
        "index.write_bytes(body + hashlib.sha1(body).digest())\n"
        "E\n"
    )
    told = await run.run(script, SandboxLevel.SESSION)
    assert "index" in told
    run.git("checkout", "--", ".")
    run.git("restore", ".")
    assert not (jail.workspace / ".git" / "hooks" / "post-checkout").exists()


async def test_closing_a_directory_reveals_no_secret_to_the_next_command(
    runner: Callable[[str], Runner], jail: Jail
) -> None:
    (jail.workspace / "config").mkdir()
    for name in ("config/a.env", "nested/b.env"):
        (jail.workspace / name).write_text("what-rules-protect")
    run = runner(WHO[-1])
    await run.run("chmod 311 config nested; mkdir -p x; mv config x/ 2>/dev/null")
    for level in (SandboxLevel.READ_ONLY, SandboxLevel.BUILD):
        await run.run(
            "chmod -R 755 config* nested* x*; cat */a.env */b.env config/a.env nested/b.env"
            " */*/a.env; git config --file nested/.git/config core.fsmonitor evil",
            level,
        )
    assert "what-rules-protect" not in jail.said
    (config,) = jail.workspace.glob("nested*/.git/config")
    assert "fsmonitor" not in config.read_text()


async def test_a_workspace_that_a_command_closed_is_searched(
    runner: Callable[[str], Runner], jail: Jail
) -> None:
    if WHO[-1] != "ordinary":
        pytest.skip("root can list any directory")
    told = await runner("ordinary").run("git init -q sub; chmod 311 .")
    assert "sub/.git" in told


def test_a_rename_follows_no_link_and_replaces_nothing(tmp_path: Path) -> None:
    root, out = tmp_path / "root", tmp_path / "out"
    for folder in (root / "a", out):
        folder.mkdir(parents=True)
    (out / ".envrc").touch()
    (root / "link").symlink_to(out)
    assert put_aside(root, root / "link" / ".envrc") == "link.disabled"
    assert (out / ".envrc").exists()
    (root / "a" / ".envrc").write_text("new")
    (root / "a" / ".envrc.disabled").write_text("old")
    name = put_aside(root, root / "a" / ".envrc")
    assert name.startswith(".envrc.disabled-")
    assert (root / "a" / ".envrc.disabled").read_text() == "old"
    assert (root / "a" / name).read_text() == "new"
    (root / "there").symlink_to("/nonexistent")
    put_aside(root, root / "there")
    assert (root / "there.disabled").is_symlink()


def test_the_next_daemon_puts_aside_what_a_killed_daemons_command_made(tmp_path: Path) -> None:
    workspace, records = tmp_path.resolve() / "w", tmp_path / "records"
    (workspace / ".vscode").mkdir(parents=True)
    watch = Watch(workspace, is_build=True, writable=(workspace,))
    holder = quarantine(watch, records, (), tuple, set(), print)
    holder.__enter__()
    for name in (".envrc", os.fsdecode(b".odd-\xff")):
        (workspace / name).touch()
    texts = finish_abandoned(records)
    assert ".envrc" in " ".join(texts)
    assert {path.name for path in workspace.iterdir()} == {
        ".vscode", ".envrc.disabled", os.fsdecode(b".odd-\xff.disabled"),
    }  # fmt: skip
    assert finish_abandoned(records) == []
    assert list(records.iterdir()) == []


def test_what_the_user_lets_commands_create_stays(tmp_path: Path) -> None:
    workspace = tmp_path.resolve()
    watch = Watch(
        workspace, is_build=True, writable=(workspace,), exempt=(workspace / ".generated",)
    )
    said: list[str] = []
    with quarantine(watch, None, (), tuple, set(), said.append):
        (workspace / ".generated").mkdir()
        (workspace / ".other").mkdir()
    assert {path.name for path in workspace.iterdir()} == {".generated", ".other.disabled"}
    assert len(said) == 1
