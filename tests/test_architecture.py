"""Pages name files and Python objects that exist, and the protocol needs few libraries."""

import ast
import pkgutil
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("client", "daemon", "docs", "protocol", "scripts", "tests")
FILE = re.compile(r"`(?:…/)?([\w./-]+\.(?:py|ts|lua|txt|json|md|toml))`")
PYTHON = re.compile(r"`(tiller_\w+(?:\.\w+)+)`")
OF_USERS = {"config.toml", "src/a.py"}


@pytest.mark.parametrize("page", ["ARCHITECTURE.md", "CONTRIBUTING.md"])
def test_a_page_for_contributors_names_files_that_exist(page: str) -> None:
    named = set(FILE.findall((ROOT / page).read_text(encoding="utf-8"))) - OF_USERS
    assert len(named) > 10
    files = [*ROOT.iterdir(), *(path for name in FOLDERS for path in (ROOT / name).rglob("*.*"))]
    paths = [f"/{path.relative_to(ROOT)}" for path in files if "node_modules" not in path.parts]
    assert {one for one in named if not any(path.endswith(f"/{one}") for path in paths)} == set()


def test_the_page_for_authors_of_frontends_names_what_can_be_imported() -> None:
    named = set(PYTHON.findall((ROOT / "docs/protocol.md").read_text(encoding="utf-8")))
    assert len(named) >= 5
    for name in named:
        assert pkgutil.resolve_name(name)


def test_the_protocol_needs_msgspec_only() -> None:
    imported = set[str]()
    for file in (ROOT / "protocol/tiller_protocol").glob("**/*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                imported |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                imported.add(node.module or "")
    libraries = {name.split(".")[0] for name in imported} - sys.stdlib_module_names
    assert libraries == {"msgspec", "tiller_protocol"}
