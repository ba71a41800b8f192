"""What a command sees of a home and of other places, and which workspaces are part of a home."""

import subprocess
from collections.abc import Generator
from pathlib import Path
from typing import Final

import pytest

from support.jail import MECHANISMS, WHO, Jail, Mechanism, jail_of, sandbox_for
from tiller_daemon.config import SandboxPolicy
from tiller_daemon.sandbox.base import (
    CommandSandbox,
    GitUse,
    SandboxProfile,
    SandboxSearchResult,
)
from tiller_daemon.sandbox.level import SandboxLevel
from tiller_daemon.sandbox.sandboxes import Sandboxes
from tiller_daemon.sandbox.scan import Scanner
from tiller_daemon.sandbox.seatbelt import Seatbelt

SECRETS: Final = (
    ".bash_history", ".zsh_history", ".python_history", ".config/github-copilot/hosts.json",
    ".cache/huggingface/token", ".m2/settings.xml", ".gradle/gradle.properties",
    ".config/pip/pip.conf", ".pip/pip.conf", ".composer/auth.json", ".bundle/config",
    ".nuget/NuGet/NuGet.Config", ".vercel/auth.json", ".netlify/config.json",
    ".config/stripe/config.toml", ".config/ngrok/ngrok.yml", ".config/hcloud/cli.toml",
    ".pulumi/credentials.json", ".terraformrc", ".config/uv/credentials",
    ".config/pypoetry/auth.toml",
    ".sentryclirc", ".snowflake/config.toml", ".dbt/profiles.yml", ".qwen/oauth_creds.json",
    ".factory/auth.json", ".config/crush/crush.json", ".config/goose/secrets.yaml",
    ".config/Cursor/User/globalStorage/state.vscdb", ".config/Code/User/settings.json",
    ".dockercfg", ".bitcoin/wallet.dat", ".electrum/wallets/w", ".config/solana/id.json",
    ".config/Bitwarden CLI/data.json", ".local/share/lpass/x", ".config/keepassxc/x.kdbx",
    ".config/age/key.txt", ".local/share/atuin/key", ".local/share/Trash/files/x",
    ".local/etc/x", "share/x", "etc/x", ".julia/secrets/x", ".subversion/auth/x", ".ssh/id_ed25519",
    ".aws/credentials", ".netrc", ".npmrc", ".pypirc", ".git-credentials",
    ".cargo/credentials.toml",
    ".config/gh/hosts.yml", ".kube/config", ".gnupg/secring.gpg", ".unheard-of/token",
    "Documents/letter", "other-project/.env",
)  # fmt: skip


@pytest.fixture
def jail() -> Generator[Jail]:
    with jail_of() as made:
        for name in SECRETS:
            path = made.home / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("a-secret")
            path.chmod(0o600)
        for name in ("neighbour/.ssh/id", "neighbour/notes", "data/set"):
            path = made.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("a-secret")
        yield made


@pytest.mark.parametrize("who", WHO)
@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize(
    "level", [SandboxLevel.READ_ONLY, SandboxLevel.BUILD, SandboxLevel.SESSION]
)
async def test_no_command_reads_a_secret_of_this_home_another_home_or_anywhere_else(
    jail: Jail, mechanism: Mechanism, who: str, level: SandboxLevel
) -> None:
    prefix = jail.as_user(who)
    found = sandbox_for(mechanism, prefix, jail.root)
    sandbox = jail.sandbox(found, level)
    await jail.run(
        sandbox,
        'cd "$HOME"; for f in $(find . -type f) ../neighbour/notes ../neighbour/.ssh/id'
        ' ../data/set; do cat "$f"; done; cat "$HOME"/.bash_history "$HOME"/.config/*/*;'
        ' grep -r a-secret "$HOME"',
    )
    assert "a-secret" not in jail.said


def made_in(home: Path, **environ: str) -> Sandboxes:
    found = SandboxSearchResult(Seatbelt("/usr/bin/sandbox-exec"))
    return Sandboxes(lambda: found, home, environ)


OF_HOME: Final = {
    "the home": ".",
    "above the home": "..",
    "the configuration": ".config",
    "a part of the configuration": ".config/nvim",
    "programs": ".local/bin",
    "keys": ".ssh",
    "a part of a shell": ".config/fish/functions",
    "services": ".config/systemd/user",
    "starters": ".config/autostart",
    "applications": ".local/share/applications",
    "a directory of PATH": "tools/bin",
    "below a directory of PATH": "tools/bin/sub",
    "what a link in the home leads to": "dotfiles",
    "what a link in the configuration leads to": "settings",
    "what a link leads into": "linked",
    "a link to the home": "to-home",
}


