"""The look of lines in one terminal: width, colours, and whether items are shown whole."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from tiller_client.chat.terminal.painter import Painter
from tiller_client.rendering.style import Kind, Theme
from tiller_client.rendering.text import Paint


@dataclass
class Look:
    """The settings for the look of lines; they may change at any time."""

    width: int
    """The maximum number of columns of a line."""
    theme: Theme
    opened: bool = False
    """Whether to show reasoning and calls' output completely."""

    follows_background: bool = False
    """Whether the terminal's report of its background changes the theme."""

    @property
    def paint(self) -> Paint:
        """The paint for lines that are rendered as in other verbs."""
        return Paint(colour=self.theme.kind != "none")

    def fit(self, painter: Painter) -> None:
        """Adapt the width and the size of images to the terminal's present size."""
        self.width = painter.size[0] - 1
        if self.theme.pictures == "sixel":
            self.theme = replace(self.theme, cell=painter.cell or self.theme.cell)

    def be(self, kind: Kind) -> None:
        """Use the colours for another background, from now on."""
        if self.theme.kind != "none":
            self.theme = replace(self.theme, kind=kind)

    def recoloured(self, lines: Iterable[str]) -> list[str]:
        """Replace the colours of `paint` in finished lines with the colours of the theme."""
        return [self.theme.recoloured(line) for line in lines]
