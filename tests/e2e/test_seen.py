"""A session that a person has seen on a terminal is not listed as unseen; what a pipe got is."""

import subprocess
from pathlib import Path

import pytest
import trio

from e2e.words import always
from support.daemon import Daemon
from support.frontend import Frontend
from support.terminal import TILLER, Terminal
from tiller_protocol.answers import SessionListResult
from tiller_protocol.ops import SessionList


async def is_unseen(frontend: Frontend, session_id: str) -> bool:
    result = await frontend.must(SessionList())
    assert isinstance(result, SessionListResult)
    return next(one.unseen for one in result.sessions if one.session_id == session_id)


@pytest.mark.parametrize("verb", [("exec", "--session"), ("attach", "--until-idle"), ("show",)])
async def test_what_a_terminal_has_shown_is_seen(
    frontend: Frontend,
    workspace: Path,
    daemon: Daemon,
    monkeypatch: pytest.MonkeyPatch,
    verb: tuple[str, ...],
) -> None:
    for name, value in daemon.variables.items():
        monkeypatch.setenv(name, value)
    session_id = await frontend.session(workspace, always("hello"))
    await frontend.say(session_id)
    await frontend.turn_ended(session_id)
    more = (session_id, "again") if verb[0] == "exec" else (session_id,)
    done = await trio.to_thread.run_sync(
        lambda: subprocess.run(
            [*TILLER, *verb, *more], stdin=subprocess.DEVNULL, capture_output=True, check=True
        )
    )
    assert done.stdout
    assert await is_unseen(frontend, session_id)
    terminal = Terminal(*verb, *more)
    assert await trio.to_thread.run_sync(terminal.end) == 0
    assert not await is_unseen(frontend, session_id)
