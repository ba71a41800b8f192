"""The daemon's reports to a service manager: ready, alive, reloading, waiting, stopping."""

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from e2e.gates import Gate
from e2e.words import always, bash, calls
from support.daemon import SLACK_S, START_S, STOP_S, Daemon
from support.each import each
from support.supervisor import Hung, Supervisor
from tiller_daemon.service_manager import watchdog_s

NewDaemon = Callable[..., Daemon]

WATCHDOG_S = 3.0
"""Ten times as long as a busy machine has ever blocked this event loop."""

FED = 7


def tiller(daemon: Daemon, *words: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-P", "-m", "tiller_client", *words]
    return subprocess.Popen(command, env=daemon.variables, stdout=subprocess.PIPE, text=True)


@pytest.mark.nightly
def test_the_watchdog_is_fed_and_the_stop_is_announced(new_daemon: NewDaemon) -> None:
    daemon = new_daemon()
    with Supervisor(daemon, WATCHDOG_S) as supervisor:
        for _ in range(FED):
            supervisor.until("WATCHDOG=1")
        supervisor.process.send_signal(signal.SIGTERM)
        supervisor.until("STOPPING=1")
        assert supervisor.process.wait(STOP_S + SLACK_S) == 0


def test_a_daemon_that_hangs_does_not_feed_the_watchdog(new_daemon: NewDaemon) -> None:
    with Supervisor(new_daemon(), WATCHDOG_S) as supervisor:
        supervisor.process.send_signal(signal.SIGSTOP)
        with pytest.raises(Hung):
            supervisor.until("STOPPING=1")


def test_a_daemon_that_the_watchdog_kills_prints_where_its_event_loop_is(
    new_daemon: NewDaemon, workspace: Path
) -> None:
    """Linux gives SIGABRT to the main thread, unless that is starting a program.

    So a turn goes first, which starts all that a daemon needs.
    """
    daemon = new_daemon()
    model = daemon.script(calls(bash("true")), always("done"))
    with Supervisor(daemon, WATCHDOG_S) as supervisor:
        turn = tiller(daemon, "exec", "-C", str(workspace), "-m", model, "go")
        assert turn.communicate(timeout=START_S)[0] == "done\n"
        supervisor.process.send_signal(signal.SIGABRT)
        assert supervisor.process.wait(START_S) == -signal.SIGABRT
    assert '/trio/_core/_run.py", line' in daemon.said


def test_a_reload_is_announced_with_its_time_and_its_problem(new_daemon: NewDaemon) -> None:
    daemon = new_daemon()
    with Supervisor(daemon, WATCHDOG_S) as supervisor:
        daemon.configure("modell = 1\n")
        supervisor.process.send_signal(signal.SIGHUP)
        *_, begun = supervisor.until("RELOADING=1")
        assert int(begun.partition("MONOTONIC_USEC=")[2]) > 0
        *_, done = supervisor.until("READY=1")
        assert "modell" in done
        daemon.configure("")
        supervisor.process.send_signal(signal.SIGHUP)
        *_, done = supervisor.until("READY=1")
        assert done == "READY=1\nSTATUS=configuration applied"


def test_why_a_start_failed_is_announced(new_daemon: NewDaemon) -> None:
    daemon = new_daemon()
    daemon.configure("modell = 1\n")
    with Supervisor(daemon, WATCHDOG_S, starts=False) as supervisor:
        *_, said = supervisor.until("STATUS=", START_S)
        assert "line 1" in said
        assert "modell" in said
        assert supervisor.process.wait(START_S) == 2


def test_a_service_that_lacks_a_key_names_the_file_for_it(
    new_daemon: NewDaemon, workspace: Path
) -> None:
    daemon = new_daemon()
    provider = 'api = "openai_chat"\nbase_url = "http://127.0.0.1:9/v1"\napi_key_env = "NO_KEY"\n'
    daemon.configure(f'model = "p/m"\n[providers.p]\n{provider}')
    with Supervisor(daemon, WATCHDOG_S):
        turn = tiller(daemon, "exec", "--json", "-C", str(workspace), "go")
        said = turn.communicate(timeout=START_S)[0]
    assert "NO_KEY" in said
    assert "Set it in the file `environment` beside config.toml, then run" in said


def test_a_drain_is_no_stop_until_its_turns_have_ended(
    new_daemon: NewDaemon, workspace: Path
) -> None:
    """A service manager waits for a limited time after STOPPING=1, and a drain has no limit."""
    daemon = new_daemon()
    gate = Gate(workspace)
    model = daemon.script(calls(bash(gate.command)), always("done"))
    with Supervisor(daemon, WATCHDOG_S) as supervisor:
        turn = tiller(daemon, "exec", "-C", str(workspace), "-m", model, "go")
        with gate.path.open("w"):
            stop = tiller(daemon, "daemon", "stop", "--drain")
            before = [*supervisor.until("STATUS=waiting"), *supervisor.until("WATCHDOG=1")]
            before += supervisor.until("WATCHDOG=1")
        assert not any("STOPPING" in text for text in before)
        supervisor.until("STOPPING=1")
        assert turn.communicate(timeout=START_S)[0] == "done\n"
        assert stop.communicate(timeout=START_S)[0] == "stopped\n"
        assert supervisor.process.wait(STOP_S + SLACK_S) == 0


@each(
    ("variables", "expected"),
    [
        ({}, float("inf")),
        ({"WATCHDOG_USEC": "60000000"}, 60.0),
        ({"WATCHDOG_USEC": "60000000", "WATCHDOG_PID": "7"}, 60.0),
        ({"WATCHDOG_USEC": "60000000", "WATCHDOG_PID": "8"}, float("inf")),
        ({"WATCHDOG_USEC": "0"}, float("inf")),
        ({"WATCHDOG_USEC": "soon"}, float("inf")),
        ({"WATCHDOG_USEC": "²"}, float("inf")),
    ],
)
def test_the_watchdog_is_for_the_process_that_it_names(
    variables: dict[str, str], expected: float
) -> None:
    assert watchdog_s(variables, 7) == expected
