"""Repositories and commands that lead the sandbox, the quarantine or git elsewhere."""

import os
import subprocess
from collections.abc import Generator
from pathlib import Path
from typing import Final

import pytest

from sandbox.test_quarantine import Runner
from support.jail import NOTES, SECRET, WHO, Jail, jail_of
from tiller_daemon.sandbox.git_repository import EXECUTED
from tiller_daemon.sandbox.level import SandboxLevel
from tiller_daemon.sandbox.quarantine import Watch, finish_abandoned, quarantine
from tiller_daemon.sandbox.scan import Scanner

BUILD, READ_ONLY, SESSION = SandboxLevel.BUILD, SandboxLevel.READ_ONLY, SandboxLevel.SESSION


@pytest.fixture
def jail() -> Generator[Jail]:
    with jail_of() as made:
        yield made


SETTINGS: Final = {
    "a work tree that is the keys": ("core.worktree", "{home}/.ssh"),
    "a work tree that is another project": ("core.worktree", "{home}/other"),
    "a work tree above": ("core.worktree", "../.."),
    "hooks above": ("core.hooksPath", "../.ssh"),
    "hooks above, by their whole path": ("core.hooksPath", "{home}/w/../.ssh"),
    "hooks through a link": ("core.hooksPath", "x/.ssh"),
    "hooks through the home": ("core.hooksPath", "~/.ssh"),
    "an included key": ("include.path", "../../.ssh/id"),
    "an included key through a link": ("include.path", "../x/.netrc"),
    "an included key on a branch": ("includeIf.onbranch:x.path", "../../.netrc"),
    "an included protected file": ("include.path", "../.env"),
    "attributes": ("core.attributesFile", "{home}/.ssh/id"),
    "hooks with a long name": ("core.hooksPath", "x" * 300),
}


@pytest.mark.parametrize("who", WHO[-1:])
@pytest.mark.parametrize("name", SETTINGS)
async def test_no_setting_of_a_repository_shows_a_command_anything(
    jail: Jail, name: str, who: str
) -> None:
    key, value = SETTINGS[name]
    (jail.workspace / "x").symlink_to("..")
    jail.git("config", key, value.format(home=jail.home))
    run = Runner(jail, who)
    for level in (READ_ONLY, BUILD, SESSION):
        await run.run(
            'cat "$HOME"/.ssh/id "$HOME"/.netrc "$HOME"/.aws/credentials "$HOME"/other/notes;'
            " cat x/.ssh/id x/.netrc; grep -r . ../.ssh ../other",
            level,
        )
        if level is not SESSION:
            await run.run("cat .env", level)
    assert SECRET not in jail.said
    assert NOTES not in jail.said
    assert "what-rules-protect" not in jail.said


LINKED: Final = {
    "to the home": ("x", "..", "x/q"),
    "to the keys": ("x", "../.ssh", "x/q"),
    "to what is above": ("x", "../..", "x/home"),
    "itself": ("x", "..", "x"),
    "deeper": ("a/x", "../..", "a/x/q"),
    "by its whole path": ("x", "{home}", "x/q"),
    "to a directory in it": ("x", "../other", "x/q/r"),
    "to the keys by a link": ("x", "..", "x/.ssh"),
    "to programs": ("x", "../.config", "x/git"),
    "in installed packages": ("node_modules/x", "../..", "node_modules/x/q"),
}


@pytest.mark.parametrize("who", WHO[-1:])
@pytest.mark.parametrize("name", LINKED)
async def test_no_gitlink_behind_a_link_opens_what_is_outside(
    jail: Jail, name: str, who: str
) -> None:
    link, target, gitlink = LINKED[name]
    head = jail.git("rev-parse", "HEAD").strip()
    jail.git("update-index", "--add", "--cacheinfo", f"160000,{head},{gitlink}")
    run = Runner(jail, who)
    before = jail.state()
    target = target.format(home=jail.home)
    await run.run(f"mkdir -p $(dirname {link}); ln -s {target} {link}")
    for level in (BUILD, SESSION):
        await run.run(
            f'echo evil >>"$HOME/.bashrc"; echo evil >>{link}/.bashrc; mkdir {link}/made;'
            f' cat {link}/.ssh/id {link}/id "$HOME/.ssh/id" {link}/notes',
            level,
        )
    after = jail.state()
    changed = {path for path in {*before, *after} if before.get(path) != after.get(path)}
    assert {
        path for path in changed if not path.startswith(("home/w", "runtime", "bwrap"))
    } == set()
    assert SECRET not in jail.said


