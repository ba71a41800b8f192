"""Decides which files may be read without a question, for everything that shows content. Pure.

For all other files, the tool `read` asks the user; searches, instructions and diffs leave them out.
`files.paths` resolves the paths before this check.
"""

from collections.abc import Sequence
from typing import Final

from tiller_daemon.policy import globs
from tiller_daemon.policy.rules import BUILT_IN, evaluate
from tiller_protocol.settings import Rule

_READ: Final = "read"


class Readable:
    """Checks paths by the built-in rules and the rules of a turn.

    The setting `approve` does not count: it answers questions about single files, but this check
    asks no question.
    """

    def __init__(self, rules: Sequence[Rule]) -> None:
        """Select the rules about reading; `rules` are the layers above the built-in one."""
        self._layers: Final = rules_of_reading((*BUILT_IN, *rules))
        strict = (rule for rule in self._layers if rule.action != "allow")
        self.path_fragments: Final = tuple(
            dict.fromkeys(globs.longest_name(one.pattern) for one in strict)
        )
        """Texts without a slash; the path of every protected file contains one of them. Every path
        contains the empty text."""

    def __call__(self, subject: str) -> bool:
        """Whether a file may be read; `subject` is its path in the form that `read` uses."""
        return evaluate(_READ, subject, self._layers) == "allow"


def rules_of_reading(rules: Sequence[Rule]) -> list[Rule]:
    """Return the rules that decide about reading files."""
    return [rule for rule in rules if globs.matches(rule.permission, _READ)]
