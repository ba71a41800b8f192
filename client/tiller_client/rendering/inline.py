"""Converts the text in a Markdown block to spans: emphasis, code, links, images."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tiller_client.rendering.style import Row, Span, Theme, text_of

if TYPE_CHECKING:
    from markdown_it.tree import SyntaxTreeNode

_EMPHASIS = {"strong": "bold", "em": "italic", "s": "strike"}


def spans(node: "SyntaxTreeNode", theme: Theme, roles: tuple[str, ...] = ()) -> Row:
    """The spans of a block's text, all with `roles`; a line break is a newline in a span."""
    return [span for child in node.children for span in _spans(child, theme, roles)]


def _spans(node: "SyntaxTreeNode", theme: Theme, roles: tuple[str, ...]) -> Iterator[Span]:
    match node.type:
        case "softbreak" | "hardbreak":  # keep the line breaks that the model wrote
            yield Span("\n", roles)
        case "code_inline":
            code = node.content if theme.kind != "none" else f"`{node.content}`"
            yield Span(code, (*roles, "code"))
        case "strong" | "em":
            yield from spans(node, theme, (*roles, _EMPHASIS[node.type]))
        case "s":
            mark = [Span("~~", roles)] if theme.kind == "none" else []
            yield from (*mark, *spans(node, theme, (*roles, "strike")), *mark)
        case "link":
            inner = spans(node, theme, roles)
            yield from _linked(inner, str(node.attrs.get("href", "")), theme, roles)
        case "image":
            text = text_of(spans(node, theme))
            label = [Span(f"[image: {text}]" if text else "[image]", roles)]
            yield from _linked(label, str(node.attrs.get("src", "")), theme, roles)
        case "inline":
            yield from spans(node, theme, roles)
        case _:
            yield Span(node.content, roles)


def _linked(inner: Row, address: str, theme: Theme, roles: tuple[str, ...]) -> Iterator[Span]:
    """The text of a link, followed by its address if the address would not be visible otherwise.

    The address also follows a text that looks like another address and might deceive the reader.
    """
    text = text_of(inner)
    can_link = theme.can_link(address)
    for span in inner:
        link = address if can_link else ""
        yield Span(span.text, (*span.roles, "link", "underline"), link)
    is_same = text in (address, address.removeprefix("mailto:"))
    if address and not is_same and not (can_link and not _looks_like_address(text)):
        yield Span(f" ({address})", (*roles, "muted"))


def _looks_like_address(text: str) -> bool:
    return "://" in text or text.startswith("www.")
