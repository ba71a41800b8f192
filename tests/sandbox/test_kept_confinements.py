"""A confinement is worked out once and kept until something changes; every change must count."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from support.file_clock import wait_for_tick
from tiller_daemon.config import SandboxPolicy
from tiller_daemon.sandbox.bubblewrap import Bubblewrap
from tiller_daemon.sandbox.confinement import CommandSandbox, Confinement, SandboxSearchResult
from tiller_daemon.sandbox.confiner import Confiner
from tiller_daemon.sandbox.daemon_registry import register, registered
from tiller_daemon.sandbox.enclosure import Enclosure
from tiller_daemon.sandbox.scan import Scanner

ENCLOSED = (Enclosure.READ_ONLY, Enclosure.BUILD, Enclosure.SESSION)


class Place:
    """A home with a repository as the workspace, and a confiner that keeps what it works out."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.work = home / "work"
        self.spill = home / "spill"
        for name in (".config", "spill", "mounted", "elsewhere", "log", "work/src"):
            (home / name).mkdir(parents=True)
        git(self.work, "init", "-q")
        register(home, [home / "log", home / "state"])
        self.policy = SandboxPolicy(
            writable=(str(home / "mounted"),), readable=(str(home / ".npmrc"),)
        )
        self.sandbox = Bubblewrap("bwrap")
        found = SandboxSearchResult(self.sandbox)
        self.confiner = Confiner(lambda: found, home, {}, current_private=lambda: registered(home))

    def kept(self, enclosure: Enclosure) -> Confinement:
        """What the confiner returns for a command."""
        confined = self.confiner.confined(enclosure, self.policy, self.work, self.spill)
        assert confined
        return confined.confinement

    def fresh(self, enclosure: Enclosure) -> Confinement:
        """The same, worked out anew."""
        return self.confiner.confinement(enclosure, self.policy, self.work, self.spill)


def git(place: Path, *words: str) -> None:
    subprocess.run(["git", *words], cwd=place, check=True)


def words_of(sandbox: Bubblewrap, confinement: Confinement, enclosure: Enclosure) -> list[str]:
    """The options that do not differ from command to command."""
    command = CommandSandbox(sandbox, confinement, enclosure, [])
    with command.wrap(["true"]) as wrapped:
        words = list(wrapped.arguments)
    return words[: words.index("--seccomp") if "--seccomp" in words else None]


