"""Keys are redacted from a program's output, however the output is split into pieces (G13)."""

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiller_daemon.processes.command import run_command
from tiller_daemon.redaction.byte_stream import ByteRedactor
from tiller_daemon.redaction.urls import SECRET_PLACEHOLDER

texts = st.text(alphabet="abk-", max_size=40)


@given(pieces=st.lists(texts), secrets=st.lists(st.text(alphabet="abk", min_size=2), max_size=3))
@pytest.mark.promise("G13")
def test_no_cut_lets_a_secret_through(pieces: list[str], secrets: list[str]) -> None:
    redaction = ByteRedactor(secrets)
    shown = b"".join(redaction.feed(piece.encode()) for piece in pieces) + redaction.end()
    assert not any(
        secret.encode() in shown.replace(SECRET_PLACEHOLDER.encode(), b"|") for secret in secrets
    )


@given(pieces=st.lists(texts), secret=st.text(alphabet="abk", min_size=2))
def test_everything_else_is_shown_as_it_was(pieces: list[str], secret: str) -> None:
    redaction = ByteRedactor([secret])
    shown = b"".join(redaction.feed(piece.encode()) for piece in pieces) + redaction.end()
    assert shown.decode() == "".join(pieces).replace(secret, SECRET_PLACEHOLDER)


def test_only_what_may_be_the_beginning_of_a_secret_waits() -> None:
    redaction = ByteRedactor(["sk-123", ""])
    assert redaction.feed(b"Password? ") == b"Password? "
    assert redaction.feed(b"ask") == b"a"
    assert redaction.feed(b"-12") == b""
    assert redaction.feed(b"4") == b"sk-124"
    assert redaction.end() == b""


@pytest.mark.promise("G13")
async def test_a_command_that_prints_a_key_in_two_pieces_does_not_show_it(play) -> None:
    program = "import os, time; os.write(1, b'key sk-12'); time.sleep(0.1); os.write(1, b'3.')"
    await run_command(
        [sys.executable, "-c", program],
        directory=play.directory,
        variables={},
        receive=play.receive,
        timeout_s=30.0,
        secrets=("sk-123",),
    )
    assert play.printed == b"key [secret]."
