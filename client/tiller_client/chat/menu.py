"""A menu: a list of entries that the user narrows by typing words; pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tiller_client.chat.rows import CHOSEN
from tiller_client.rendering.style import Theme
from tiller_client.rendering.text import cells, cut, one_line, pad
from tiller_client.rendering.wrap import INDENT, hanging

ROWS_MAX = 10
"""Maximum number of entries shown at once."""

CHOSEN_ROWS_MAX = 3
"""About how many rows the chosen entry may take; the others take one."""


@dataclass(frozen=True)
class Entry:
    """One line of a menu."""

    value: str
    """The value that the menu returns; not shown."""
    label: str
    """The text in the first column."""
    detail: str = ""
    """The text after the label."""


class Act(NamedTuple):
    """The action of a key other than Enter on the chosen entry."""

    label: str
    """The text for the line below the title, such as `Ctrl-R renames`."""
    do: Callable[[Entry], None]


@dataclass
class Menu:
    """The entries, the words that narrow them, and the chosen entry."""

    title: str
    """The line above the entries."""
    entries: Sequence[Entry]
    """All entries, in order."""
    take: Callable[[str], None]
    """Called with the value of the entry that the user takes; if there is none, the typed text."""
    refine: Callable[["Menu"], None] | None = None
    """Called when the typed words change; it may later `find` more entries."""
    acts: Mapping[str, Act] = field(default_factory=dict[str, Act])
    """The actions of keys, by prompt-toolkit's names of the keys."""
    above: "Menu | None" = None
    """The menu from which this one was opened, to which Esc returns."""
    typed: str = ""
    """The words that narrow the entries."""
    at: int = 0
    """Position of the chosen entry in `matching`."""
    matching: Sequence[Entry] = field(init=False)
    """The entries that contain all typed words, and the entries that a search has found."""

    def __post_init__(self) -> None:
        self.matching = self.entries

    @property
    def chosen(self) -> Entry | None:
        """The entry that Enter takes."""
        return self.matching[self.at] if self.matching else None

    def type(self, text: str) -> None:
        """Set the words that an entry must contain, in any order."""
        self.typed = text
        self._narrow()
        self.at = 0
        if self.refine is not None and text.strip():
            self.refine(self)

    def find(self, entries: Sequence[Entry]) -> None:
        """Add the entries that a search for the typed words has found, after the matching ones."""
        self._narrow()
        known = {entry.value for entry in self.matching}
        self.matching = [*self.matching, *(one for one in entries if one.value not in known)]

    def renew(self, entries: Sequence[Entry]) -> None:
        """Replace all entries; the typed words narrow the new ones."""
        self.entries = entries
        self.type(self.typed)

    def _narrow(self) -> None:
        words = self.typed.lower().split()
        self.matching = [
            entry
            for entry in self.entries
            if all(word in f"{entry.label} {entry.detail}".lower() for word in words)
        ]

    def move(self, step: int) -> None:
        """Choose the next or the previous entry."""
        if self.matching:
            self.at = (self.at + step) % len(self.matching)

    def rows(self, width: int, theme: Theme) -> list[str]:
        """The rows of the menu."""
        how_to = (
            "↑↓ Enter, Esc; type to search" if self.entries else "type it, then Enter; Esc: back"
        )
        more = "".join(f"; {act.label}" for act in self.acts.values())
        title = f"{self.title}: {one_line(self.typed)}"
        rows = [theme.bold(cut(title, width)), theme.dim(cut(f"  {how_to}{more}", width))]
        if self.entries and not self.matching:
            rows.append(theme.dim("  nothing matches"))
        first = max(0, min(self.at - ROWS_MAX // 2, len(self.matching) - ROWS_MAX))
        seen = self.matching[first : first + ROWS_MAX]
        column = min(max((cells(one_line(entry.label)) for entry in seen), default=0), width // 2)
        for number, entry in enumerate(seen, first):
            label, detail = one_line(entry.label), one_line(entry.detail)
            if number != self.at:
                rows.append(cut(f"  {pad(label, column)}  {detail}".rstrip(), width))
                continue
            whole = f"{CHOSEN} {label}{' ' * max(0, column - cells(label))}  {detail}".rstrip()
            broken = hanging(cut(whole, CHOSEN_ROWS_MAX * (width - len(INDENT))), width)
            rows += [theme.asking(cut(row, width)) for row in broken.split("\n")]
        if (left := len(self.matching) - first - len(seen)) > 0:
            rows.append(theme.dim(f"  … {left} more"))
        return rows