def replace_by_link(path: Path, target: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    path.symlink_to(target)


CHANGES: dict[str, Callable[[Place], object]] = {
    "a secret appears": lambda at: (at.home / ".netrc").write_text("x"),
    "a folder with secrets appears": lambda at: (at.home / ".ssh").mkdir(),
    "a secret appears in a folder": lambda at: (at.home / ".config/gh").mkdir(),
    "a folder of secrets appears as a link": lambda at: (at.home / ".aws").symlink_to(
        at.home / "elsewhere"
    ),
    "a folder on the way becomes a link": lambda at: replace_by_link(
        at.home / ".config", at.home / "elsewhere"
    ),
    "a daemon is registered": lambda at: register(at.home, [at.home / "elsewhere"]),
    "a registered directory appears": lambda at: (at.home / "state").mkdir(),
    "what may be read appears": lambda at: (at.home / ".npmrc").write_text("x"),
    "what may be written is removed": lambda at: (at.home / "mounted").rmdir(),
    "what may be written becomes a link": lambda at: replace_by_link(
        at.home / "mounted", at.home / "elsewhere"
    ),
    "the spill directory is removed": lambda at: shutil.rmtree(at.spill),
    "programs appear": lambda at: (at.home / ".local/lib").mkdir(parents=True),
    "a protected folder appears": lambda at: (at.work / ".vscode").mkdir(),
    "a protected file appears": lambda at: (at.work / ".envrc").write_text("x"),
    "a protected folder appears as a link": lambda at: (at.work / ".claude").symlink_to(
        at.home / "elsewhere"
    ),
    "hooks are configured elsewhere": lambda at: git(at.work, "config", "core.hooksPath", "hooks"),
    "a program is configured": lambda at: git(at.work, "config", "core.pager", "src"),
    "the repository is broken": lambda at: (at.work / ".git/HEAD").unlink(),
    "the repository is moved away": lambda at: (at.work / ".git").rename(at.home / "old"),
    "the repository becomes a link": lambda at: (
        (at.work / ".git").rename(at.home / "old"),
        (at.work / ".git").symlink_to(at.home / "old"),
    ),
    "the repository becomes a file": lambda at: (
        (at.work / ".git").rename(at.home / "old"),
        (at.work / ".git").write_text(f"gitdir: {at.home / 'old'}\n"),
    ),
    "the repository is around the workspace": lambda at: (
        shutil.rmtree(at.work / ".git"),
        git(at.home, "init", "-q"),
    ),
}


@pytest.fixture
def at(tmp_path: Path) -> Place:
    return Place(tmp_path.resolve() / "home")


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_a_kept_confinement_counts_until_something_changes(
    at: Place, change: Callable[[Place], object]
) -> None:
    for enclosure in ENCLOSED:
        words_of(at.sandbox, at.kept(enclosure), enclosure)
    wait_for_tick(at.home)
    before = [at.kept(enclosure) for enclosure in ENCLOSED]
    for enclosure in ENCLOSED:
        words_of(at.sandbox, at.kept(enclosure), enclosure)
    wait_for_tick(at.home)
    assert all(a is b for a, b in zip(before, map(at.kept, ENCLOSED), strict=True))
    change(at)
    for enclosure in ENCLOSED:
        kept = at.kept(enclosure)
        assert kept == at.fresh(enclosure)
        if enclosure is not Enclosure.SESSION:
            made_anew = words_of(Bubblewrap("bwrap"), kept, enclosure)
            assert words_of(at.sandbox, kept, enclosure) == made_anew


def test_the_options_for_an_equal_confinement_follow_what_a_path_has_become(at: Place) -> None:
    """A hidden file is covered by another kind of mount than a hidden directory."""
    secret = at.home / ".netrc"
    secret.write_text("x")
    confinement = Confinement(at.work, writable=(at.home,), hidden=(secret,))
    wait_for_tick(at.home)
    before = words_of(at.sandbox, confinement, Enclosure.READ_ONLY)
    assert before == words_of(at.sandbox, confinement, Enclosure.READ_ONLY)
    secret.unlink()
    secret.mkdir()
    after = words_of(at.sandbox, confinement, Enclosure.READ_ONLY)
    assert after == words_of(Bubblewrap("bwrap"), confinement, Enclosure.READ_ONLY) != before


def test_a_workspace_is_not_scanned_again_until_a_directory_changes(at: Place) -> None:
    scanner = Scanner(at.work, lambda name: name.endswith(".env"))
    assert scanner.scan_if_unchanged() is None
    wait_for_tick(at.work)
    first = scanner.scan()
    assert scanner.scan_if_unchanged() is first
    (at.work / "src/.env").write_text("x")
    assert scanner.scan_if_unchanged() is None
    assert scanner.scan().protected == (at.work / "src/.env",)


def test_a_directory_that_has_just_changed_is_scanned_again(at: Place) -> None:
    """Another change within the same tick of the clock would not show."""
    scanner = Scanner(at.work, lambda name: False)
    wait_for_tick(at.work)
    (at.work / "src/new").write_text("x")
    scanner.scan()
    assert scanner.scan_if_unchanged() is None


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every directory")
def test_a_workspace_with_an_unreadable_directory_is_always_scanned(at: Place) -> None:
    """Its mode can change without a trace in the directory above."""
    (at.work / "src").chmod(0)
    wait_for_tick(at.work)
    scanner = Scanner(at.work, lambda name: False)
    scanner.scan()
    assert scanner.scan_if_unchanged() is None
