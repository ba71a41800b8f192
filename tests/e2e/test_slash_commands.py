"""Slash commands from the command line: an unknown command is not sent to the daemon."""

import subprocess
from pathlib import Path

import pytest

from e2e.words import text
from support.daemon import Daemon
from support.frontend import TIMEOUT_S, Frontend
from support.terminal import TILLER
from tiller_protocol.ops import UserInput


def tiller(daemon: Daemon, workspace: Path, *arguments: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [*TILLER, *arguments],
        cwd=workspace,
        env=daemon.variables,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=2 * TIMEOUT_S,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def commands(daemon: Daemon) -> None:
    """A user with the command `/review`."""
    folder = daemon.places.config / "commands"
    folder.mkdir(exist_ok=True)
    (folder / "review.md").write_text("Review $ARGUMENTS.")


@pytest.mark.usefixtures("commands")
def test_a_mistyped_command_is_not_sent_and_the_nearest_is_named(
    daemon: Daemon, workspace: Path
) -> None:
    model = daemon.script(text("Fine."))
    status, out, err = tiller(daemon, workspace, "exec", "-m", model, "/revew HEAD")
    assert (status, out) == (1, "")
    assert "There is no command /revew. Did you mean `/review`?" in err
    assert "put a space before the slash" in err
    assert tiller(daemon, workspace, "ls")[1].count(str(workspace)) == 0, "no empty session is left"
    assert tiller(daemon, workspace, "exec", "-m", model, "/review HEAD")[:2] == (0, "Fine.\n")


@pytest.mark.usefixtures("commands")
@pytest.mark.parametrize(
    "prompt", ["/etc/hosts is broken", "/tmp is full", " /revew", "why /revew?", "/"]
)
async def test_a_path_and_a_word_after_a_blank_are_text(
    daemon: Daemon, frontend: Frontend, workspace: Path, prompt: str
) -> None:
    session_id = await frontend.session(workspace, text("I see"))
    await frontend.must(UserInput(session_id, prompt))
    assert (await frontend.turn_ended(session_id)).outcome == "completed"


@pytest.mark.usefixtures("commands")
async def test_send_refuses_it_also_where_nothing_is_like_it(
    daemon: Daemon, frontend: Frontend, workspace: Path
) -> None:
    session_id = await frontend.session(workspace, text("I see"))
    status, out, err = tiller(daemon, workspace, "send", session_id, "/frobnicate")
    assert (status, out) == (1, "")
    assert "There is no command /frobnicate. To list the commands: tiller commands." in err
    assert frontend.requests(session_id) == []
