"""Asks the terminal for the colour of its background (OSC 11), to choose the theme by it."""

import os
import re
import select
import time

from tiller_client.chat.terminal.painter import ASK
from tiller_client.rendering.style import Kind

ASK_BACKGROUND = "\x1b]11;?\x1b\\"

ANSWER_S_MAX = 0.2
"""How long the first frame may wait for the answer; a later answer changes only later lines."""

_COLOUR = re.compile(r"\x1b\]11;rgba?:([0-9a-fA-F]{1,4})/([0-9a-fA-F]{1,4})/([0-9a-fA-F]{1,4})")
_ANSWERS = re.compile(rb"\x1b\]11;[^\x07\x1b]*(?:\x07|\x1b\\)|\x1b\[0n")


def kind_of(report: str) -> Kind | None:
    """The theme for the reported background; `None` if the report is about something else."""
    colour = _COLOUR.match(report)
    if colour is None:
        return None
    red, green, blue = (int(part, 16) / (16 ** len(part) - 1) for part in colour.groups())
    return "light" if 0.299 * red + 0.587 * green + 0.114 * blue > 0.5 else "dark"


class Backdrop:
    """The question for the background of one terminal, which must not echo its answer."""

    def __init__(self, descriptor: int) -> None:
        self.kind: Kind | None = None
        """The theme for the background, once it is known."""
        self.typed = b""
        """The keys that came before the answer."""
        self._descriptor = descriptor
        self._deadline: float | None = None

    def ask(self) -> None:
        """Ask, and for the status, too: a terminal that ignores the question answers only that."""
        os.write(self._descriptor, (ASK_BACKGROUND + ASK).encode())
        self._deadline = time.monotonic() + ANSWER_S_MAX

    def wait(self) -> None:
        """Wait for the answer if there is a question; otherwise, a shell might get it as text."""
        read = b""
        while self._deadline is not None and b"\x1b[0n" not in read:
            left_s = max(0.0, self._deadline - time.monotonic())
            if not select.select([self._descriptor], [], [], left_s)[0]:
                break
            if not (data := os.read(self._descriptor, 1024)):
                break
            read += data
        self._deadline = None
        for answer in _ANSWERS.findall(read):
            self.kind = kind_of(answer.decode(errors="replace")) or self.kind
        self.typed += _ANSWERS.sub(b"", read)