@pytest.mark.parametrize("name", OF_HOME)
def test_in_a_workspace_that_is_part_of_a_home_builds_ask_and_so_do_the_editing_tools(
    tmp_path: Path, name: str
) -> None:
    home = tmp_path.resolve() / "home"
    for folder in ("dotfiles", "settings/nvim", "linked/deep", "tools/bin/sub", ".config", "work"):
        (home / folder).mkdir(parents=True)
    (home / "dotfiles" / "bashrc").touch()
    (home / ".bashrc").symlink_to("dotfiles/bashrc")
    (home / ".config" / "nvim-lua").symlink_to("../settings/nvim")
    (home / ".tool").symlink_to(home / "linked" / "deep")
    (home / "to-home").symlink_to(".")
    place = home / OF_HOME[name]
    place.mkdir(parents=True, exist_ok=True)
    sandboxes = made_in(home, PATH=f"/usr/bin:{home}/tools/bin")
    assert sandboxes.problem_for_builds(place)
    assert (
        sandboxes.loosest_unasked(SandboxPolicy("workspace_write"), place) is SandboxLevel.READ_ONLY
    )
    assert sandboxes.is_executed(place, place.resolve() / "new")
    assert not sandboxes.problem_for_builds(home / "work")
    assert not sandboxes.is_executed(home / "work", home / "work" / "new")


@pytest.mark.parametrize(
    "name", [".bashrc", ".config/git/config", ".local/bin/x", ".ssh/authorized_keys", ".zshenv"]
)
def test_a_file_that_shells_execute_is_known_by_its_real_place(tmp_path: Path, name: str) -> None:
    home = tmp_path.resolve() / "home"
    (home / "work").mkdir(parents=True)
    assert made_in(home).is_executed(home / "work", home / name)


@pytest.mark.parametrize(
    ("name", "is_repository", "is_shown"),
    [
        ("lib/x", False, True),
        ("pyvenv.cfg", False, True),
        (".env", False, False),
        ("notes", False, False),
        ("secrets/key", False, False),
        (".git/config", True, False),
        ("lib/x", True, False),
        ("src/.env", True, False),
    ],
)
def test_beside_a_directory_of_path_only_parts_of_an_installation_are_seen(
    tmp_path: Path,
    name: str,
    is_repository: bool,  # noqa: FBT001
    is_shown: bool,  # noqa: FBT001
) -> None:
    home = tmp_path.resolve() / "home"
    project = home / "project"
    for folder in ("work", "project/bin"):
        (home / folder).mkdir(parents=True)
    if is_repository:
        (project / ".git").mkdir()
    path = project / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    sandboxes = made_in(home, PATH=f"{project}/bin")
    may = sandboxes.profile(SandboxLevel.READ_ONLY, SandboxPolicy(), home / "work", tmp_path)
    assert project / "bin" in may.visible
    assert any(map(path.is_relative_to, may.visible)) == is_shown


MONOREPO: Final = (
    "cat ../../.env", "p=..; cat $p/../.env", "p=..; cat $p/other/.env",
    "p=..; cat $p/../deploy.pem",
    "rg -uuu KEY $(git rev-parse --show-toplevel)", "git grep --no-index KEY -- :/",
    "grep -r KEY ../..", "find / -name .env -exec cat {} +", "cd ../..; cat .en*",
    "cat ../other/.e*",
    "tar cf - ../.. | grep -a KEY", "git -C ../.. diff --no-index /dev/null .env",
)  # fmt: skip


@pytest.mark.parametrize("who", WHO)
@pytest.mark.parametrize("level", [SandboxLevel.READ_ONLY, SandboxLevel.BUILD])
async def test_below_the_top_of_a_repository_its_secrets_are_hidden_too(
    jail: Jail, who: str, level: SandboxLevel
) -> None:
    top, place = jail.workspace, jail.workspace / "packages" / "app"
    place.mkdir(parents=True)
    (top / "packages" / "other").mkdir()
    for name in (".env", "packages/other/.env", "deploy.pem"):
        (top / name).write_text("KEY=hidden\n")
    prefix = jail.as_user(who)
    found = sandbox_for("bubblewrap", prefix, jail.root)
    with jail.eyes():
        sandboxes = Sandboxes(lambda: found, jail.home, {}, private=(jail.runtime,))
        assert sandboxes.shown_top(place) == top
        scan = Scanner(top, lambda name: name.endswith((".env", ".pem"))).scan()
        sandbox = sandboxes.make(
            level, SandboxPolicy("workspace_write"), place, jail.spill,
            found=scan, masked=scan.protected,
        )  # fmt: skip
    await jail.run(sandbox, "\n".join(f"({line})" for line in MONOREPO), place=place)
    assert "KEY=hidden" not in jail.said


