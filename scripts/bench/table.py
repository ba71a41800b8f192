"""Rows of figures, and the table in which they are printed."""

import statistics
import sys
from collections.abc import Sequence

from msgspec import Struct

HEADINGS = ("figure", "n", "median", "p99", "min", "max", "unit", "CPU each", "budget")


class Row(Struct, frozen=True):
    """One figure: every measured value, and the CPU time that each took.

    `budget` is the goal for the median, in the same unit.
    """

    name: str
    unit: str
    values: tuple[float, ...]
    cpu_ms: float | None = None
    budget: float | None = None


def print_rows(rows: Sequence[Row]) -> None:
    """Print the rows as aligned columns; `!` marks a median beyond its budget."""
    cells = [HEADINGS, *(_cells(row) for row in rows)]
    widths = [max(len(line[place]) for line in cells) for place in range(len(HEADINGS))]
    for line in cells:
        name, *rest = line
        numbers = (cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True))
        print(name.ljust(widths[0]), *numbers, sep="  ")
    sys.stdout.flush()


def slope(values: Sequence[float]) -> float:
    """Return the growth per place by the Theil-Sen estimator, which is the median of all slopes."""
    found = [
        (later - earlier) / (place - before)
        for before, earlier in enumerate(values)
        for place, later in enumerate(values[before + 1 :], before + 1)
    ]
    return statistics.median(found) if found else 0.0


def _cells(row: Row) -> tuple[str, ...]:
    ordered = sorted(row.values)
    median = statistics.median(ordered)
    late = row.budget is not None and median > row.budget
    p99 = _shown(_percentile(ordered, 0.99)) if len(ordered) > 4 else ""
    return (
        row.name,
        str(len(ordered)),
        _shown(median),
        p99,
        _shown(ordered[0]),
        _shown(ordered[-1]),
        row.unit,
        "" if row.cpu_ms is None else f"{_shown(row.cpu_ms)} ms",
        "" if row.budget is None else f"{_shown(row.budget)}{'!' if late else ''}",
    )


def _percentile(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, round(share * (len(ordered) - 1)))]


def _shown(value: float) -> str:
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) < 10 else f"{value:.1f}"
