"""Each promise of docs/guarantees.md, such as B17 or G4, has a test that is marked with it."""

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent
PAGE = ROOT / "docs" / "guarantees.md"

HANDLE = r"[GBT][1-9][0-9]?"
CITING = ("tests", "daemon", "protocol", "client", "scripts", "docs")
SHOWN_OVER_THE_WIRE = {f"B{number}" for number in range(1, 49)}

pytestmark = pytest.mark.nightly


def _marked(directory: Path) -> set[str]:
    """Return the handles in the markers of the tests below a directory."""
    found: set[str] = set()
    for file in directory.rglob("test_*.py"):
        for handles in re.findall(r"mark\.promise\(([^)]+)\)", file.read_text()):
            found.update(re.findall(HANDLE, handles))
    return found


def _promises() -> set[str]:
    """Return the handles on the page."""
    handles = re.findall(rf"^- \*\*({HANDLE})\*\* (?=\S)", PAGE.read_text(), re.MULTILINE)
    assert len(handles) == len(set(handles)), "a handle stands on the page twice"
    return set(handles)


def test_every_promise_has_a_marked_test() -> None:
    assert _promises() ^ _marked(TESTS) == set()


def test_every_behaviour_of_a_session_is_shown_by_a_real_daemon() -> None:
    assert SHOWN_OVER_THE_WIRE - _marked(TESTS / "e2e") == set()


def test_every_handle_that_is_cited_is_explained_on_the_page() -> None:
    explained = _promises()
    unexplained: dict[str, str] = {}
    for directory in CITING:
        for file in sorted((ROOT / directory).rglob("*")):
            if file.suffix in {".py", ".md"} and file != PAGE:
                cited = re.findall(rf"(?<![\w-]){HANDLE}\b", file.read_text())
                unexplained |= {handle: file.name for handle in cited if handle not in explained}
    assert unexplained == {}, f"cited, but not in {PAGE.name}"
