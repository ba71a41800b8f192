"""The words of a command line, and the names that a script may give values to. Pure.

How they are found in a text is in `shell_syntax`.
"""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple


def word_set(text: str) -> frozenset[str]:
    """The words of a table that is written as text."""
    return frozenset(text.split())


VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
"""What a shell takes for the name of a variable; before `=` anything else is a command."""

LOWER_NAME = re.compile(r"(?!(?:npm|pnpm|yarn|ac|auto)_)[a-z][a-z0-9_]*(?<!_proxy)\Z")
"""Names that no shell, no loader and no program gives a meaning."""

OWN_NAMES = word_set(
    """BASE BRANCH COMMIT COUNT DIR DIRS F FILE FILES HASH I LINE MSG N NAME NAMES OLD NEW OUT
    PATTERN PKG REF REPO RESULT ROOT SHA SRC START TAG TOTAL VERSION X Y"""
)
"""Names in capitals that people give to what only their own script reads."""

HARMLESS_VARIABLES = word_set(
    """CI NO_COLOR FORCE_COLOR CLICOLOR TERM COLUMNS LINES LC_ALL LANG LC_CTYPE TZ DEBUG VERBOSE
    RUST_BACKTRACE RUST_LOG IFS PYTHONDONTWRITEBYTECODE PYTHONUNBUFFERED NODE_ENV CGO_ENABLED"""
)
"""Variables that programs read and that make none of them run something else."""

NO_PAGER = frozenset({"GIT_PAGER", "PAGER"})
"""Variables that may be set to `cat` and to nothing else."""

TEST_OPERATORS = word_set("-e -f -d -s -r -w -x -L -h -z -n -b -p -S")
"""The operators that evaluate nothing: `-v` and others run what an index holds."""

NUMBER_OPERATORS = word_set("-eq -ne -lt -le -gt -ge")
"""They evaluate nothing within single brackets; within double ones they take expressions."""

_HEREDOC_END = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_NUMBERS = re.compile(r"\{\d{1,6}\.\.\d{1,6}\}", re.ASCII)
_ONE_BRACE = re.compile(r"([\w./*=-]*)\{([\w./*,-]*,[\w./*,-]*)\}([\w./*-]*)", re.ASCII)
_EXPANSION = re.compile(r"\s*\$(?:\w+|[?#@*!$-]|\{\w+\})", re.ASCII)
_TRIMMED = re.compile(
    r"\$\{\w+(?:(?::?[-+]|##?|%%?)[\w./*:@+,= -]*|:[0-9]+(?::[0-9]+)?)\}|\$\{#\w+\}", re.ASCII
)
"""Expansions that only cut or replace a value, by text that holds no sign of the shell."""

_ARITHMETIC = re.compile(r"\$\(\([0-9 +*/%()<>=&|^!~-]*\)\)")
"""Numbers and signs: the value of a name may be an expression that runs something."""


ANY_FILE = "any/.env"
"""Stands for a file of whatever name: for one that nobody is shown without a question."""


class Word(NamedTuple):
    """One word. `text` is its value if `fixed`, else its source; `globs` if it may become several.

    A word is not fixed when an expansion, a substitution or braces decide what it is. `places` are
    then all the places where the files lie that it may name, if that much is known.
    """

    text: str
    fixed: bool = True
    globs: bool = False
    places: tuple[str, ...] | None = None


class SimpleCommand(NamedTuple):
    """A program or builtin with its arguments; the first word is its name.

    One that is `fed` is told names of files on its input, which other commands list.
    """

    words: tuple[Word, ...]
    fed: Word | None = None


class Syntax(NamedTuple):
    """What was found. `doubt` is empty when the text is certain. `reads` are files after `<`.

    `assigns` says that it gives values to variables.
    """

    commands: tuple[SimpleCommand, ...]
    reads: tuple[str, ...]
    doubt: str
    assigns: bool = False


def only_expands(source: str) -> bool:
    """Whether an expansion does no more than stand for a value, or for a number."""
    known = (_EXPANSION, _TRIMMED, _ARITHMETIC)
    return any(expression.fullmatch(source) for expression in known)


def counts(source: str) -> bool:
    """Whether braces stand for numbers."""
    return _NUMBERS.fullmatch(source) is not None


def braced(source: str) -> Word:
    """A word with braces, of which it is known what it names if there is one plain pair."""
    found = _ONE_BRACE.fullmatch(source)
    places = found and tuple(found[1] + one + found[3] for one in found[2].split(","))
    return Word(source, fixed=False, globs=True, places=places)


def plain(words: Sequence[Word]) -> bool:
    """Whether no word can turn into an option when the shell fills it in."""
    return all(word.fixed and not (word.globs and word.text[:1] in "*?[") for word in words)


def refuses(words: Sequence[Word], refused: Iterable[str], letters: str = "") -> bool:
    """Whether a word is one of the long options, or a group of short ones with a letter."""
    for word in words:
        flag = word.text.partition("=")[0]
        if flag.startswith("--"):
            if len(flag) > 2 and any(one.startswith(flag) for one in refused):
                return True
        elif flag.startswith("-") and any(letter in flag for letter in letters):
            return True
    return False


def doubt_of_heredoc(start: str, lines: Sequence[str]) -> str:
    """Why the text between `<<END` and `END` may be more than text; empty if it is not."""
    quoted = start[:1] in ("'", '"') and start[-1:] == start[:1]
    end = start[1:-1] if quoted else start
    early = [line for line in lines[:-1] if line.lstrip("\t") == end]
    if not _HEREDOC_END.match(end) or not lines or lines[-1] != end or early:
        return "it holds a here-document whose end is not plain"
    if not quoted and re.search(r"[$`\\]", "\n".join(lines)):
        return "it holds a here-document with expansions"
    return ""
