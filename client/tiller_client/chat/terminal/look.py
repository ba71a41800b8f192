"""The look of lines in one terminal: width, colours, and whether items are shown whole."""

from dataclasses import dataclass, replace

from tiller_client.chat.terminal.painter import Painter
from tiller_client.rendering.style import Kind, Theme


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

    def fit(self, painter: Painter) -> None:
        """Adapt the width and the size of images to the terminal's present size."""
        self.width = painter.size[0] - 1
        if self.theme.pictures == "sixel":
            self.theme = replace(self.theme, cell=painter.cell or self.theme.cell)

    def be(self, kind: Kind) -> None:
        """Use the colours for another background, from now on."""
        if self.theme.kind != "none":
            self.theme = replace(self.theme, kind=kind)
