"""ARCHITECTURE.md and CONTRIBUTING.md name files that exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("client", "daemon", "docs", "protocol", "scripts", "tests")
FILE = re.compile(r"`(?:…/)?([\w./-]+\.(?:py|ts|lua|txt|json|md|toml))`")
OF_USERS = {"config.toml", "src/a.py"}


@pytest.mark.parametrize("page", ["ARCHITECTURE.md", "CONTRIBUTING.md"])
def test_a_page_for_contributors_names_files_that_exist(page: str) -> None:
    named = set(FILE.findall((ROOT / page).read_text(encoding="utf-8"))) - OF_USERS
    assert len(named) > 10
    files = [*ROOT.iterdir(), *(path for name in FOLDERS for path in (ROOT / name).rglob("*.*"))]
    paths = [f"/{path.relative_to(ROOT)}" for path in files if "node_modules" not in path.parts]
    assert {one for one in named if not any(path.endswith(f"/{one}") for path in paths)} == set()
