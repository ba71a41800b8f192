"""Trust in projects: bound to the content, persistent, and given only by the user."""

import os
from pathlib import Path

import pytest

from tiller_daemon.config import Configuration, ConfigurationError, TrustedProjects, TrustError
from tiller_daemon.config.projects import CONFIG_BYTES_MAX, CONFIG_TOO_LARGE, UNREADABLE, Project
from tiller_daemon.session.context.project_trust import untrusted_project_warning

BASE = Configuration(max_steps=100)
THEIRS = Configuration(max_steps=3)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    workspace = tmp_path.resolve() / "w"
    for name in (".tiller/config.toml", ".tiller/agents/a.md", ".tiller/commands/deep/c.md"):
        (workspace / name).parent.mkdir(parents=True, exist_ok=True)
        (workspace / name).write_text(name)
    return workspace


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "trusted.json"


def projects(file: Path) -> TrustedProjects:
    return TrustedProjects(file, lambda: BASE, lambda _: THEIRS)


def trusting(workspace: Path, file: Path) -> TrustedProjects:
    made = projects(file)
    made.trust(workspace, made.inspect(workspace).digest)
    return made


@pytest.mark.promise("B60")
def test_a_project_is_not_trusted_by_default_and_its_configuration_is_not_loaded(
    workspace: Path, file: Path
) -> None:
    def load(_: Path) -> Configuration:
        raise AssertionError

    made = TrustedProjects(file, lambda: BASE, load)
    found = made.inspect(workspace)
    assert not found.trusted
    assert found.files == (
        ".tiller/config.toml",
        ".tiller/agents/a.md",
        ".tiller/commands/deep/c.md",
    )
    assert made.configuration(workspace) is BASE


def test_too_large_a_configuration_can_not_be_trusted(workspace: Path, file: Path) -> None:
    config = workspace / ".tiller" / "config.toml"
    config.write_bytes(b"#" * CONFIG_BYTES_MAX)
    assert projects(file).inspect(workspace).digest
    config.write_bytes(b"#" * (CONFIG_BYTES_MAX + 1))
    found = projects(file).inspect(workspace)
    assert (found.digest, found.problem) == ("", CONFIG_TOO_LARGE)
    with pytest.raises(TrustError, match="larger than 64 KiB"):
        projects(file).trust(workspace, "")


def test_the_text_of_a_linked_configuration_matches_its_digest(workspace: Path, file: Path) -> None:
    assert projects(file).inspect(workspace).text == ".tiller/config.toml"
    config = workspace / ".tiller" / "config.toml"
    config.rename(workspace / "else.toml")
    config.symlink_to("../else.toml")
    assert projects(file).inspect(workspace).text == ".tiller/config.toml"


def test_trust_survives_a_restart(workspace: Path, file: Path) -> None:
    trusting(workspace, file)
    assert projects(file).inspect(workspace).trusted
    assert projects(file).configuration(workspace) is THEIRS
    assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "change",
    [
        lambda w: (w / ".tiller/config.toml").write_text("other"),
        lambda w: (w / ".tiller/config.toml").unlink(),
        lambda w: (w / ".tiller/agents/b.md").write_text(""),
        lambda w: (w / ".tiller/agents/a.md").rename(w / ".tiller/agents/b.md"),
        lambda w: (w / ".tiller/commands/deep/c.md").write_text(".tiller/commands/deep/c.mD"),
        lambda w: (w / ".tiller/agents/l.md").symlink_to("/etc/passwd"),
        lambda w: (w / ".tiller/hooks").mkdir() or (w / ".tiller/hooks/x").write_text(""),
        lambda w: (w / ".tiller/agents/n").mkdir() or (w / ".tiller/agents/n/x.md").write_text(""),
        lambda w: os.mkfifo(w / ".tiller/agents/fifo.md"),
        lambda w: (w / ".tiller/agents/l.md").symlink_to(w),
        lambda w: (w / ".tiller/agents/big.md").write_bytes(b"x" * (1 << 21)),
    ],
)
@pytest.mark.promise("B60")
def test_what_has_changed_is_not_trusted_any_more(workspace: Path, change, file: Path) -> None:
    made = trusting(workspace, file)
    change(workspace)
    assert not made.inspect(workspace).trusted
    assert made.configuration(workspace) is BASE


def test_undoing_a_change_restores_trust(workspace: Path, file: Path) -> None:
    made = trusting(workspace, file)
    before = (workspace / ".tiller/config.toml").read_bytes()
    (workspace / ".tiller/config.toml").write_text("other")
    (workspace / ".tiller/config.toml").write_bytes(before)
    assert made.inspect(workspace).trusted


