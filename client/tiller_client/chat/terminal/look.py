"""How things look in one terminal: width, colours, and how much is shown of a thing."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from tiller_client.chat.reading.style import Theme
from tiller_client.chat.terminal.painter import Painter
from tiller_client.rendering.text import Paint


@dataclass
class Look:
    """What decides about the form of lines; `width` and `opened` may change at any time."""

    width: int
    """Columns that a line may have."""
    theme: Theme
    opened: bool = False
    """Whether reasoning and the output of calls are shown whole."""

    @property
    def paint(self) -> Paint:
        """For lines of the words that other verbs use."""
        return Paint(colour=self.theme.kind != "none")

    def fit(self, painter: Painter) -> None:
        """Lines made from now on are as wide as the terminal is now, images as its cells are."""
        self.width = painter.size[0] - 1
        if self.theme.pictures == "sixel":
            self.theme = replace(self.theme, cell=painter.cell or self.theme.cell)

    def recoloured(self, lines: Iterable[str]) -> list[str]:
        """Finished lines with the colours of the theme in place of those of `paint`."""
        return [self.theme.recoloured(line) for line in lines]