REPLACED: Final = {
    "an inner link": "rm a; mkdir -p a/v; echo evil >a/v/tasks.json",
    "the directory at the end": "mv c c9; mkdir -p c/v; echo evil >c/v/tasks.json",
    "an inner link by another": "mkdir -p d/v; echo evil >d/v/tasks.json; rm a; ln -s d a",
}


@pytest.mark.parametrize("name", REPLACED)
async def test_no_link_on_the_way_to_what_is_executed_is_replaced(jail: Jail, name: str) -> None:
    w = jail.workspace
    (w / "c" / "v").mkdir(parents=True)
    (w / "c" / "v" / "tasks.json").write_text("before\n")
    (w / "a").symlink_to("c")
    (w / ".vscode").symlink_to("a/v")
    run = Runner(jail, "root")
    told = await run.run(REPLACED[name])
    place = w / ".vscode" / "tasks.json"
    assert not place.exists() or place.read_text() == "before\n", told
    assert place.exists() or ".vscode" in told


HOOKS: Final = {
    "a link for the directory": "mkdir s3; ln -s s3 scripts; echo evil >scripts/pre-commit",
    "a link above": "mkdir -p s3/hooks; ln -s s3 tools; echo evil >tools/hooks/pre-commit",
    "a directory": "mkdir -p scripts tools/hooks; echo evil | tee scripts/x >tools/hooks/x",
    "a moved directory": "mv kept k9; mkdir -p kept/hooks; echo evil >kept/hooks/pre-commit",
    "a file": "echo evil >scripts; echo evil >tools",
}


@pytest.mark.parametrize(
    "place",
    [
        "kept/hooks",
        *(pytest.param(one, marks=pytest.mark.nightly) for one in ("scripts", "tools/hooks")),
    ],
)
@pytest.mark.parametrize("name", HOOKS)
async def test_no_build_makes_or_replaces_a_directory_of_hooks(
    jail: Jail, name: str, place: str
) -> None:
    (jail.workspace / "kept" / "hooks").mkdir(parents=True)
    (jail.workspace / "kept" / "hooks" / "old").write_text("old")
    jail.git("config", "core.hooksPath", place)
    run = Runner(jail, "root")
    await run.run(HOOKS[name])
    hooks = jail.workspace / place
    assert not hooks.exists() or [path.name for path in hooks.iterdir()] == ["old"]


async def test_a_name_that_is_too_long_is_put_aside_under_a_shorter_one(jail: Jail) -> None:
    run = Runner(jail, WHO[-1])
    names = ("." + "x" * 254, "ü" * 120 + ".desktop", "d" * 255)
    told = await run.run(
        f"touch {names[0]} {names[1]}; git init -q {names[2]}; chmod 311 {names[2]}"
    )
    assert not any((jail.workspace / name).exists() for name in names[:2]), told
    assert not (jail.workspace / names[2] / ".git" / "HEAD").exists()


async def test_a_name_that_is_no_text_is_told_as_text(jail: Jail) -> None:
    told = await Runner(jail, "root").run("touch $'.odd\\xff' $'.e\\033[2J'")
    assert ".odd\ufffd" in told
    told.encode()


async def test_a_moved_repository_does_not_stop_the_search(jail: Jail) -> None:
    run = Runner(jail, "root")
    await run.run("mv nested n2; echo ../evil >.git/commondir; mkdir .git/remotes", SESSION)
    assert not (jail.workspace / ".git" / "commondir").exists()
    assert not (jail.workspace / ".git" / "remotes").exists()


async def test_an_allowed_line_makes_no_other_spelling_of_what_git_executes(jail: Jail) -> None:
    await Runner(jail, "root").run("git status; echo ../evil >.git/COMMONDIR", SESSION)
    assert not (jail.workspace / ".git" / "COMMONDIR").exists()


async def test_an_allowed_commit_makes_no_repository(jail: Jail) -> None:
    run = Runner(jail, "root")
    assert "sub/.git" in await run.run("git init -q sub; git commit -q --allow-empty -m x", SESSION)
    assert not (jail.workspace / "sub" / ".git").exists()


@pytest.mark.parametrize("path", ["../evil", "a/../../evil", "./evil", "nested/.git/hooks/x"])
async def test_an_index_that_would_write_elsewhere_is_put_aside(jail: Jail, path: str) -> None:
    plain = path.replace(".", "-")
    script = (
        "b=$(echo evil | git hash-object -w --stdin)\n"
        f"git update-index --add --cacheinfo 100644,$b,{plain}\n"
        "\"$PYTHON\" - <<'E'\n"
        "import hashlib, pathlib\n"
        "index = pathlib.Path('.git/index')\n"
        f"body = index.read_bytes()[:-20].replace({plain!r}.encode(), {path!r}.encode())\n"
        "index.write_bytes(body + hashlib.sha1(body).digest())\n"
        "E\n"
    )
    run = Runner(jail, "root")
    assert "index" in await run.run(script, SESSION)
    run.git("checkout", "--", ".")
    assert not (jail.home / "evil").exists()


