"""What a shell completes, and what a command line with a mistake is answered."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.event_bodies import Tiller, started
from support.fake_daemon import FakeDaemon
from tiller_client.command_line.arguments import parse
from tiller_protocol.events import RequestOpened, SessionCreated, SessionTitled
from tiller_protocol.items import Request
from tiller_protocol.places import Places
from tiller_protocol.settings import Settings

SESSION = "01K0AAAAAAAAAAAAAAAAAASES1"
REQUEST = Request("01K0REQ00000000000000000R1", "approval", "bash: ls", subjects=("ls",))

BASH = """
eval "$(tiller completions bash)"
COMP_LINE=$1 COMP_POINT=${#1} COMP_TYPE=9
_python_argcomplete tiller
printf '%s\\n' "${COMPREPLY[@]}"
"""


def completed(line: str) -> list[str]:
    """What a real bash would complete at the end of a line."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", BASH, "bash", line],
        env={**os.environ, "PATH": path},
        capture_output=True,
        check=True,
        text=True,
    )
    return [word.strip() for word in done.stdout.splitlines()]


def test_bash_completes_verbs_options_and_choices(places: Places) -> None:
    assert not places.runtime.exists()
    assert completed("tiller att") == ["attach"]
    assert completed("tiller exec --appr") == ["--approve"]
    assert completed("tiller exec --approve a") == ["ask", "always"]
    assert completed("tiller daemon st") == ["start", "stop", "status"]


def test_bash_completes_what_only_the_daemon_knows(places: Places) -> None:
    with FakeDaemon(places.runtime) as daemon:
        bodies = [SessionCreated("/w", Settings()), SessionTitled("Tea"), started()]
        daemon.add(SESSION, [*bodies, RequestOpened(REQUEST)])
        assert completed("tiller attach ") == ["last", SESSION[-8:]]
        assert completed("tiller answer 0") == [REQUEST.id[-8:]]


def test_bash_completes_hosts_without_connecting_to_them(
    places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places.config.mkdir(parents=True)
    (places.config / "config.toml").write_text('[hosts]\nbox = "me@box"\nfar = "me@far"\n')
    monkeypatch.setenv("TILLER_SSH", f"touch {tmp_path}/connected")
    assert completed("tiller attach b") == ["box:"]
    assert completed("tiller answer fa") == ["far:"]
    assert completed("tiller attach box:") == [""]
    assert completed("tiller --host ") == ["box", "far"]
    assert completed("tiller exec -m b") == [""]
    assert not (tmp_path / "connected").exists()


def test_completing_starts_no_daemon(places: Places) -> None:
    assert completed("tiller attach 0") == [""]
    assert not places.runtime.exists()


@pytest.mark.parametrize(
    ("command_line", "hint"),
    [
        (("exce", "x"), "did you mean: tiller exec?"),
        (("lgo",), "did you mean: tiller log?"),
        (("service",), "did you mean: tiller daemon?"),
        (("session",), "there is no verb 'session'; see: tiller --help"),
        (("exec", "--modle", "m", "x"), "there is no option --modle; did you mean --model?"),
        (("ls", "--archvied"), "did you mean --archived?"),
        (("ls", "more"), "unknown: more; see: tiller ls --help"),
        (("fix the tests",), "tiller exec PROMPT"),
        (("-x",), "unknown: -x; give the verb before its options; see: tiller chat --help"),
        (("-m", "a/b", "exec", "x"), "unknown: exec; give the verb before its options"),
        (("--contineu",), "there is no option --contineu; did you mean --continue?"),
        (("qqq",), "there is no verb 'qqq'; see: tiller --help"),
    ],
)
def test_a_mistake_gets_a_suggestion(
    tiller: Tiller, command_line: tuple[str, ...], hint: str
) -> None:
    status, out, err = tiller(*command_line)
    assert (status, out) == (2, "")
    assert hint in err


def test_options_without_a_verb_are_those_of_a_chat():
    assert parse(["-c", "--agent", "plan"]) == parse(["chat", "-c", "--agent", "plan"])
    assert parse(["--host", "box", "-c"]).verb == "chat"


def test_help_of_a_verb_is_that_of_its_option(tiller: Tiller) -> None:
    assert tiller("help", "daemon", "stop")[:2] == tiller("daemon", "stop", "--help")[:2]
    assert tiller("help")[:2] == tiller("--help")[:2]
    assert tiller("help", "daemon", "stop")[0] == 0
