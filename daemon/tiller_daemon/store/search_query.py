"""Converts texts and people's queries to the form that the full-text index takes, and back. Pure.

SQLite's tokenizer treats adjacent letters as one word. In scripts without blanks between words, a
whole sentence would be one word. So in texts and queries a separator follows each character of such
a script. A query of two such characters then finds them side by side.
"""

import re

SEPARATOR = "\x1f"
"""Follows each character of a script without blanks."""

BEGIN, END = "\x02", "\x03"
"""The characters around each match in an excerpt."""

PIECE_CHARS_MAX = 240
"""The most characters in a piece of an excerpt, because encoded data makes long words."""

_OWN = str.maketrans("", "", f"\x00{SEPARATOR}{BEGIN}{END}")
"""Removes the characters with a special meaning here, which people can't see anyway."""

_UNSPACED = re.compile(
    "([\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uac00-\ud7af\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff])"
)
"""Matches Thai, Lao, Burmese, Khmer, Japanese, Chinese, and Korean, which joins particles to
words."""

_TERM = re.compile(r'"([^"]*)(?:"|$)(\*?)|([^\s"]+)')

_BLANKS = re.compile(r"\s+")


def indexed(text: str) -> str:
    """Return the form in which a text is indexed."""
    return _UNSPACED.sub(rf"\1{SEPARATOR}", text.translate(_OWN))


def original(text: str) -> str:
    """Return the original of a text that was `indexed`."""
    return text.replace(SEPARATOR, "")


def match_expression(query: str) -> str:
    """Return a query, which may be any text, as an expression for `MATCH`; empty without words."""
    terms: list[str] = []
    for phrase, star, word in _TERM.findall(query):
        text = indexed(phrase or word)
        if any(map(str.isalnum, text)):
            begins = star or (word.endswith("*") and "*")
            terms.append(f'"{text}"{begins or ""}')
    return " AND ".join(terms)


def pieces(excerpt: str) -> tuple[str, ...]:
    """Split an excerpt into pieces that are alternately outside and inside a match."""
    text = _BLANKS.sub(" ", original(excerpt))
    found = tuple(re.split(f"[{BEGIN}{END}]", text))
    return (_tail(found[0]), *map(_head, found[1:]))


def _head(piece: str) -> str:
    return piece if len(piece) <= PIECE_CHARS_MAX else piece[:PIECE_CHARS_MAX] + "…"


def _tail(piece: str) -> str:
    return piece if len(piece) <= PIECE_CHARS_MAX else "…" + piece[-PIECE_CHARS_MAX:]
