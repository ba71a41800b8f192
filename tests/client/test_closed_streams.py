"""`tiller` whose standard streams are closed, full, or read by nobody; like coreutils."""

import json
import os
import subprocess
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from support.event_bodies import ended, started, text_item, tool_call
from support.fake_daemon import FakeDaemon
from support.terminal import TILLER, TIMEOUT_S
from tiller_client.__main__ import STATUS_BROKEN_PIPE
from tiller_protocol.events import RequestOpened, SessionCreated, SessionTitled
from tiller_protocol.items import Request
from tiller_protocol.places import DAEMON_OUTPUT_FILE, Places
from tiller_protocol.settings import Settings

SESSION = "01K0AAAAAAAAAAAAAAAAAASES1"
REQUEST = Request("01K0REQ00000000000000000R1", "approval", "bash: ls", subjects=("ls",))

PRINTING = (
    *("ls", "show last", "log --json last", "models", "schema", "daemon logs"),
    *("queue last", "send last x", "exec --session last x", "exec --json x", "interrupt last"),
    *("--help", "--version", "exec --help", "rpc"),
)
"""Command lines that print something if all goes well."""

Done = subprocess.CompletedProcess[str]


def play(daemon: FakeDaemon, session_id: str) -> None:
    daemon.add(session_id, [started(), *text_item("i1", "Done."), ended("Done.")])


@pytest.fixture
def daemon(places: Places) -> Generator[FakeDaemon]:
    """A daemon with a session that has something to print of everything."""
    places.state.mkdir(parents=True)
    (places.state / DAEMON_OUTPUT_FILE).write_text("ready\n")
    with FakeDaemon(places.runtime, play) as fake:
        edit = tool_call("i2", "edit", "a.py", diff="@@ -1 +1 @@\n-a\n+b\n")
        opened = [SessionCreated(str(Path.cwd()), Settings()), started(), *edit]
        fake.add(SESSION, [*opened, RequestOpened(REQUEST)])
        yield fake


def run(line: str, redirection: str = "", stdout: int = subprocess.PIPE) -> Done:
    """Run a command line of `tiller` in a shell, with this redirection."""
    return subprocess.run(
        ["bash", "-c", f'"$@" {line} {redirection}', "bash", *TILLER],
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        timeout=3 * TIMEOUT_S,
    )


def of_each(redirection: str, stdout: int = subprocess.PIPE) -> list[tuple[str, Done]]:
    with ThreadPoolExecutor(2) as pool:
        done = pool.map(lambda line: run(line, redirection, stdout), PRINTING)
        return list(zip(PRINTING, done, strict=True))


@pytest.mark.parametrize(
    ("redirection", "problem", "unbuffered"),
    [("> /dev/full", "No space left on device", ""), (">&-", "Bad file descriptor", "1")],
)
def test_what_can_not_be_written_is_a_sentence_and_1_for_every_verb(
    daemon: FakeDaemon,
    monkeypatch: pytest.MonkeyPatch,
    redirection: str,
    problem: str,
    unbuffered: str,
) -> None:
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    assert daemon
    for line, done in of_each(redirection):
        assert done.returncode == 1, (line, done)
        assert done.stderr.endswith(f"tiller: write error: {problem}\n"), (line, done)
        assert "Traceback" not in done.stderr, line


def test_a_reader_that_has_gone_ends_every_verb_without_a_word(daemon: FakeDaemon) -> None:
    assert daemon
    reading, writing = os.pipe()
    os.close(reading)
    for line, done in of_each("", writing):
        assert done.returncode == STATUS_BROKEN_PIPE, (line, done)
        assert "rror" not in done.stderr, (line, done)
    os.close(writing)


def test_a_reader_that_goes_in_the_middle_gets_its_line(daemon: FakeDaemon) -> None:
    daemon.add(SESSION, [SessionTitled("Tea" * 1000) for _ in range(200)])
    done = run("log --json last", "| head -n 1; echo ${PIPESTATUS[0]}")
    line, status = done.stdout.splitlines()
    assert (json.loads(line)["seq"], int(status), done.stderr) == (1, STATUS_BROKEN_PIPE, "")


@pytest.mark.parametrize(
    ("line", "status", "out"),
    [("exec hi", 0, "Done.\n"), ("show nosuch", 2, ""), ("show --nosuch", 2, ""), ("frob", 2, "")],
)
@pytest.mark.parametrize("redirection", ["2> /dev/full", "2>&-", "<&- 2>&-"])
def test_what_stderr_can_not_take_changes_nothing_else(
    daemon: FakeDaemon, redirection: str, line: str, status: int, out: str
) -> None:
    assert daemon
    done = run(line, redirection)
    assert (done.returncode, done.stdout) == (status, out)
