"""What the variables of a command line hold when they are used, where its text tells that. Pure.

Only what is certain counts: a loop over plain words, or an assignment that surely came before. A
variable that anything else could have set stays unknown.
"""

import itertools
import math
import re
from collections.abc import Sequence
from typing import NamedTuple

from tree_sitter import Node

from tiller_daemon.policy.shell_words import SimpleCommand, Word, word_set

COMMANDS_MAX = 32
"""How many commands one may stand for when its variables are filled in."""

_SETTING = word_set("read mapfile readarray getopts let wait unset export declare local typeset")
"""Builtins that may give a value to the variables that they are told, also under `command`."""

_PLAIN = re.compile(r"[\w./@+:,*?=-]+", re.ASCII)
_USES = re.compile(r"(?:[\w./@+:,*?=-]|\$\w+|\$\{\w+\})+", re.ASCII)
_USE = re.compile(r"\$\{(\w+)\}|\$(\w+)", re.ASCII)


class _Bound(NamedTuple):
    """Values that a variable may have between two places of the text."""

    words: tuple[Word, ...]
    start: int
    end: int


class _Found(NamedTuple):
    command: SimpleCommand
    start: int


class Values:
    """Gathers commands and values while a text is taken apart; then fills them in."""

    def __init__(self, length: int) -> None:
        self._length = length
        self._found: list[_Found] = []
        self._bound: dict[str, _Bound | None] = {}

    def add(self, command: SimpleCommand, start: int) -> None:
        """Note a command and where it begins."""
        self._found.append(_Found(command, start))

    def __len__(self) -> int:
        return len(self._found)

    def since(self, count: int) -> list[SimpleCommand]:
        """The commands that were noted after the first `count`."""
        return [found.command for found in self._found[count:]]

    def feed_last(self, listed: Word) -> None:
        """Say that the last command is told names of files by those before it."""
        command, start = self._found[-1]
        self._found[-1] = _Found(command._replace(fed=listed), start)

    def extend_last(self, words: Sequence[Word]) -> None:
        """Say that the last command has more words."""
        command, start = self._found[-1]
        self._found[-1] = _Found(command._replace(words=(*command.words, *words)), start)

    def loop(self, name: str, words: Sequence[Word], body: Node) -> None:
        """A loop gives `name` each of `words` in its body."""
        self._bind(name, words, body.start_byte, body.end_byte)

    def assign(self, name: str, word: Word | None, node: Node) -> None:
        """An assignment gives `name` a value; not known which one without `word`."""
        certain = word is not None and _comes_first(node)
        self._bind(name, [word] if word and certain else [], node.end_byte, self._length)

    def commands(self) -> list[SimpleCommand]:
        """All commands, those with known variables once for each value."""
        for command, _ in self._found:
            self._forget(command)
        return [one for found in self._found for one in self._filled_in(*found)]

    def _bind(self, name: str, words: Sequence[Word], start: int, end: int) -> None:
        known = bool(words) and all(
            word.places is not None or (word.fixed and _PLAIN.fullmatch(word.text))
            for word in words
        )
        again = name in self._bound
        self._bound[name] = _Bound(tuple(words), start, end) if known and not again else None

    def _forget(self, command: SimpleCommand) -> None:
        """Take back what a builtin may have set anew."""
        texts = [word.text for word in command.words]
        prints = "printf" in texts and any(text.startswith("-v") for text in texts)
        if prints or not _SETTING.isdisjoint(texts):
            everything = prints or not all(word.fixed for word in command.words)
            for name in self._bound if everything else set(texts) & set(self._bound):
                self._bound[name] = None

    def _filled_in(self, command: SimpleCommand, start: int) -> list[SimpleCommand]:
        # What is run stands in the text, or it is not known.
        name, *arguments = command.words
        choices = [[name], *(self._choices(word, start) for word in arguments)]
        if math.prod(len(choice) for choice in choices) > COMMANDS_MAX:
            return [command]
        return [command._replace(words=words) for words in itertools.product(*choices)]

    def _choices(self, word: Word, start: int) -> list[Word]:
        """What a word may be, each with its variables filled in."""
        plain = word.text.replace('"', "")
        if word.fixed or word.places is not None or not _USES.fullmatch(plain):
            return [word]
        names = dict.fromkeys(a or b for a, b in _USE.findall(plain))
        bound = [self._bound.get(name) for name in names]
        known = [one for one in bound if one and one.start <= start < one.end]
        if len(known) < len(bound) or word.text.count('"') % 2:
            return [word]
        return [
            _put(word, plain, dict(zip(names, values, strict=True)))
            for values in itertools.product(*(one.words for one in known))
        ]


def _put(word: Word, plain: str, values: dict[str, Word]) -> Word:
    if all(value.fixed for value in values.values()):
        text = _USE.sub(lambda use: values[use[1] or use[2]].text, plain)
        return Word(text, globs=any(sign in text for sign in "*?"))
    alone = plain in {sign for name in values for sign in (f"${name}", f"${{{name}}}")}
    places = next(iter(values.values())).places if alone else None
    return word._replace(places=places)


def _comes_first(node: Node) -> bool:
    """Whether an assignment is surely run, by this shell, before all that follows it."""
    outer = node.parent
    while outer is not None and outer.type in ("variable_assignments", "list"):
        first = outer.children[0]
        if outer.type == "list" and first.start_byte != node.start_byte:
            return False
        node, outer = outer, outer.parent
    following = node.next_sibling
    return (
        outer is not None
        and outer.type == "program"
        and (following is None or following.type != "&")
    )
