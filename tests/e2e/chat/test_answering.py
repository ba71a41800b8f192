"""A typed text answers a question; a letter stays an answer only if nothing follows it."""

from collections.abc import Callable

import pytest

from e2e.chat.test_chat import ANSWERABLE, READY, newest
from e2e.words import always, bash, calls, calls_in
from support.chat import ChatTerminal
from support.daemon import Daemon
from support.frontend import Frontend
from tiller_client.chat.rows import PROMPT
from tiller_daemon.models.scripted import CallPart

Opens = Callable[..., ChatTerminal]

TYPE = "type your answer"
DOWN, UP = "\x1b[B", "\x1b[A"


def ask(*choices: str) -> CallPart:
    """A question of the model."""
    return CallPart("question", arguments={"text": "Which name?", "choices": list(choices)})


@pytest.mark.parametrize(
    ("choices", "keys", "answer"),
    [
        ((), "frobnicate\r", "frobnicate"),
        ((), "two\nlines\r", "two\nlines"),
        (("red", "blue"), "green\r", "green"),
        (("red", "blue"), "2 of them\r", "2 of them"),
        (("red", "blue"), f"{DOWN}{DOWN}neither\r", "neither"),
        (("red", "blue"), "2\r", "blue"),
        (("red", "blue"), f"{UP}\r", "blue"),
    ],
)
async def test_what_is_typed_while_a_question_is_open_is_its_answer(
    opens: Opens,
    daemon: Daemon,
    frontend: Frontend,
    choices: tuple[str, ...],
    keys: str,
    answer: str,
) -> None:
    chat = opens("-m", daemon.script(calls(ask(*choices)), always("Well then.")))
    await chat.shows(READY)
    chat.press("go\r")
    await chat.sees("? Which name?", TYPE)
    chat.press(keys)
    await chat.shows("Well then.", READY)
    items = (await frontend.snapshot((await newest(frontend)).session_id)).items
    (call,) = calls_in(tuple(items))
    assert answer in call.output
    assert "steers" not in chat.written


async def test_a_message_begun_before_a_question_does_not_answer_it(
    opens: Opens, daemon: Daemon, frontend: Frontend
) -> None:
    chat = opens("-m", daemon.script(calls(ask()), always("Well then.")))
    await chat.shows(READY)
    chat.press("go\ralso the docs")
    await chat.sees("? Which name?", "to answer, first send what you are writing")
    chat.press("\r")
    await chat.sees("steers: also the docs", TYPE)


async def test_ctrl_c_first_clears_what_was_begun_before_a_question(
    opens: Opens, daemon: Daemon
) -> None:
    chat = opens("-m", daemon.script(calls(ask()), always("Well then.")))
    await chat.shows(READY)
    chat.press("go\ralso the docs")
    await chat.sees("? Which name?", "or clear it with Ctrl-C")
    chat.press("\x03")
    await chat.sees("text cleared", TYPE)
    assert "■ interrupted" not in chat.text
    chat.press("\x03")
    await chat.shows("■ interrupted")


async def test_a_message_may_begin_with_a_path(opens: Opens, daemon: Daemon) -> None:
    chat = opens("-m", daemon.script(always("Delete something.")))
    await chat.shows(READY)
    chat.press("/tmp is full, why?\r")
    await chat.shows("» /tmp is full, why?", "Delete something.")


@pytest.mark.parametrize(
    ("arrow", "typed"), [(DOWN, "no please use main2"), (UP, "x"), (DOWN, "hmm")]
)
async def test_a_text_after_an_answer_chosen_by_an_arrow_has_no_letter_before_it(
    opens: Opens, daemon: Daemon, arrow: str, typed: str
) -> None:
    model = daemon.script(calls(bash("echo out > /var/tmp/never")), always("Well then."))
    chat = opens("-m", model, "--sandbox", "workspace_write", "--approve", "ask")
    await chat.shows(READY)
    chat.press("do it\r")
    await chat.shows(ANSWERABLE)
    chat.press(arrow)
    await chat.until(lambda: any(row.startswith("▸") for row in chat.rows))
    chat.press(typed)
    await chat.until(lambda: chat.rows[chat.cursor[0]] == f"{PROMPT}{typed}")
