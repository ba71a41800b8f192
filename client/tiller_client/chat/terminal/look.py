"""How things look in one terminal: width, colours, and how much is shown of a thing."""

from dataclasses import dataclass

from tiller_client.chat.reading.style import Theme
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
