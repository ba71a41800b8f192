"""The chat's colours fit the terminal's background."""

from collections.abc import Callable

import pytest

from e2e.chat.test_chat import READY
from e2e.words import always
from support.chat import ChatTerminal
from support.daemon import Daemon

Opens = Callable[..., ChatTerminal]

WHITE, BLACK, CREAM = "rgb:ffff/ffff/ffff", "rgb:0000/0000/0000", "rgba:fd/f6/e3/ff"
DARK, LIGHT = "38;2;125;207;255", "38;2;11;110;153"
"""The colours of the user's messages."""


@pytest.mark.parametrize(
    ("background", "variables", "colour"),
    [
        (WHITE, {}, LIGHT),
        (CREAM, {"TILLER_THEME": "auto", "COLORFGBG": "15;0"}, LIGHT),
        (BLACK, {"COLORFGBG": "0;15"}, DARK),
        ("", {"COLORFGBG": "0;15"}, LIGHT),
        ("", {}, DARK),
        (WHITE, {"TILLER_THEME": "dark"}, DARK),
    ],
)
async def test_the_background_decides_about_the_colours(
    opens: Opens, daemon: Daemon, background: str, variables: dict[str, str], colour: str
) -> None:
    chat = opens("-m", daemon.script(always("Read.")), COLORTERM="truecolor", **variables)
    chat.background = background
    await chat.shows(READY)
    chat.press("go\r")
    await chat.shows("» go", "Read.")
    other = LIGHT if colour == DARK else DARK
    assert colour in chat.written
    assert other not in chat.written


async def test_the_theme_is_chosen_in_the_chat(opens: Opens, daemon: Daemon) -> None:
    chat = opens("-m", daemon.script(always("Read.")), COLORTERM="truecolor")
    chat.background = WHITE
    await chat.shows(READY)
    choices = (("dark", DARK), ("light", LIGHT), ("dark", DARK), ("auto", LIGHT))
    for number, (theme, colour) in enumerate(choices):
        chat.press(f"/theme {theme}\r")
        await chat.sees(f"theme: {theme} from now on")
        before = len(chat.written)
        chat.press(f"in {theme} {number}\r")
        await chat.shows(f"» in {theme} {number}", READY)
        assert colour in chat.written[before:]
        await chat.until(lambda: READY in chat.rows[chat.cursor[0]])
