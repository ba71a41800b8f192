"""A home for each test, with a daemon that `tiller` starts and that ends with the test."""

from collections.abc import Callable, Generator
from contextlib import ExitStack
from pathlib import Path

import pytest

from e2e.peers.home import Home, git
from support.peers import aimock, aimock_process, llama, llmock, llmock_process

__all__ = ["aimock", "aimock_process", "llama", "llmock", "llmock_process"]


@pytest.fixture
def new_home(tmp_path_factory: pytest.TempPathFactory) -> Generator[Callable[..., Home]]:
    """Yield a function that makes a home from the text of its `config.toml` and more variables."""
    with ExitStack() as stack:

        def make(config: str = "", **variables: str) -> Home:
            made = Home(tmp_path_factory.mktemp("h"), config, variables)
            stack.callback(made.close)
            return made

        yield make


@pytest.fixture
def project(workspace: Path) -> Path:
    """A git repository with a wrong function and a greeting."""
    (workspace / "add.py").write_text("def add(a, b):\n    return a - b\n")
    git(workspace, "add", ".")
    git(workspace, "commit", "--quiet", "--message", "Add")
    return workspace
