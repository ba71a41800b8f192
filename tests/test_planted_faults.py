"""The faults that `scripts/soak/planted.py` plants still have a place in the code."""

import importlib
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def test_each_fault_finds_the_one_place_where_it_is_planted() -> None:
    sys.path.insert(0, str(ROOT / "scripts" / "soak"))
    try:
        faults = importlib.import_module("planted").FAULTS
    finally:
        sys.path.pop(0)
    places = {fault.breaks: (ROOT / fault.file).read_text().count(fault.old) for fault in faults}
    assert {breaks: count for breaks, count in places.items() if count != 1} == {}
