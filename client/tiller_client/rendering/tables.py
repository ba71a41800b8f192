"""Lays out tables: as columns if they fit, else row by row as `heading: value`."""

from itertools import zip_longest
from typing import TYPE_CHECKING

from tiller_client.rendering.inline import spans
from tiller_client.rendering.layout import lines_of, row_cells, wrapped
from tiller_client.rendering.style import Row, Span, Theme

if TYPE_CHECKING:
    from markdown_it.tree import SyntaxTreeNode

COLUMN_CELLS_MIN = 8
"""Narrowest column whose text is broken; a table with narrower ones is shown row by row."""

_Cell = tuple[Row, str]
"""The text of a cell, and its alignment."""


def table_rows(node: "SyntaxTreeNode", width: int, theme: Theme) -> list[Row]:
    """The rows of a table."""
    table = [
        [_cell(cell, theme, heading=part.type == "thead") for cell in line.children]
        for part in node.children
        for line in part.children
    ]
    natural = [max(row_cells(cell[0]) for cell in column) for column in zip(*table, strict=True)]
    room = width - 3 * (len(natural) - 1)
    least = [min(columns, COLUMN_CELLS_MIN) for columns in natural]
    if sum(least) > room:
        return _records(table, width)
    columns = _fitted(natural, least, room)
    rule = "─┼─".join("─" * column for column in columns)
    rows: list[Row] = []
    for at, line in enumerate(table):
        rows += _line_rows(line, columns)
        if at == 0:
            rows.append([Span(rule, ("muted",))])
    return rows


def _cell(node: "SyntaxTreeNode", theme: Theme, *, heading: bool) -> _Cell:
    text = lines_of(spans(node, theme, ("bold",) if heading else ()))[0]
    return text, str(node.attrs.get("style", "")).removeprefix("text-align:")


def _fitted(natural: list[int], least: list[int], room: int) -> list[int]:
    """Reduce the widths of columns to fit into `room`; the widest columns lose most."""
    ceiling = max(natural, default=0)
    while sum(fitted := _below(natural, least, ceiling)) > room:
        ceiling -= 1
    return fitted


def _below(natural: list[int], least: list[int], ceiling: int) -> list[int]:
    return [max(low, min(wide, ceiling)) for wide, low in zip(natural, least, strict=True)]


def _line_rows(line: list[_Cell], columns: list[int]) -> list[Row]:
    cells = [wrapped(cell[0], column) for cell, column in zip(line, columns, strict=True)]
    rows: list[Row] = []
    for texts in zip_longest(*cells, fillvalue=[]):
        row: Row = []
        for number, (text, column) in enumerate(zip(texts, columns, strict=True)):
            free = max(0, column - row_cells(text))
            before = {"right": free, "center": free // 2}.get(line[number][1], 0)
            row += [Span(" │ ", ("muted",))] if number else []
            row += [Span(" " * before), *text, Span(" " * (free - before))]
        rows.append(row)
    return rows


def _records(table: list[list[_Cell]], width: int) -> list[Row]:
    """Render each row of a table as lines `heading: value`, with a blank line between rows."""
    head, *lines = table
    rows: list[Row] = []
    for at, line in enumerate(lines or [head]):
        rows += [[]] if at else []
        for name, cell in zip(head, line, strict=True):
            label = [*name[0], Span(": ")] if lines and name[0] else []
            rows += wrapped([*label, *cell[0]], width)
    return rows
