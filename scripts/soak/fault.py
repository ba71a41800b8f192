"""A fault to plant: an edit to one statement that breaks a promise. `planted` tests each fault."""

import ast
import io
import keyword
import re
import tokenize
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

TURN = "daemon/tiller_daemon/turn/"
SESSION = "daemon/tiller_daemon/session/"

LAYOUT = {
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.COMMENT,
    tokenize.ENDMARKER,
}
PLACEHOLDER = re.compile(r"\b[A-Z]\b")


class Fault(NamedTuple):
    """A fault that replaces `old` with `new` within one function."""

    breaks: str
    """The promise that the fault breaks, with its handle if it has one."""

    file: str
    function: str
    """The function's qualified name, such as `run_turn` or `Mailbox.take`."""

    old: str
    """Tokens that occur once in the function; layout, comments and trailing commas don't matter.

    A single capital letter stands for any dotted name, and for the same name wherever it occurs.
    """

    new: str
    """The replacement; its later lines are indented like its first."""

    found_by: str = ""
    """The pytest name of the test that must find the fault; empty if the fault is `equivalent`."""

    equivalent: str = ""
    """Why no test can find this fault, if it changes nothing that can be observed."""

    def plant(self, source: str) -> str:
        """Return the source with the fault in it; raise `LookupError` if its place is gone."""
        begin, end = self._lines(source)
        tokens = _tokens(source)
        inside = [n for n, token in enumerate(tokens) if begin <= token.line <= end]
        pattern = [token.text for token in _tokens(self.old)]
        found: list[tuple[_Token, _Token, dict[str, str]]] = []
        for start in inside:
            match = next(_matches(pattern, tokens[start : inside[-1] + 1], {}), None)
            if match and tokens[start - 1].text != ".":
                length, names = match
                found.append((tokens[start], tokens[start + length - 1], names))
        if len(found) != 1:
            raise LookupError(f"{self._place}: {len(found)} places match {self.old!r}; update it")
        first, last, names = found[0]
        line = source[source.rfind("\n", 0, first.begin) + 1 :]
        indent = line[: len(line) - len(line.lstrip())]
        new = PLACEHOLDER.sub(lambda letter: names.get(letter[0], letter[0]), self.new)
        return source[: first.begin] + new.replace("\n", f"\n{indent}") + source[last.end :]

    @property
    def _place(self) -> str:
        return f"the fault {self.breaks!r} in {self.file}:{self.function}"

    def _lines(self, source: str) -> tuple[int, int]:
        """Return the first and the last line of the function."""
        node: ast.AST = ast.parse(source)
        for name in self.function.split("."):
            named = [inner for inner in ast.walk(node) if getattr(inner, "name", None) == name]
            if not named:
                raise LookupError(f"{self._place}: there is no such function; update the fault")
            node = named[0]
        assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef), self._place
        return node.lineno, node.end_lineno or node.lineno


class _Token(NamedTuple):
    text: str
    line: int
    begin: int
    """The token's offset in the source."""

    end: int


def _tokens(source: str) -> list[_Token]:
    """Split a source into tokens without its layout."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    tokens = [
        _Token(one.string, row, starts[row - 1] + one.start[1], starts[one.end[0] - 1] + one.end[1])
        for one in tokenize.generate_tokens(io.StringIO(source).readline)
        if one.type not in LAYOUT
        for row in (one.start[0],)
    ]
    closing = [one.text == "," and after.text in ")]}" for one, after in pairwise(tokens)]
    return [one for one, drop in zip(tokens, [*closing, False], strict=True) if not drop]


def _matches(
    pattern: Sequence[str], tokens: Sequence[_Token], names: dict[str, str]
) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield how many leading tokens the pattern can match, and the names that its letters match."""
    if not pattern:
        yield 0, names
    elif PLACEHOLDER.fullmatch(pattern[0]):
        for length in range(_dotted(tokens), 0, -2):
            name = "".join(token.text for token in tokens[:length])
            if names.get(pattern[0], name) == name:
                bound = {**names, pattern[0]: name}
                for more, all_names in _matches(pattern[1:], tokens[length:], bound):
                    yield length + more, all_names
    elif tokens and tokens[0].text == pattern[0]:
        for more, all_names in _matches(pattern[1:], tokens[1:], names):
            yield 1 + more, all_names


def _dotted(tokens: Sequence[_Token]) -> int:
    """Return how many tokens the dotted name at the beginning has: an odd number, or 0."""
    count = 0
    while count < len(tokens) and _is_name(tokens[count].text):
        count += 1
        if count < len(tokens) and tokens[count].text == ".":
            count += 1
        else:
            return count
    return max(count - 1, 0)


def _is_name(text: str) -> bool:
    return text.isidentifier() and not keyword.iskeyword(text)