def test_the_next_daemon_finds_the_repositories_that_a_killed_daemons_build_made(
    tmp_path: Path,
) -> None:
    workspace, records = tmp_path.resolve() / "w", tmp_path / "records"
    for name in ("old", "sub"):
        (workspace / name).mkdir(parents=True)
    subprocess.run(["git", "init", "-q", workspace / "old"], check=True)
    nested = Scanner(workspace, lambda _: False).scan().repositories
    watch = Watch(workspace, is_build=True, writable=(workspace,))
    running = quarantine(watch, records, nested, tuple, set(), print)
    running.__enter__()
    subprocess.run(["git", "init", "-q", workspace / "sub"], check=True)
    finish_abandoned(records)
    assert (workspace / "old" / ".git").exists()
    assert not os.path.lexists(workspace / "sub" / ".git")


async def test_an_allowed_line_adds_a_work_tree_and_changes_none_that_exists(jail: Jail) -> None:
    run = Runner(jail, "root")
    run.git_use = "work_tree"
    told = await run.run("git worktree add -q trees/one && git -C trees/one status", SESSION)
    assert told == ""
    assert (jail.workspace / "trees" / "one" / "file").exists()
    jail.git("-C", "trees/one", "status")
    script = (
        "echo ../../evil >.git/worktrees/one/commondir; rm -rf .git/worktrees/one/commondir;"
        " mv .git/worktrees w; mkdir -p .git/worktrees/one; echo evil >.git/worktrees/one/commondir"
    )
    await run.run(script, SESSION)
    commondir = jail.workspace / ".git/worktrees/one/commondir"
    assert not commondir.exists() or commondir.read_text() == "../..\n"
    await run.run("git worktree add -q trees/two", SESSION)
    assert (jail.workspace / "trees" / "two" / "file").exists()


async def test_an_allowed_line_commits_in_a_work_tree_and_in_a_submodule(jail: Jail) -> None:
    w, upstream = jail.workspace, jail.root / "upstream"
    jail.git("clone", "-q", "--bare", ".", str(upstream))
    jail.git("worktree", "add", "-q", "trees/one")
    jail.git("-c", "protocol.file.allow=always", "submodule", "add", "-q", str(upstream), "mod")
    run = Runner(jail, "root")
    for place in ("trees/one", "mod"):
        told = await run.run(
            f"cd {place} && echo more >>file && git commit -qam 'in {place}'", SESSION
        )
        assert told == ""
        assert jail.git("-C", place, "log", "-1", "--format=%s") == f"in {place}\n"
    for own in (".git/worktrees/one", ".git/modules/mod"):
        before = {name: _content(w / own / name) for name in EXECUTED}
        names = " ".join((*EXECUTED, "COMMONDIR", "Hooks", "anything"))
        await run.run(
            f"git status; cd {own} || exit; for n in {names}; do echo evil >$n; ln -s /tmp $n;"
            f" mkdir -p $n && echo evil >$n/evil; done; mv ../{Path(own).name} ../x",
            SESSION,
        )
        assert {name: _content(w / own / name) for name in EXECUTED} == before
        assert not any((w / own / name).exists() for name in ("COMMONDIR", "Hooks", "anything"))


def _content(path: Path) -> object:
    if path.is_dir():
        return sorted(one.name for one in path.iterdir())
    return path.read_text() if path.exists() else None


async def test_an_index_of_a_work_tree_that_would_write_elsewhere_is_put_aside(jail: Jail) -> None:
    jail.git("worktree", "add", "-q", "trees/one")
    script = (
        "cd trees/one; b=$(echo evil | git hash-object -w --stdin)\n"
        "git update-index --add --cacheinfo 100644,$b,--/evil\n"
        "\"$PYTHON\" - <<'E'\n"
        "import hashlib, pathlib\n"
        "index = pathlib.Path('../../.git/worktrees/one/index')\n"
        "body = index.read_bytes()[:-20].replace(b'--/evil', b'../evil')\n"
        "index.write_bytes(body + hashlib.sha1(body).digest())\n"
        "E\n"
    )
    run = Runner(jail, "root")
    assert "index" in await run.run(script, SESSION)
    run.git("checkout", "--", ".", directory=jail.workspace / "trees" / "one")
    assert not (jail.workspace / "trees" / "evil").exists()
