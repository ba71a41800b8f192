"""Several frontends attach to a session: one is stopped, one is late, and the daemon dies."""

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from e2e.peers.home import Home, check_whole, wait_for
from support.daemon import SLACK_S, gone
from support.peers import Aimock

pytestmark = pytest.mark.peer

CONFIG = """\
model = "aimock/gpt-5"

[providers.aimock]
api = "openai_chat"
base_url = "{url}"
"""


@pytest.fixture
def home(new_home: Callable[..., Home], aimock: Aimock) -> Home:
    return new_home(CONFIG.format(url=aimock.base_url))


ATTACH = ("attach", "--json", "--until-idle")


def runs(aimock: Aimock, words: str, command: str, **options: object) -> None:
    """Prepare a turn with one command, and a long answer in many pieces."""
    bash = {"name": "bash", "id": f"call_{words}", "arguments": {"command": command}}
    aimock.answer({"userMessage": words, "hasToolResult": False}, {"toolCalls": [bash]})
    aimock.answer(
        {"toolCallId": bash["id"]}, {"content": f"{words} was done. " * 200}, chunkSize=4, **options
    )


@pytest.mark.promise("B53")
@pytest.mark.nightly
def test_a_stopped_and_a_late_frontend_print_the_same_bytes(
    home: Home, aimock: Aimock, workspace: Path
) -> None:
    runs(
        aimock, "apples", "seq 500; touch began; while [ ! -e on ]; do sleep 0.02; done", latency=1
    )
    home.directory = workspace
    turn = home.start("exec", "-C", str(workspace), "--approve", "always", "--json", "apples")
    wait_for(workspace / "began")
    early, slow = home.start(*ATTACH), home.start(*ATTACH)
    for one in (early, slow):
        one.until("turn_started")
    slow.stop()
    (workspace / "on").touch()
    assert turn.ended().status == 0
    late = home.start(*ATTACH)
    slow.process.send_signal(signal.SIGCONT)
    seen = [one.ended() for one in (early, slow, late)]
    assert [(one.status, one.err) for one in seen] == [(0, "")] * 3
    log = home.tiller("log", "--json")
    check_whole(log.events)
    assert len(log.events) > 20
    assert [one.out for one in seen] == [log.out] * 3


@pytest.mark.promise("B49")
@pytest.mark.nightly
def test_after_kill_9_in_a_call_the_next_verb_starts_a_daemon_that_closes_the_turn(
    home: Home, aimock: Aimock, workspace: Path
) -> None:
    """G8, G11: the call's process is gone, the call does not run again, the session continues."""
    runs(aimock, "apples", "echo $$ >> pids; touch began; sleep 1000")
    # A process in a sandbox does not know the pid that it has outside the sandbox.
    options = ("--approve", "always", "--sandbox", "full_access", "--json")
    turn = home.start("exec", "-C", str(workspace), *options, "apples")
    wait_for(workspace / "began")
    home.kill9()
    listed = home.tiller("ls")
    assert (listed.status, " interrupted " in listed.out) == (0, True)
    said = turn.ended()
    assert said.status == 130
    check_whole(said.events)
    for pid in (workspace / "pids").read_text().split():
        assert gone(int(pid), timeout_s=SLACK_S)

    runs(aimock, "pears", "cat pids | wc -l")
    again = home.tiller("exec", "-C", str(workspace), "--session", "last", "pears")
    assert (again.status, again.out.strip()) == (0, ("pears was done. " * 200).strip())
    assert "lost" in home.tiller("show").out
    whole = home.tiller(*ATTACH).events
    check_whole(whole)
    assert whole[: len(said.events)] == said.events
