"""`tiller trust` shows exactly what it makes the daemon trust."""

from pathlib import Path

import pytest

from tiller_client.errors import TillerError, UsageError
from tiller_client.verbs.trust import is_agreed
from tiller_daemon.config.projects import TrustedProjects
from tiller_daemon.config.schema import Configuration
from tiller_protocol.answers import ProjectResult


def seen_by_the_daemon(workspace: Path) -> ProjectResult:
    """What the daemon finds in a workspace now."""
    projects = TrustedProjects(workspace / "trust", Configuration, lambda _: Configuration())
    found = projects.inspect(workspace)
    return ProjectResult(str(found.workspace), found.digest, found.files, found.trusted)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A workspace with an agent, and with links to it, to elsewhere and to nothing."""
    agents = tmp_path / ".tiller" / "agents"
    agents.mkdir(parents=True)
    (agents / "a.md").write_bytes(b"\xffa kind word\r\n")
    (agents / "b.md").symlink_to("a.md")
    (agents / "c.md").symlink_to("nowhere")
    return tmp_path


def test_what_is_shown_has_the_digest_of_the_daemon(
    project: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UsageError, match="stdin is not a terminal"):  # the question comes last
        is_agreed(seen_by_the_daemon(project))
    shown = capfd.readouterr().out
    assert "a kind word" in shown
    assert "b.md, a link to a.md" in shown
    assert "c.md, a link to nowhere" in shown


@pytest.mark.parametrize("name", ["a.md", "b.md", "c.md"])
def test_files_that_change_before_they_are_shown_are_not_trusted(project: Path, name: str) -> None:
    before = seen_by_the_daemon(project)
    path = project / ".tiller" / "agents" / name
    path.unlink()
    if name == "c.md":
        path.symlink_to("elsewhere")
    else:
        path.write_bytes(b"something else\n")
    with pytest.raises(TillerError, match="changed while they were read"):
        is_agreed(before)
