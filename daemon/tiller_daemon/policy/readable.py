"""Which files may be read without a question: one check for every way to a file's content. Pure.

`read` asks about the others. Whatever else shows content (a search, instructions, a diff) leaves
them out. Where a path leads is found out before, by `files.paths`.
"""

from collections.abc import Sequence
from typing import Final

from tiller_daemon.policy import globs
from tiller_daemon.policy.rules import BUILT_IN, evaluate
from tiller_protocol.settings import Rule

_READ: Final = "read"


class Readable:
    """The check by the rules of a turn, which are the layers above the built-in one.

    A consent that `approve` gives in the place of the user is none here: it answers a question
    about one file, and here nobody asks one.
    """

    def __init__(self, rules: Sequence[Rule]) -> None:
        """Choose the rules that are about reading."""
        layers = (*BUILT_IN, *rules)
        self._layers: Final = [one for one in layers if globs.matches(one.permission, _READ)]
        strict = (rule for rule in self._layers if rule.action != "allow")
        self.path_fragments: Final = tuple(
            dict.fromkeys(globs.longest_name(one.pattern) for one in strict)
        )
        """Texts without a slash, one of which is in the path of every protected file. An empty one
        says nothing about the path."""

    def __call__(self, subject: str) -> bool:
        """Whether the file may be read: `subject` is its path, named as `read` names it."""
        return evaluate(_READ, subject, self._layers) == "allow"
