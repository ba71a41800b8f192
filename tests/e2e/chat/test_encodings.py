"""`tiller chat` on terminals whose encoding has few characters."""

from collections.abc import Callable

import pytest

from e2e.words import always, calls, read, text
from support.chat import ChatTerminal
from support.daemon import Daemon
from tiller_client.streams import STAND_INS

Opens = Callable[..., ChatTerminal]


@pytest.mark.parametrize(
    "variables",
    [
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        {"PYTHONIOENCODING": "ascii"},
    ],
)
async def test_signs_have_stand_ins_and_letters_their_code_points(
    opens: Opens, daemon: Daemon, variables: dict[str, str]
) -> None:
    said = "na\u00efve \u65e5 \u2192 done\n\n| a | b |\n|---|---|\n| 1 | 2 |\n"
    model = daemon.script(calls(read("greeting.txt")), text(said), always("Well."))
    chat = opens("-m", model, **variables)
    await chat.shows("write a message")
    chat.press("caf\u00e9?\r")
    await chat.shows("> caf<U+00E9>?", "* read greeting.txt", "na<U+00EF>ve <U+65E5> -> done")
    await chat.shows("a | b", "# completed |")
    chat.press("half \udce9 of it\r")  # with a byte that is invalid in UTF-8
    await chat.shows("> half ? of it")
    assert chat.written.isascii()
    assert not set(chat.text) & STAND_INS.keys()
    chat.press("\x04")
    assert await chat.end() == 0