@pytest.mark.promise("B60")
def test_where_a_link_leads_counts_too(workspace: Path, tmp_path: Path, file: Path) -> None:
    target = tmp_path / "elsewhere.md"
    target.write_text("harmless")
    (workspace / ".tiller/agents/l.md").symlink_to(target)
    made = trusting(workspace, file)
    target.write_text("obey")
    assert not made.inspect(workspace).trusted


@pytest.mark.promise("B60")
def test_trust_of_one_place_is_not_that_of_a_copy(
    workspace: Path, tmp_path: Path, file: Path
) -> None:
    made = trusting(workspace, file)
    copy = tmp_path / "copy"
    os.system(f"cp -r {workspace} {copy}")
    assert made.inspect(copy).digest == made.inspect(workspace).digest
    assert not made.inspect(copy).trusted


def test_a_link_to_a_workspace_is_the_workspace(
    workspace: Path, tmp_path: Path, file: Path
) -> None:
    made = trusting(workspace, file)
    (tmp_path / "link").symlink_to(workspace)
    assert made.inspect(tmp_path / "link").trusted


def test_only_what_was_shown_can_be_trusted(workspace: Path, file: Path) -> None:
    made = projects(file)
    digest = made.inspect(workspace).digest
    (workspace / ".tiller/config.toml").write_text("swapped")
    with pytest.raises(TrustError, match="review them again"):
        made.trust(workspace, digest)
    with pytest.raises(TrustError, match="review them again"):
        made.trust(workspace.parent, "")


def test_an_invalid_or_unreadable_project_can_not_be_trusted(workspace: Path, file: Path) -> None:
    def load(_: Path) -> Configuration:
        raise ConfigurationError("not_allowed", "line 1: mcp: a project may not set this")

    made = TrustedProjects(file, lambda: BASE, load)
    with pytest.raises(TrustError, match="a project may not set this"):
        made.trust(workspace, made.inspect(workspace).digest)
    os.mkfifo(workspace / ".tiller/agents/fifo")
    assert made.inspect(workspace).problem
    with pytest.raises(TrustError, match="can't be read"):
        made.trust(workspace, "x")


def test_trust_can_be_withdrawn_after_a_change(workspace: Path, file: Path) -> None:
    made = trusting(workspace, file)
    content = (workspace / ".tiller/config.toml").read_text()
    (workspace / ".tiller/config.toml").write_text("other")
    made.untrust(workspace)
    (workspace / ".tiller/config.toml").write_text(content)
    assert not made.inspect(workspace).trusted
    assert not projects(file).inspect(workspace).trusted


@pytest.mark.parametrize("text", ["", "{", '{"projects": 1}', '{"projects": {"/": 1}}', "\xff"])
def test_a_damaged_trust_file_trusts_no_project(workspace: Path, text: str, file: Path) -> None:
    file.write_text(text, encoding="latin-1")
    assert not projects(file).inspect(workspace).trusted


def test_a_workspace_without_the_folder_needs_no_trust(tmp_path: Path, file: Path) -> None:
    found = projects(file).inspect(tmp_path)
    assert (found.digest, found.files, found.trusted) == ("", (), False)


def test_other_files_in_the_folder_are_ignored(workspace: Path, file: Path) -> None:
    made = trusting(workspace, file)
    (workspace / ".tiller/notes.txt").write_text("")
    assert made.inspect(workspace).trusted


@pytest.mark.promise("B60")
def test_what_moves_from_one_file_to_the_next_changes_the_digest(
    workspace: Path, file: Path
) -> None:
    found: set[str] = set()
    for first, second in (("ab", ""), ("a", "b"), ("", "ab")):
        (workspace / ".tiller/agents/a.md").write_text(first)
        (workspace / ".tiller/agents/b.md").write_text(second)
        found.add(projects(file).inspect(workspace).digest)
    assert len(found) == 3


def test_a_link_to_a_directory_leaves_no_file_open(workspace: Path, file: Path) -> None:
    def lowest_descriptor() -> int:
        descriptor = os.dup(0)
        os.close(descriptor)
        return descriptor

    (workspace / ".tiller/agents/l").symlink_to(workspace)
    before = lowest_descriptor()
    assert projects(file).inspect(workspace).problem == UNREADABLE
    assert lowest_descriptor() == before


def test_no_configuration_takes_long_to_search_for_hooks() -> None:
    project = Project(Path("/w"), "digest", (".tiller/config.toml",), text="\n" * CONFIG_BYTES_MAX)
    assert "hooks" not in untrusted_project_warning(project)
    hooks = project._replace(text=project.text + ' [[ "hooks"]]')
    assert "the project's hooks do not run" in untrusted_project_warning(hooks)
