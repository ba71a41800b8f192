"""What a model is told about arguments that are no text."""

import pytest

from support.each import each
from tiller_daemon.session.calls.arguments import (
    ARGUMENTS_CHARS_MAX,
    BadArguments,
    decode_arguments,
)
from tiller_daemon.tools.commands.bash import BASH


@each("half", [r"\ud83d", r"\ud83d is", r"\ude00", r"\uDBFF\n"])
def test_half_a_surrogate_pair_is_named(half: str) -> None:
    with pytest.raises(BadArguments, match="half a surrogate pair, which is not a character"):
        decode_arguments(BASH, f'{{"command": "echo {half}"}}')
    assert decode_arguments(BASH, r'{"command": "\ud83d\ude00"}').command == "\U0001f600"
    with pytest.raises(BadArguments, match="truncated"):
        decode_arguments(BASH, r'{"command": "\ud83d\ude00')


def test_arguments_that_would_keep_other_sessions_waiting_are_refused() -> None:
    text = '{{"command": "{}"}}'
    room = ARGUMENTS_CHARS_MAX - len(text.format(""))
    assert len(decode_arguments(BASH, text.format("x" * room)).command) == room
    with pytest.raises(BadArguments, match=f"have {ARGUMENTS_CHARS_MAX + 1} characters"):
        decode_arguments(BASH, text.format("x" * (room + 1)))
