"""The page of conformance cites only promises and tests that exist."""

import ast
import re
from pathlib import Path

TESTS = Path(__file__).parent
DOCS = TESTS.parent / "docs"

ROW = re.compile(
    r"^\| (?P<behaviour>[^|]+) \| (?P<here>[^|]+) \| (?P<shown>[^|]*)\|$", re.MULTILINE
)
KINDS = ("yes", "differs: ", "no: ")


def _rows() -> list[re.Match[str]]:
    rows = ROW.finditer((DOCS / "conformance.md").read_text())
    return [row for row in rows if row["behaviour"] not in ("Behaviour", "---")]


def _exists(entry: str) -> bool:
    """Whether a handle has a promise, or a file or a test is there."""
    if re.fullmatch(r"[BGT][0-9]+", entry):
        return f"- **{entry}** " in (DOCS / "guarantees.md").read_text()
    name, _, test = entry.strip("`").partition("::")
    file = TESTS / name
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return file.is_file() and (
        not test
        or any(
            isinstance(node, functions) and node.name == test
            for node in ast.parse(file.read_text()).body
        )
    )


def test_every_behaviour_says_what_it_is_and_what_is_done_is_shown() -> None:
    rows = _rows()
    wrong = [row[0] for row in rows if not row["here"].startswith(KINDS)]
    unshown = [row[0] for row in rows if not row["shown"].strip() and row["here"][:3] != "no:"]
    assert (wrong, unshown) == ([], [])
    assert len(rows) > 200


def test_everything_that_is_cited_exists() -> None:
    cited = {
        entry
        for row in _rows()
        if row["shown"].strip()
        for entry in row["shown"].strip().split(", ")
    }
    assert [entry for entry in sorted(cited) if not _exists(entry)] == []


def test_the_sums_are_right() -> None:
    text = (DOCS / "conformance.md").read_text()
    kinds = [row["here"].partition(":")[0] for row in _rows()]
    sums = tuple(kinds.count(kind) for kind in ("yes", "differs", "no"))
    assert (
        f"Of {len(kinds)} behaviours, {sums[0]} are as described, {sums[1]} differ, "
        f"and {sums[2]} are left out." in text
    )
