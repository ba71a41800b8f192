"""Every behaviour and every guarantee has a test that carries its handle, as B17 or G4, by name."""

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]

BEHAVIOURS = {*range(1, 50), *range(51, 55), *range(56, 60)}
GUARANTEES = set(range(1, 15))
SHOWN_OVER_THE_WIRE = set(range(1, 49))

NOT_BUILT: dict[str, str] = {}
"""Handles without a test, each with the reason; one that has a test may not stand here."""


def _handles(directory: Path) -> set[str]:
    """The handles in the names of the tests below a directory; a name may carry several."""
    found: set[str] = set()
    for file in directory.rglob("test_*.py"):
        for name in re.findall(r"^(?:async )?def (test_\w+)", file.read_text(), re.MULTILINE):
            found.update(word for word in name.split("_") if re.fullmatch(r"[bg]\d+", word))
    return found


def test_every_behaviour_and_guarantee_has_a_test_of_its_name() -> None:
    wanted = {f"b{number}" for number in BEHAVIOURS} | {f"g{number}" for number in GUARANTEES}
    found = _handles(TESTS)
    assert sorted(wanted - found - set(NOT_BUILT)) == [], "no test carries these in its name"
    assert sorted(set(NOT_BUILT) & found) == [], "built by now: take it out of NOT_BUILT"


def test_every_behaviour_of_a_session_is_shown_by_a_real_daemon() -> None:
    wanted = {f"b{number}" for number in SHOWN_OVER_THE_WIRE}
    found = _handles(TESTS / "e2e")
    assert sorted(wanted - found - set(NOT_BUILT)) == [], "no test here shows these"
