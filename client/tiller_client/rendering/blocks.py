"""Renders Markdown blocks as rows: paragraphs, headings, lists, quotes, code, tables.

`markdown` decides which blocks there are; `inline` renders the text in them.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from tiller_client.rendering import tables
from tiller_client.rendering.code import Highlighter
from tiller_client.rendering.inline import spans
from tiller_client.rendering.layout import folded, row_cells, wrapped
from tiller_client.rendering.style import Row, Span, Theme

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_core import StateCore
    from markdown_it.tree import SyntaxTreeNode

NESTED_COLUMNS_MIN = 12
"""Narrowest block to indent further, however deeply it is nested."""

TASK_CHARS = 4
"""The length of `[x] ` at the beginning of an item."""

INLINE_CHARS_MAX = 8_000
"""Longest paragraph whose marks are rendered: the cost of matching marks is quadratic."""

RULE_COLUMNS_MAX = 200
"""Longest rule between paragraphs, as text for files has no width."""

_BULLETS = "•◦▪"


class Piece(NamedTuple):
    """A unit that can be shown separately: a top-level block, or an item of a top-level list."""

    node: "SyntaxTreeNode"
    number: int | None = None
    """The item's number in a numbered list."""
    follows: bool = False
    """Whether the previous piece is an item of the same list, without a blank line in between."""

    @property
    def begin(self) -> int:
        """The number of its first line."""
        return _begin(self.node)


class Continued(NamedTuple):
    """Tells that the first list in a text continues a list whose first items were shown before."""

    number: int | None
    """The number of the next item."""
    after_blank: bool
    """Whether a blank line precedes the next item."""


def parsed(source: str) -> "SyntaxTreeNode":
    """Parse a text into blocks.

    HTML is treated as text, and so are link definitions: a definition may come long after its link,
    which can't be changed any more.
    """
    from markdown_it.tree import SyntaxTreeNode

    return SyntaxTreeNode(parser().parse(source))


@lru_cache(maxsize=1)
def parser() -> "MarkdownIt":
    """The parser for all texts. The first call imports it, which takes longer than a frame."""
    from markdown_it import MarkdownIt

    made = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
    made.validateLink = lambda url: url != ""  # `Theme.can_link` decides which links may be opened
    made.core.ruler.at("inline", _parse_inline)
    return made.disable(["reference", "html_block", "html_inline"])


def pieces(root: "SyntaxTreeNode", continued: Continued | None = None) -> list[Piece]:
    """The pieces of a parsed text, in order."""
    found: list[Piece] = []
    for block in root.children:
        if block.type in ("bullet_list", "ordered_list"):
            found += _items(block, None if found else continued)
        else:
            found.append(Piece(block))
    return found


def after(piece: Piece, following: Piece) -> Continued:
    """How a list that was cut between these two items continues."""
    return Continued(following.number, _end(piece.node) < following.begin)


def piece_rows(piece: Piece, width: int, theme: Theme) -> list[Row]:
    """The rows of a piece, without blank lines around them."""
    if piece.node.type == "list_item":
        return _item_rows(piece, width, theme, 0)
    return _block_rows(piece.node, width, theme, 0)


def fence_row(info: str) -> Row:
    """The first or last row of a code block."""
    return [Span(f"```{info}", ("muted",))]


def language(info: str) -> str:
    """The language named after a fence, such as `py` in `py title="a.py"`."""
    return info.split(maxsplit=1)[0].lower() if info.split() else ""


def _parse_inline(state: "StateCore") -> None:
    from markdown_it.token import Token

    for token in state.tokens:
        if token.type != "inline":
            continue
        token.children = []
        if len(token.content) <= INLINE_CHARS_MAX:
            state.md.inline.parse(token.content, state.md, state.env, token.children)
        else:
            token.children.append(Token("text", "", 0, content=token.content))


def _items(block: "SyntaxTreeNode", continued: Continued | None = None) -> Iterator[Piece]:
    number = None
    if block.type == "ordered_list":
        number = int(block.attrs.get("start", 1))
        if continued and continued.number is not None:
            number = continued.number
    follows = continued is not None and not continued.after_blank
    for at, item in enumerate(block.children):
        if at:
            follows = _end(block.children[at - 1]) >= _begin(item)
        yield Piece(item, None if number is None else number + at, follows)


