"""The faults that `scripts/soak/planted.py` plants still have a place in the code."""

import ast
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

pytestmark = pytest.mark.nightly

ROOT = Path(__file__).resolve().parents[1]

SOURCE = """\
class Queue:
    def put(self, one):
        if self._items.count >= LIMIT:
            return False
        self._items.append(
            one,  # the newest
        )
        return True

def put(self, one):
    if self._items.count >= LIMIT:
        return False
"""


@pytest.fixture(scope="module")
def soak() -> Iterator[ModuleType]:
    """The module `planted`, with those beside it."""
    sys.path.insert(0, str(ROOT / "scripts" / "soak"))
    try:
        yield importlib.import_module("planted")
    finally:
        sys.path.pop(0)


def planted(soak: ModuleType, old: str, new: str, function: str = "Queue.put") -> str:
    return soak.Fault("G12 the queue is bounded", "queue.py", function, old, new).plant(SOURCE)


def test_each_fault_finds_the_one_place_where_it_is_planted(soak: ModuleType) -> None:
    for fault in soak.FAULTS:
        whole = (ROOT / fault.file).read_text()
        broken = fault.plant(whole)
        assert ast.dump(ast.parse(broken)) != ast.dump(ast.parse(whole)), fault.breaks


def test_each_fault_names_a_test_that_is_there_or_says_why_none_can_find_it(
    soak: ModuleType,
) -> None:
    for fault in soak.FAULTS:
        assert bool(fault.found_by) != bool(fault.equivalent), fault.breaks
        file, _, name = fault.found_by.partition("::")
        if name:
            assert f"def {name}(" in (ROOT / file).read_text(), fault.found_by


def test_layout_and_names_do_not_matter(soak: ModuleType) -> None:
    broken = planted(soak, "A.append(B)\nreturn True", "A.insert(0, B)\nreturn A")
    assert "        self._items.insert(0, one)\n        return self._items\n" in broken


def test_only_the_named_function_is_changed(soak: ModuleType) -> None:
    broken = planted(soak, "A.count >= B", "A.count > B")
    assert broken == SOURCE.replace(">=", ">", 1)


@pytest.mark.parametrize(
    ("old", "function", "problem"),
    [
        ("A.count > B", "Queue.put", "0 places match"),
        ("return A", "Queue.put", "0 places match"),
        ("one", "Queue.put", "2 places match"),
        ("A.count >= B", "Queue.take", "there is no such function"),
    ],
)
def test_a_place_that_is_gone_is_named(
    soak: ModuleType, old: str, function: str, problem: str
) -> None:
    with pytest.raises(LookupError, match=rf"in queue\.py:{function}: {problem}"):
        planted(soak, old, "pass", function)