async def test_below_the_top_of_a_repository_only_git_changes_what_is_beside_the_workspace(
    jail: Jail,
) -> None:
    place = jail.workspace / "packages" / "app"
    for name in ("packages/app/own", "packages/other/file"):
        (jail.workspace / name).parent.mkdir(parents=True, exist_ok=True)
        (jail.workspace / name).write_text("one\n")
    jail.git("add", "packages")
    jail.git("commit", "-qm", "two")
    found = sandbox_for("bubblewrap", [], jail.root)
    lines: dict[GitUse, str] = {
        "": "echo x >>../other/file",
        "data": "echo x >>../other/file",
        "work_tree": 'git checkout -q HEAD~1; echo x >>"$HOME/x"',
    }
    for use, script in lines.items():
        assert (jail.workspace / "packages" / "other" / "file").read_text() == "one\n"
        sandbox = jail.sandbox(found, SandboxLevel.SESSION, place=place, git_use=use)
        await jail.run(sandbox, script, place=place)
    assert not (jail.workspace / "packages" / "other").exists()
    assert jail.git("status", "--short", "--untracked-files=no") == ""
    assert not (jail.home / "x").exists()


async def test_allowed_commands_have_compiler_caches_unless_they_see_a_place_without_one(
    jail: Jail,
) -> None:
    found = sandbox_for("bubblewrap", [], jail.root)
    script = 'echo x >"$HOME/.cache/go-build/made"'
    for level in (SandboxLevel.SESSION, SandboxLevel.BUILD):
        assert await jail.run(jail.sandbox(found, level), script) == 0
    (jail.home / ".cache").mkdir(exist_ok=True)
    policy = SandboxPolicy("workspace_write", readable=(str(jail.home / ".cache"),))
    sandboxes = Sandboxes(lambda: found, jail.home, {}, private=(jail.runtime,))
    for level in (SandboxLevel.SESSION, SandboxLevel.BUILD):
        sandbox = sandboxes.make(level, policy, jail.workspace, jail.spill)
        assert await jail.run(sandbox, "echo ran") == 0
    assert jail.said == "ran\nran\n"
    assert not (jail.home / ".cache" / "go-build").exists()


async def test_npm_has_a_cache_of_its_own_to_download_with(jail: Jail) -> None:
    (jail.home / ".npm" / "_cacache").mkdir(parents=True)
    found = sandbox_for("bubblewrap", [], jail.root)
    script = 'ls "$HOME/.npm/_cacache"; echo x >"$HOME/.npm/_cacache/made"'
    for network in (True, True, False):
        sandbox = jail.sandbox(found, SandboxLevel.SESSION, network=network)
        assert (await jail.run(sandbox, script) == 0) == network
    assert jail.said.startswith("made\n")
    assert list((jail.home / ".npm" / "_cacache").iterdir()) == []


@pytest.mark.parametrize(
    ("output", "missed"),
    [
        ("cat: {0}/data/set: No such file or directory", "data/set"),
        ("FileNotFoundError: [Errno 2] No such file: '{0}/data/set'", "data/set"),
        ("error: can't open {0}/data/set.", "data/set"),
        ("no {0}/data/missing", None),
        ("no {0}", None),
        ("in {0}/home/w/file", None),
        ("fatal: {0}/home/.ssh/id", None),
        ("see https://example.com{0}/data/set", None),
        ("/tmp and /usr/bin/env and /dev/null", None),
        ("npm error Log files were not written to {0}/home/.npm/_logs", None),
    ],
)
def test_what_a_command_missed_is_known_by_its_output(
    jail: Jail, output: str, missed: str | None
) -> None:
    (jail.home / ".npm" / "_logs").mkdir(parents=True)
    may = SandboxProfile(
        jail.workspace, visible=(Path("/usr"),), writable=(jail.workspace,),
        hidden=(jail.home / ".ssh",),
    )  # fmt: skip
    sandbox = CommandSandbox(Seatbelt("x"), may, SandboxLevel.BUILD, [])
    wanted = jail.root / missed if missed else None
    assert sandbox.missed(output.format(jail.root)) == wanted


HARD_LINKED: Final = (
    ".git/config", ".git/hooks/pre-commit", ".git/HEAD", ".git/index", ".envrc", ".mcp.json",
    ".vscode/tasks.json", ".github/workflows/ci.yml", ".unheard-of", "opencode.json", "mise.toml",
    ".husky/pre-commit",
)  # fmt: skip


@pytest.mark.parametrize("name", HARD_LINKED)
def test_where_a_protected_file_has_another_name_builds_ask(jail: Jail, name: str) -> None:
    sandboxes = made_in(jail.home)
    path = jail.workspace / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    assert sandboxes.problem_for_builds(jail.workspace) == ""
    (jail.workspace / "other").hardlink_to(path)
    assert "hard link" in sandboxes.problem_for_builds(jail.workspace)


def test_a_common_directory_in_the_workspace_is_protected(jail: Jail) -> None:
    common = jail.workspace / "stored"
    subprocess.run(["git", "init", "-q", "--bare", common], check=True)
    (jail.workspace / ".git" / "commondir").write_text("../stored\n")
    may = made_in(jail.home).profile(
        SandboxLevel.BUILD, SandboxPolicy(), jail.workspace, jail.spill
    )
    assert common in may.read_only
