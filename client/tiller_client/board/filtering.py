"""The words that narrow a board: `login repo:accounts host:box group:working`; pure."""

from typing import NamedTuple

from tiller_client.board.sessions import (
    GROUP_TITLES,
    GROUPS,
    Group,
    Row,
    activity,
    branch,
    workplace,
)

PREFIXES = ("repo", "host", "group")


class Filter(NamedTuple):
    """Words that a row must match."""

    text: str = ""
    """The words as the user has typed them."""

    @property
    def words(self) -> list[str]:
        """The words in lower case."""
        return self.text.lower().split()

    def matches(self, row: Row) -> bool:
        """Whether a row has all words: a word with a prefix in that column, others anywhere."""
        return all(_matches(row, word) for word in self.words)

    @property
    def problem(self) -> str:
        """Why no row can ever match: a group that does not exist; or empty."""
        for word in self.words:
            prefix, _, value = word.partition(":")
            if prefix == "group" and not any(_is_group(one, value) for one in GROUPS):
                return f"there is no group {value}; groups: {', '.join(GROUPS)}"
        return ""

    def toggled(self, word: str) -> "Filter":
        """The filter with a word `prefix:value` in place of others with this prefix, or without."""
        prefix = word.partition(":")[0]
        kept = [one for one in self.text.split() if not one.lower().startswith(f"{prefix}:")]
        return Filter(" ".join(kept if word in self.words else [*kept, word]))


def _is_group(group: Group, value: str) -> bool:
    return GROUP_TITLES[group].startswith(value.replace("_", " "))


def _matches(row: Row, word: str) -> bool:
    prefix, colon, value = word.partition(":")
    session = row.session
    if colon and prefix in PREFIXES:
        match prefix:
            case "host":
                return (row.key.host or "local").lower().startswith(value)
            case "repo":
                return value in f"{workplace(session)} {session.workspace}".lower()
            case _:
                return _is_group(row.group, value)
    texts = (row.key.short, row.name, workplace(session), branch(session), activity(row))
    return word in " ".join(texts).lower()