def _block_rows(node: "SyntaxTreeNode", width: int, theme: Theme, depth: int) -> list[Row]:
    match node.type:
        case "heading":
            level = int(node.tag.removeprefix("h"))
            roles = ("bold", "heading", "underline") if level == 1 else ("bold", "heading")
            mark = [Span(f"{'#' * level} ")] if theme.kind == "none" else []
            return wrapped([*mark, *spans(node, theme, roles)], width)
        case "bullet_list" | "ordered_list":
            return [
                row
                for piece in _items(node)
                for row in (
                    *([] if piece.follows or piece.node is node.children[0] else [[]]),
                    *_item_rows(piece, width, theme, depth),
                )
            ]
        case "blockquote":
            bar = [Span("│ ", ("muted",))]
            return _hung(node.children, bar, bar, width, theme, depth)
        case "fence":
            return _fence_rows(node, width)
        case "code_block":
            lines = node.content.removesuffix("\n").split("\n")
            return [
                row for line in lines for row in folded([Span(f"    {line}", ("code",))], width)
            ]
        case "table":
            return tables.table_rows(node, width, theme)
        case "hr":
            return [[Span("─" * min(width, RULE_COLUMNS_MAX), ("muted",))]]
        case _:
            return wrapped(spans(node, theme), width)


def _fence_rows(node: "SyntaxTreeNode", width: int) -> list[Row]:
    info = node.info.strip()
    highlighter = Highlighter(language(info))
    lines = node.content.removesuffix("\n").split("\n") if node.content else []
    code = [row for line in lines for row in folded(highlighter.line(line), width)]
    return [*folded(fence_row(info), width), *code, fence_row("")]


def _item_rows(piece: Piece, width: int, theme: Theme, depth: int) -> list[Row]:
    if piece.number is not None:
        text = f"{piece.number}. "
    else:
        text = f"{_BULLETS[min(depth, len(_BULLETS) - 1)]} "
    marker = [Span(text, ("muted",))]
    if (done := _task_state(piece.node)) is not None:
        box = "☑ " if done else "☐ "
        marker = [Span(box, ("good",) if done else ("muted",))]
    rest = [Span(" " * row_cells(marker))]
    return _hung(piece.node.children, marker, rest, width, theme, depth + 1)


def _task_state(item: "SyntaxTreeNode") -> bool | None:
    """Return whether an item's task is done, and remove its mark; `None` if it has no task."""
    text = item
    while text.children and text.children[0].type in ("paragraph", "inline", "text"):
        text = text.children[0]
    if text.type != "text" or text.token is None:
        return None
    mark = text.content[:TASK_CHARS].lower()
    if mark not in ("[ ] ", "[x] "):
        return None
    text.token.content = text.content[TASK_CHARS:]
    return mark == "[x] "


def _hung(
    nodes: list["SyntaxTreeNode"], first: Row, rest: Row, width: int, theme: Theme, depth: int
) -> list[Row]:
    """The rows of blocks, with the mark `first` before the first row and `rest` before others."""
    inner = width - row_cells(first)
    is_deep = inner < NESTED_COLUMNS_MIN
    rows: list[Row] = []
    for at, node in enumerate(nodes):
        if at and _end(nodes[at - 1]) < _begin(node):
            rows.append([])
        rows += _block_rows(node, width if is_deep else inner, theme, depth)
    if is_deep:
        return [list(first), *rows]
    return [[*(rest if at else first), *row] for at, row in enumerate(rows or [[]])]


def _begin(node: "SyntaxTreeNode") -> int:
    return node.map[0] if node.map else 0


def _end(node: "SyntaxTreeNode") -> int:
    """The number of the line after a block, not counting blank lines at its end."""
    with_lines = [child for child in node.children if child.map]
    return _end(with_lines[-1]) if with_lines else (node.map[1] if node.map else 0)
