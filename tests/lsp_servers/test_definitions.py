"""Which server handles a file, and that no program of a repository is ever used."""

from pathlib import Path

import pytest

from tiller_daemon.config import LanguageServer
from tiller_daemon.config.language_servers import KNOWN, RUNS_THE_REPOSITORY
from tiller_daemon.lsp.definitions import find_servers, list_definitions


def install(directory: Path, *names: str) -> str:
    directory.mkdir(parents=True, exist_ok=True)
    for name in names:
        (directory / name).write_text("#!/bin/sh\n")
        (directory / name).chmod(0o755)
    return str(directory)


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of the home for installed programs."""
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path / ".local" / "bin"


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    made = tmp_path / "repository" / "part"
    made.mkdir(parents=True)
    (made.parent / ".git").mkdir()
    return made


def names(file: Path, workspace: Path, search: str, **configured: LanguageServer) -> list[str]:
    matches = find_servers(list_definitions(configured), file, workspace, search)
    return [one.definition.name for one in matches]


def test_the_first_one_of_a_language_is_used(workspace: Path, tools: Path) -> None:
    search = install(tools, "ruff", "ty")
    assert names(workspace / "a.py", workspace, search) == ["ty"]
    assert names(workspace / "a.ts", workspace, search) == []
    assert names(workspace / "README", workspace, search) == []


def test_all_configured_servers_are_used_and_no_other(workspace: Path, tools: Path) -> None:
    search = install(tools, "ruff", "ty", "basedpyright-langserver")
    chosen = {"ruff": LanguageServer(), "basedpyright": LanguageServer()}
    assert names(workspace / "a.py", workspace, search, **chosen) == ["ruff", "basedpyright"]


def test_a_disabled_server_is_not_used(workspace: Path, tools: Path) -> None:
    search = install(tools, "ruff", "ty")
    off = LanguageServer(enabled=False)
    assert names(workspace / "a.py", workspace, search, ty=off) == ["ruff"]
    assert names(workspace / "a.py", workspace, search, ty=off, ruff=off) == []


@pytest.mark.parametrize("place", ["part/.venv/bin", "part/node_modules/.bin", ".venv/bin"])
def test_no_program_of_the_repository_is_taken(workspace: Path, tools: Path, place: str) -> None:
    """Though it stands first in the search path: the daemon may have been started in there."""
    inside = install(workspace.parent / place, "ty", "ruff", "tsc")
    outside = install(tools, "ruff")
    assert names(workspace / "a.py", workspace, inside) == []
    (match,) = find_servers(
        list_definitions({}), workspace / "a.py", workspace, f"{inside}:{outside}:."
    )
    assert match.program == f"{outside}/ruff"


def test_neither_a_link_into_the_repository_nor_one_out_of_it_is_taken(
    workspace: Path, tools: Path
) -> None:
    outside = install(tools, "real")
    install(workspace, "evil")
    (tools / "ty").symlink_to(workspace / "evil")
    (workspace / "ruff").symlink_to(tools / "real")
    assert names(workspace / "a.py", workspace, f"{outside}:{workspace}") == []


def test_a_program_named_by_path_is_used(workspace: Path) -> None:
    inside = install(workspace, "ty")
    chosen = LanguageServer(command=(f"{inside}/ty", "server"))
    assert names(workspace / "a.py", workspace, "", ty=chosen) == ["ty"]


def test_a_server_that_runs_code_of_the_repository_must_be_configured(
    workspace: Path, tools: Path
) -> None:
    programs = [KNOWN[name].command[0] for name in RUNS_THE_REPOSITORY]  # pyright: ignore[reportOptionalSubscript]
    search = install(tools, *programs)
    for end in (".py", ".rs", ".go", ".ts"):
        assert names(workspace / f"a{end}", workspace, search) == []
    chosen = {"rust-analyzer": LanguageServer()}
    assert names(workspace / "a.rs", workspace, search, **chosen) == ["rust-analyzer"]


def test_absent_fields_are_those_of_the_built_in_server(workspace: Path, tools: Path) -> None:
    search = install(tools, "ty")
    chosen = {"ty": LanguageServer(files={".pyx": "cython"}, settings={"a": 1})}
    assert names(workspace / "a.py", workspace, search, **chosen) == []
    (match,) = find_servers(list_definitions(chosen), workspace / "a.pyx", workspace, search)
    assert match.definition.command == ("ty", "server")
    assert match.definition.language_of(Path("a.pyx")) == "cython"


def test_a_server_is_started_for_the_nearest_directory_with_a_marker(
    workspace: Path, tools: Path
) -> None:
    search = install(tools, "ruff")
    inner = workspace / "packages" / "one"
    (inner / "source").mkdir(parents=True)
    (inner / "pyproject.toml").touch()
    (workspace.parent / "pyproject.toml").touch()
    definitions = list_definitions({})

    def root(file: str) -> Path:
        (match,) = find_servers(definitions, workspace / file, workspace, search)
        return match.root

    assert root("packages/one/source/a.py") == inner
    assert root("packages/a.py") == workspace, "never above the workspace"
