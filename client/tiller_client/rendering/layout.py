"""Breaks rows of spans into rows that fit; pure.

Words that fit into a line stay whole; scripts without spaces break anywhere.
"""

from collections.abc import Iterable

from tiller_client.rendering.style import Row, Span, safe, text_of
from tiller_client.rendering.text import cells
from tiller_client.rendering.wrap import pieces

COLUMNS_MIN = 2
"""Narrowest width for text: one wide character."""


def wrapped(row: Iterable[Span], width: int) -> list[Row]:
    """Break a row between words into rows of at most `width` columns; returns at least one row.

    A newline in a span begins a new row. Spaces are dropped at a break, but kept at the beginning.
    """
    rows: list[Row] = []
    for line in lines_of(row):
        rows += _wrapped_line(line, max(width, COLUMNS_MIN))
    return rows


def text_rows(text: str, width: int) -> list[str]:
    """Break a text between words into rows of at most `width` columns."""
    return [text_of(row) for row in wrapped([Span(text)], width)]


def folded(row: Iterable[Span], width: int) -> list[Row]:
    """Break a row after `width` columns, even within words, as needed for code."""
    return _filled([safe_span(span) for span in row], max(width, COLUMNS_MIN))


def hanging(mark: Row, text: Row, width: int) -> list[Row]:
    """Break a text after a mark between words, and indent the further rows to the text."""
    columns = row_cells(map(safe_span, mark))
    rows = wrapped(text, width - columns)
    return [[*([Span(" " * columns)] if at else mark), *row] for at, row in enumerate(rows)]


def indented(lines: Iterable[str], columns: int) -> list[str]:
    """Indent finished lines, except empty ones."""
    return [" " * columns + line if line else "" for line in lines]


def lines_of(row: Iterable[Span]) -> list[Row]:
    """Split a row at the newlines in its spans, and make the text safe."""
    lines: list[Row] = [[]]
    for span in row:
        for number, piece in enumerate(span.text.split("\n")):
            if number:
                lines.append([])
            if text := safe(piece):
                lines[-1].append(Span(text, span.roles, span.link))
    return lines


def safe_span(span: Span) -> Span:
    """Make a span's text safe, so that its columns can be counted."""
    return Span(safe(span.text), span.roles, span.link)


def row_cells(row: Iterable[Span]) -> int:
    """The number of columns of a row with safe text."""
    return sum(cells(span.text) for span in row)


def _wrapped_line(line: Row, width: int) -> list[Row]:
    rows: list[Row] = [[]]
    column = 0
    blanks: Row = []
    for word in _words(line):
        if word[0].text.isspace():
            blanks += word
            continue
        needed = row_cells(word)
        gap = row_cells(blanks)
        if column + gap + needed <= width:
            rows[-1] += blanks + word
            column += gap + needed
        else:
            if rows[-1] or needed > width:
                if not rows[-1]:
                    rows.pop()
                rows.extend(_filled(word, width))
            else:
                rows[-1] = word  # it replaces an indentation that leaves no room
            column = row_cells(rows[-1])
        blanks = []
    return [joined(row) for row in rows]


def _words(line: Row) -> Iterable[Row]:
    """Yield runs of spaces and words; a word may consist of several spans."""
    word: Row = []
    for span in line:
        for piece in pieces(span.text):
            wide = len(piece) == 1 and cells(piece) == 2
            apart = piece.isspace() or wide
            if word and (apart or word[-1].text.isspace() or cells(word[-1].text[-1]) == 2):
                yield word
                word = []
            word.append(Span(piece, span.roles, span.link))
    if word:
        yield word


def _filled(row: Row, width: int) -> list[Row]:
    """Split a row into rows that are filled with as many characters as fit."""
    rows: list[Row] = [[]]
    column = 0
    for span in row:
        if span.text.isascii() and column + len(span.text) <= width:
            rows[-1].append(span)
            column += len(span.text)
            continue
        begin = 0
        for at, character in enumerate(span.text):
            needed = cells(character)
            if column + needed > width:
                rows[-1].append(span._replace(text=span.text[begin:at]))
                rows.append([])
                begin, column = at, 0
            column += needed
        rows[-1].append(span._replace(text=span.text[begin:]))
    return [joined(row) for row in rows]


def joined(row: Iterable[Span]) -> Row:
    """Join neighbouring spans that look alike, and drop empty ones."""
    spans: Row = []
    for span in row:
        if spans and spans[-1].roles == span.roles and spans[-1].link == span.link:
            spans[-1] = Span(spans[-1].text + span.text, span.roles, span.link)
        elif span.text:
            spans.append(span)
    return spans
