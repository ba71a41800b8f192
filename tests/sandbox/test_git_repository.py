"""What git says about a workspace, and what therefore needs protection."""

import os
import subprocess
from pathlib import Path

import pytest

from tiller_daemon.sandbox.git_repository import find_git, read_index


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A repository with one commit, in a real directory."""
    place = tmp_path.resolve() / "place"
    git(tmp_path, "init", "-q", "-b", "main", str(place))
    git(place, "commit", "-q", "--allow-empty", "-m", "one")
    return place


def git(directory: Path, *arguments: str, data: bytes | None = None) -> str:
    named = ("-c", "user.name=t", "-c", "user.email=t@t", "-c", "protocol.file.allow=always")
    command = ["git", *named, *arguments]
    done = subprocess.run(command, cwd=directory, input=data, check=True, capture_output=True)
    return os.fsdecode(done.stdout)


def test_a_directory_without_repository_has_no_git(tmp_path: Path) -> None:
    assert find_git(tmp_path.resolve()) == ((None, (), (), ""))


def test_a_subdirectory_belongs_to_the_repository_above(place: Path) -> None:
    (place / "a" / "b").mkdir(parents=True)
    found = find_git(place / "a" / "b")
    assert (found.top, found.directories) == (place, (place / ".git",))


def test_a_work_tree_has_its_own_directory_and_the_common_one(place: Path) -> None:
    other = place.parent / "other"
    git(place, "worktree", "add", "-q", str(other))
    assert find_git(other).directories == (place / ".git", place / ".git/worktrees/other")


def test_a_git_directory_elsewhere_counts_only_if_it_names_the_work_tree(place: Path) -> None:
    separate = place.parent / "separate"
    git(place.parent, "init", "-q", f"--separate-git-dir={separate}.git", str(separate))
    assert find_git(separate).directories == ()
    git(separate, "config", "core.worktree", str(separate))
    assert find_git(separate).directories == (place.parent / "separate.git",)
    (stranger := place.parent / "stranger").mkdir()
    (stranger / ".git").write_text(f"gitdir: {place}/.git\n")
    assert find_git(stranger).directories == ()


FILES = {
    "hooks of the repository": (("core.hooksPath", "githooks"), "githooks"),
    "hooks deeper": (("core.hooksPath", "./.husky/_"), ".husky/_"),
    "an included file": (("include.path", "../shared.gitconfig"), "shared.gitconfig"),
    "a file that is included on a branch": (("includeIf.onbranch:x.path", "../x"), "x"),
    "a file that is included here": (("includeIf.gitdir:/.path", "../of-work"), "of-work"),
    "an included file that is missing": (("include.path", "../later"), "later"),
    "the configuration of a work tree": (("a.b", "c"), ".git/config.worktree"),
    "the configuration": (("a.b", "c"), ".git/config"),
    "the hooks": (("a.b", "c"), ".git/hooks"),
    "where the common directory is": (("a.b", "c"), ".git/commondir"),
    "submodules": (("a.b", "c"), ".git/modules"),
}


@pytest.mark.parametrize("name", FILES)
def test_what_git_executes_or_reads_as_configuration_is_known(place: Path, name: str) -> None:
    setting, path = FILES[name]
    (place / "shared.gitconfig").touch()
    git(place, "config", *setting)
    assert (place / path) in {Path(os.path.normpath(one)) for one in find_git(place).executed}


@pytest.mark.parametrize(
    "broken",
    [
        {"config": "[core"},
        {"config": "[include]\n\tpath = ../broken\n", "../broken": "["},
        {"config": "[core]\n\trepositoryformatversion = 99\n"},
        {"config": "[extensions]\n\tunheardOf = x\n[core]\n\trepositoryformatversion = 1\n"},
    ],
)
def test_where_git_can_not_tell_builds_have_a_problem(place: Path, broken: dict[str, str]) -> None:
    for name, text in broken.items():
        (place / ".git" / name).write_text(text)
    assert find_git(place).problem


def test_answers_follow_the_files(place: Path) -> None:
    assert not find_git(place / "sub").problem
    before = find_git(place).executed
    git(place, "config", "core.hooksPath", "hooks-of-mine")
    assert set(find_git(place).executed) - {*before} == {place / "hooks-of-mine"}


def test_a_repository_counts_as_soon_as_it_is_complete_or_repaired(tmp_path: Path) -> None:
    (place := tmp_path.resolve() / "later").mkdir()
    (place / ".git").mkdir()
    assert find_git(place).top is None
    git(place, "init", "-q")
    assert find_git(place).top == place
    config = place / ".git" / "config"
    text = config.read_text()
    config.write_text("[core")
    assert find_git(place).problem
    config.write_text(text)
    assert not find_git(place).problem


def test_gitlinks_are_known_wherever_they_are(place: Path) -> None:
    head = git(place, "rev-parse", "HEAD").strip()
    for name in ("vendor/lib", "node_modules/x", "with space", "ü", "a\nb"):
        git(place, "update-index", "--add", "--cacheinfo", f"160000,{head},{name}")
    links = {str(link.relative_to(place)) for link in read_index(find_git(place)).links}
    assert links == {"vendor/lib", "node_modules/x", "with space", "ü", "a\nb"}


@pytest.mark.parametrize(
    "path", [".git/hooks/pre-commit", "a/.git/config", ".GIT/config", "a/.Git", ".gIt/x/y"]
)
def test_an_index_that_would_write_to_a_git_directory_is_unsafe(place: Path, path: str) -> None:
    assert not read_index(find_git(place)).is_unsafe
    plain = path.replace(".g", "-g").replace(".G", "-G")
    blob = git(place, "hash-object", "-w", "--stdin", data=b"evil").strip()
    git(place, "update-index", "--add", "--cacheinfo", f"100755,{blob},{plain}")
    index = place / ".git" / "index"
    body = index.read_bytes()[:-20].replace(os.fsencode(plain), os.fsencode(path))
    # No checksum, as `index.skipHash` writes it.
    index.write_bytes(body + bytes(20))
    assert read_index(find_git(place)).is_unsafe


HOSTILE = {
    "core.fsmonitor": "touch ran; true",
    "core.pager": "touch ran",
    "core.sshCommand": "touch ran",
    "core.gitProxy": "touch ran",
    "core.editor": "touch ran",
    "core.askPass": "touch ran",
    "credential.helper": "!touch ran",
    "alias.rev-parse": "!touch ran",
    "alias.config": "!touch ran",
    "diff.external": "touch ran",
    "filter.x.process": "touch ran",
    "uploadpack.packObjectsHook": "touch ran",
}


@pytest.mark.parametrize("key", HOSTILE)
def test_asking_git_executes_nothing_that_a_repository_names(place: Path, key: str) -> None:
    git(place, "config", key, HOSTILE[key])
    read_index(find_git(place))
    assert not list(place.rglob("ran"))
