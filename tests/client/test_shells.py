"""Completion in real shells, zsh and fish; `test_completion` has bash."""

import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Generator
from pathlib import Path

import pytest

from support.event_bodies import started
from support.fake_daemon import FakeDaemon
from support.terminal import TIMEOUT_S
from tiller_protocol.events import SessionCreated, SessionTitled
from tiller_protocol.places import Places
from tiller_protocol.settings import Settings

SESSION = "01K0AAAAAAAAAAAAAAAAAASES1"
CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
ZSH_SETUP = (
    "autoload -Uz compinit && compinit -u -D; PS1='ready> '; "
    'eval "$(tiller completions zsh)"; clear\n'
)


@pytest.fixture
def shell_variables(
    places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Generator[dict[str, str]]:
    """The environment of a shell of somebody without any configuration, who has a session."""
    with FakeDaemon(places.runtime) as daemon:
        daemon.add(SESSION, [SessionCreated("/w", Settings()), SessionTitled("Green tea")])
        daemon.add(SESSION, [started()])
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        home = tmp_path / "user"
        home.mkdir()
        yield {**os.environ, "PATH": path, "HOME": str(home), "ZDOTDIR": str(home), "TERM": "xterm"}


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
def test_fish_completes_verbs_options_and_sessions_with_their_titles(
    shell_variables: dict[str, str],
) -> None:
    lines = ("tiller att", "tiller exec --appr", "tiller attach ")
    asked = "; ".join(f"complete -C {line!r}" for line in lines)
    done = subprocess.run(
        ["fish", "--no-config", "-c", f"tiller completions fish | source; {asked}"],
        env=shell_variables,
        capture_output=True,
        check=True,
        text=True,
    )
    found = dict((line + "\t").split("\t")[:2] for line in done.stdout.splitlines())
    assert {"attach", "--approve", "last", SESSION[-8:]} <= found.keys()
    assert found[SESSION[-8:]].endswith("/w Green tea")


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
def test_zsh_completes_verbs_options_and_sessions_with_their_titles(
    shell_variables: dict[str, str],
) -> None:
    master, slave = pty.openpty()
    with subprocess.Popen(
        ["zsh", "-f", "-i"], stdin=slave, stdout=slave, stderr=slave, env=shell_variables
    ) as shell:
        os.close(slave)
        try:
            typed(master, "PS1='%% '\n", "%% ")
            typed(master, ZSH_SETUP, "ready> ")
            typed(master, "tiller att\t", "tiller attach ")
            listed = typed(master, "\t", "Green tea")
            assert SESSION[-8:] in listed
            assert "last" in listed
            typed(master, "\x15tiller exec --appr\t", "--approve ")
        finally:
            shell.kill()
            os.close(master)


def typed(terminal: int, keys: str, awaited: str) -> str:
    """Type, and read what the terminal shows until the awaited words are there."""
    os.write(terminal, keys.encode())
    shown, deadline = "", time.monotonic() + TIMEOUT_S
    while awaited not in CONTROL.sub("", shown):
        assert select.select([terminal], [], [], deadline - time.monotonic())[0], shown
        shown += os.read(terminal, 65536).decode(errors="replace")
    return CONTROL.sub("", shown)
