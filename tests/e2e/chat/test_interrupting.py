"""After an interrupt, the user's next message goes first, and what waited is in the editor."""

from collections.abc import Callable

import pytest

from e2e.chat.test_chat import READY, newest
from e2e.words import always, hang, said_in
from support.chat import ChatTerminal
from support.daemon import Daemon
from support.frontend import Frontend
from support.pictures import picture
from tiller_protocol.items import Image
from tiller_protocol.ops import Interrupt, UserInput

Opens = Callable[..., ChatTerminal]

ESC, CTRL_C = "\x1b", "\x03"
STEER, QUEUE = "\r", "\t"


async def hanging(opens: Opens, daemon: Daemon) -> ChatTerminal:
    """Open a chat whose first turn hangs; all later ones end at once."""
    chat = opens("-m", daemon.script(hang("Hanging now"), always("Read.")))
    await chat.shows(READY)
    chat.press("go\r")
    await chat.shows("Hanging now")
    return chat


@pytest.mark.parametrize(
    ("stop", "waiting"),
    [
        (ESC, (("delete the old tests", QUEUE),)),
        (ESC, (("delete the old tests", STEER),)),
        (ESC, (("first", QUEUE), ("second", STEER), ("third", QUEUE))),
        (CTRL_C, (("delete the old tests", STEER),)),
    ],
)
async def test_what_waits_at_an_interrupt_comes_back_and_the_next_message_goes_first(
    opens: Opens,
    daemon: Daemon,
    frontend: Frontend,
    waiting: tuple[tuple[str, str], ...],
    stop: str,
) -> None:
    chat = await hanging(opens, daemon)
    for one, key in waiting:
        chat.press(f"{one}{key}")
        await chat.until(lambda one=one: any("◷" in row and one in row for row in chat.rows))
    chat.press("half a sentence")
    await chat.shows("half a sentence")
    chat.press(stop)
    await chat.shows("■ interrupted")
    texts = sorted([*(one for one, _ in waiting), "half a sentence"])
    await chat.until(lambda: sorted(chat.editor) == texts)
    assert chat.editor[-1] == "half a sentence", "the cursor is where it was"
    await chat.until(lambda: not any("◷" in row for row in chat.rows))
    chat.press(CTRL_C)
    await chat.sees("text cleared")
    chat.press("WAIT do not delete anything\r")
    await chat.shows("» WAIT", "Read.", READY)
    items = (await frontend.snapshot((await newest(frontend)).session_id)).items
    assert said_in(tuple(items)) == ["go", "WAIT do not delete anything"]


async def test_a_message_comes_back_even_if_the_turn_is_interrupted_at_once(
    opens: Opens, daemon: Daemon
) -> None:
    chat = await hanging(opens, daemon)
    chat.press(f"delete the old tests{STEER}{CTRL_C}")
    await chat.shows("■ interrupted")
    await chat.until(lambda: chat.editor == ["delete the old tests", ""])
    await chat.until(lambda: not any("◷" in row for row in chat.rows))


async def test_a_message_goes_before_what_waits_since_an_interrupt_from_elsewhere(
    opens: Opens, daemon: Daemon, frontend: Frontend
) -> None:
    chat = await hanging(opens, daemon)
    chat.press("delete the old tests\t")
    await chat.shows("queued: delete the old tests")
    session_id = (await newest(frontend)).session_id
    await frontend.must(Interrupt(session_id))
    await chat.shows("■ interrupted", "or /continue")
    chat.press("WAIT\r")
    await chat.shows("» WAIT", "» delete the old tests", READY)
    items = (await frontend.snapshot(session_id)).items
    assert said_in(tuple(items)) == ["go", "WAIT", "delete the old tests"]


async def test_an_image_that_the_text_does_not_name_stays_in_the_queue(
    opens: Opens, daemon: Daemon, frontend: Frontend
) -> None:
    chat = await hanging(opens, daemon)
    session_id = (await newest(frontend)).session_id
    image = Image("image/png", picture())
    await frontend.must(UserInput(session_id, "look", (image,), delivery="queue"))
    await chat.shows("queued: look")
    chat.press(f"as text{QUEUE}")
    await chat.shows("queued: as text")
    chat.press(ESC)
    await chat.until(lambda: chat.editor[0] == "as text")
    (left,) = (await frontend.snapshot(session_id)).queue
    assert (left.text, len(left.images)) == ("look", 1)


async def test_ctrl_c_interrupts_a_turn_and_again_leaves(opens: Opens, daemon: Daemon) -> None:
    chat = await hanging(opens, daemon)
    chat.press(CTRL_C)
    await chat.shows("■ interrupted", "Ctrl-C again leaves")
    chat.press(CTRL_C)
    assert await chat.end() == 0
    assert "the turn goes on" not in chat.text
