"""Colours code line by line, as it arrives; a coloured line never changes.

Pygments colours whole texts. Here, its state is passed from line to line, so that the cost of a
line does not depend on the number of lines before it.
"""

from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase as fnmatch
from functools import lru_cache
from typing import Any

from tiller_client.rendering.layout import joined
from tiller_client.rendering.style import Row, Span

HELD_LINES_MAX = 200
"""Maximum number of lines of an open comment or string to read again with the next line."""

LEXERS_MAX = 64
"""Maximum number of cached lexers: finding a lexer takes milliseconds, and lexers have no state."""

LINE_CHARS_MAX = 2_000
"""Longest line to colour: longer ones are data or minified code, on which some lexers are slow."""

_ROLES = (
    ("Comment.Preproc", "keyword"),
    ("Comment", "comment"),
    ("Keyword.Type", "type"),
    ("Keyword", "keyword"),
    ("Operator.Word", "keyword"),
    ("Name.Builtin", "type"),
    ("Name.Class", "type"),
    ("Name.Exception", "type"),
    ("Name.Function", "name"),
    ("Name.Tag", "name"),
    ("Name.Attribute", "type"),
    ("Name.Decorator", "type"),
    ("Literal.String", "string"),
    ("Literal.Number", "number"),
    ("Generic.Deleted", "bad"),
    ("Generic.Inserted", "good"),
    ("Generic.Heading", "name"),
    ("Generic.Subheading", "name"),
)
"""Roles by the beginning of a token's type; the first match counts."""

_LONG_TOKENS = ("comment", "string")


class Highlighter:
    """Colours one piece of code, from its first line on."""

    def __init__(self, language: str = "", path: str = "") -> None:
        """Choose the lexer by the word after a fence or by the file name, if there is one."""
        self._lexer: Any = _lexer(language, path) if language or path else None
        self._stack = ["root"]
        self._held = ""
        self._held_lines = 0

    def line(self, text: str) -> Row:
        """Colour the next line, without its newline."""
        if self._lexer is None or len(text) > LINE_CHARS_MAX:
            return [Span(text)]
        source = f"{self._held}{text}\n"
        pieces, stack, is_open = self._tokens(source)
        row = _part(pieces, len(self._held), len(source) - 1)
        if is_open and self._held_lines < HELD_LINES_MAX:
            self._held, self._held_lines = source, self._held_lines + 1
        else:
            self._held, self._held_lines, self._stack = "", 0, stack
        return row

    def _tokens(self, source: str) -> tuple[list[tuple[int, str, str]], list[str], bool]:
        """Return tokens (position, role, text), the state after them, and whether the last is open.

        Many lexers recognise a comment of several lines only by its end, so an end is tried.
        """
        if "/*" in source:
            pieces, stack = self._lexed(f"{source}*/")
            at, role, text = pieces[-1] if pieces else (0, "", "")
            if role == "comment" and at + len(text) > len(source) and "\n" in text:
                return pieces, stack, True
        pieces, stack = self._lexed(source)
        _, role, text = pieces[-1] if pieces else (0, "", "")
        return pieces, stack, role in _LONG_TOKENS and "\n" in text[:-1]

    def _lexed(self, source: str) -> tuple[list[tuple[int, str, str]], list[str]]:
        lexer = self._lexer
        if not _has_plain_states(lexer):
            return list(_named(lexer.get_tokens_unprocessed(source))), ["root"]
        from pygments.lexer import ExtendedRegexLexer, LexerContext

        context = LexerContext(source, 0, list(self._stack))
        # This is the loop of `RegexLexer`, but its state can be passed in and read.
        try:
            loop: Any = ExtendedRegexLexer.get_tokens_unprocessed
            found = list(_named(loop(lexer, context=context)))
        except TypeError:  # a rule of this lexer accepts no context
            return list(_named(lexer.get_tokens_unprocessed(source))), ["root"]
        return found, list(context.stack)


def _has_plain_states(lexer: object) -> bool:
    """Whether a lexer's only memory is a stack of states."""
    from pygments.lexer import ExtendedRegexLexer, RegexLexer

    if isinstance(lexer, ExtendedRegexLexer):
        loop = ExtendedRegexLexer.get_tokens_unprocessed
        return type(lexer).get_tokens_unprocessed is loop
    return isinstance(lexer, RegexLexer)


@lru_cache(maxsize=LEXERS_MAX)
def _lexer(language: str, path: str) -> object:
    """The lexer for a language or a file; `None` if there is none.

    Pygments itself would look for plugins in all installed packages, which takes half a second.
    """
    from pygments import lexers

    find: Any = lexers
    known = [(names, patterns) for _, names, patterns, _ in find.get_all_lexers(plugins=False)]
    name = next((names[0] for names, _ in known if language in names), "")
    if not name:
        file = path.rpartition("/")[2] or f"code.{language}"
        ending = file.rpartition(".")[2].lower()
        matching = [names for names, patterns in known if any(fnmatch(file, p) for p in patterns)]
        # Several languages may share an ending: prefer the language with that name.
        matching.sort(key=lambda names: ending not in names)
        name = next((names[0] for names in matching if names), "")
    return find.get_lexer_by_name(name, stripnl=False, ensurenl=False) if name else None


def _named(tokens: Iterable[tuple[int, Any, str]]) -> Iterator[tuple[int, str, str]]:
    """Replace the types of tokens by roles."""
    for at, kind, text in tokens:
        name = str(kind).removeprefix("Token.")
        role = next((role for prefix, role in _ROLES if name.startswith(prefix)), "")
        yield at, role, text


def _part(pieces: Iterable[tuple[int, str, str]], begin: int, end: int) -> Row:
    """The spans of the tokens between two positions; neighbours with the same role are joined."""
    return joined(
        Span(text[max(0, begin - at) : max(0, end - at)], (role,) if role else ())
        for at, role, text in pieces
    )
