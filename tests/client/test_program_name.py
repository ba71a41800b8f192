"""The commands that hints name: with `--host`, they are about the other machine, too."""

from collections.abc import Iterator

import pytest

from support.each import each
from tiller_client import program_name
from tiller_client.command_line.choose import input_id
from tiller_client.errors import UsageError
from tiller_client.following.interactive import how_to_answer
from tiller_client.rendering.labels import no_turn_began
from tiller_client.rendering.style import Theme
from tiller_client.rendering.transcript import transcript
from tiller_protocol.items import QueuedInput, Request
from tiller_protocol.snapshot import Snapshot


def no_such_input() -> str:
    with pytest.raises(UsageError) as refused:
        input_id([], "1234")
    return str(refused.value)


def left_queue() -> str:
    snapshot = Snapshot("S1", workspace="/w", queue=(QueuedInput("I1", "next", "queue"),))
    return transcript(snapshot, Theme(), 100, 100)


HINTS = {
    "an approval": (lambda: how_to_answer(Request("R1", "approval", "ls")), "answer R1 once"),
    "a question": (lambda: how_to_answer(Request("R1", "question", "?")), "answer R1 answer TEXT"),
    "options without a turn": (no_turn_began, "set"),
    "an unknown input": (no_such_input, "queue SESSION"),
    "inputs that wait": (left_queue, "resume S1"),
}


@pytest.fixture
def far() -> Iterator[None]:
    program_name.use_host("box")
    yield
    program_name.use_host("")


@pytest.mark.parametrize("name", HINTS)
def test_a_hint_names_the_machine_that_it_is_about(far: None, name: str) -> None:
    hint, words = HINTS[name]
    assert f"tiller --host box {words}" in hint()


@each("name", HINTS)
def test_a_hint_about_this_machine_names_none(name: str) -> None:
    hint, words = HINTS[name]
    assert f"tiller {words}" in hint()
