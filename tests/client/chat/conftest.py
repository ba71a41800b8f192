"""A keyboard on a terminal of its own."""

import os
from collections.abc import Iterator

import pytest

from tiller_client.chat.terminal.keyboard import Keyboard


@pytest.fixture
def board() -> Iterator[tuple[Keyboard, int]]:
    """A keyboard, and where a person types."""
    master, slave = os.openpty()
    with os.fdopen(slave) as stdin:
        keyboard = Keyboard(stdin)
        with keyboard.raw_mode():
            yield keyboard, master
    os.close(master)
