"""From text and queries of people to what the full-text index takes, and back. Pure.

The tokenizer of SQLite makes a word of letters that follow each other. Scripts without blanks
between words would become words of whole sentences, so each of their characters gets a separator
behind it, in texts and in queries. A query of two such characters then finds them side by side.
"""

import re

SEPARATOR = "\x1f"
"""Stands behind each character of a script without blanks."""

BEGIN, END = "\x02", "\x03"
"""Around each match in an excerpt."""

PIECE_CHARS_MAX = 240
"""Maximum number of characters of a piece of an excerpt: encoded data makes long words."""

_OWN = str.maketrans("", "", f"\x00{SEPARATOR}{BEGIN}{END}")
"""Removes the characters that have a meaning here, which are invisible to people anyway."""

_UNSPACED = re.compile(
    "([\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uac00-\ud7af\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff])"
)
"""Thai, Lao, Burmese, Khmer, Japanese and Chinese; and Korean, whose particles follow the word."""

_TERM = re.compile(r'"([^"]*)(?:"|$)(\*?)|([^\s"]+)')

_BLANKS = re.compile(r"\s+")


def indexed(text: str) -> str:
    """The form in which a text is indexed."""
    return _UNSPACED.sub(rf"\1{SEPARATOR}", text.translate(_OWN))


def original(text: str) -> str:
    """The text that was `indexed`."""
    return text.replace(SEPARATOR, "")


def match_expression(query: str) -> str:
    """A query as an expression for `MATCH`; empty if it contains no word. Every text is valid."""
    terms: list[str] = []
    for phrase, star, word in _TERM.findall(query):
        text = indexed(phrase or word)
        if any(map(str.isalnum, text)):
            begins = star or (word.endswith("*") and "*")
            terms.append(f'"{text}"{begins or ""}')
    return " AND ".join(terms)


def pieces(excerpt: str) -> tuple[str, ...]:
    """An excerpt with `BEGIN` and `END`, in pieces that are in turn outside and inside a match."""
    text = _BLANKS.sub(" ", original(excerpt))
    found = tuple(re.split(f"[{BEGIN}{END}]", text))
    return (_tail(found[0]), *map(_head, found[1:]))


def _head(piece: str) -> str:
    return piece if len(piece) <= PIECE_CHARS_MAX else piece[:PIECE_CHARS_MAX] + "…"


def _tail(piece: str) -> str:
    return piece if len(piece) <= PIECE_CHARS_MAX else "…" + piece[-PIECE_CHARS_MAX:]
