"""Each handle of a promise, such as B17 or G4, has a test with its name and a line in the docs."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent
PAGE = ROOT / "docs" / "guarantees.md"

HANDLE = r"[GBT][1-9][0-9]?"
CITING = ("tests", "daemon", "protocol", "client", "scripts", "docs")

BEHAVIOURS = {*range(1, 50), *range(51, 55), *range(56, 60)}
GUARANTEES = set(range(1, 15))
SHOWN_OVER_THE_WIRE = set(range(1, 49))

NOT_BUILT: dict[str, str] = {}
"""Handles without a test, each with the reason; no handle with a test may be listed."""


def _handles(directory: Path) -> set[str]:
    """Return the handles in the names of the tests below a directory; a name may have several."""
    found: set[str] = set()
    for file in directory.rglob("test_*.py"):
        for name in re.findall(r"^(?:async )?def (test_\w+)", file.read_text(), re.MULTILINE):
            found.update(word for word in name.split("_") if re.fullmatch(r"[bg]\d+", word))
    return found


@cache
def _page() -> dict[str, list[str]]:
    """Return the handles on the page, each with the tests listed below its promise."""
    sections = re.split(rf"^- \*\*({HANDLE})\*\* (?=\S)", PAGE.read_text(), flags=re.MULTILINE)
    named = [re.findall(r"^  - `(.+)`$", text, re.MULTILINE) for text in sections[2::2]]
    assert len(set(sections[1::2])) == len(named), "a handle stands on the page twice"
    return dict(zip(sections[1::2], named, strict=True))


@cache
def _tests_of(file: Path) -> set[str]:
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in ast.parse(file.read_text()).body if isinstance(node, functions)}


def test_every_behaviour_and_guarantee_has_a_test_of_its_name() -> None:
    wanted = {f"b{number}" for number in BEHAVIOURS} | {f"g{number}" for number in GUARANTEES}
    found = _handles(TESTS)
    assert sorted(wanted - found - set(NOT_BUILT)) == [], "no test carries these in its name"
    assert sorted(set(NOT_BUILT) & found) == [], "built by now: take it out of NOT_BUILT"


def test_every_behaviour_of_a_session_is_shown_by_a_real_daemon() -> None:
    wanted = {f"b{number}" for number in SHOWN_OVER_THE_WIRE}
    found = _handles(TESTS / "e2e")
    assert sorted(wanted - found - set(NOT_BUILT)) == [], "no test here shows these"


def test_every_handle_that_is_cited_is_explained_on_the_page() -> None:
    explained = _page().keys()
    unexplained: dict[str, str] = {}
    for directory in CITING:
        for file in sorted((ROOT / directory).rglob("*")):
            if file.suffix in {".py", ".md"} and file != PAGE:
                cited = re.findall(rf"(?<![\w-]){HANDLE}\b", file.read_text())
                unexplained |= {handle: file.name for handle in cited if handle not in explained}
    assert unexplained == {}, f"cited, but not in {PAGE.name}"
    in_names = {handle.upper() for handle in _handles(TESTS)}
    assert sorted(in_names - explained) == [], f"in the name of a test, but not in {PAGE.name}"


@pytest.mark.parametrize("handle", _page())
def test_every_promise_names_tests_that_exist(handle: str) -> None:
    named = [test.partition("::") for test in _page()[handle]]
    assert named, "no test below the promise"
    missing = [
        f"{file}::{test}"
        for file, _, test in named
        if not (TESTS / file).is_file() or test not in _tests_of(TESTS / file)
    ]
    assert missing == []
