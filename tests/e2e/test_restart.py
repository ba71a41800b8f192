"""`tiller` says when a restart would help; a restart that can't succeed stops nothing."""

import shutil
import signal
import subprocess
from collections.abc import Callable, Generator
from importlib.metadata import version
from pathlib import Path

import pytest

import tiller_daemon
import tiller_protocol
from e2e.words import hang
from support.daemon import CONFIG, Daemon
from support.installation import make_installation
from support.terminal import Terminal

pytestmark = pytest.mark.whole_start

PROVIDER = (
    '[providers.later]\napi = "openai_chat"\nbase_url = "http://127.0.0.1:9/v1"\n'
    'api_key_env = "LATER_KEY"\n'
)
KEY = "sk-nobody-may-see-this"


@pytest.fixture
def daemon(new_daemon: Callable[..., Daemon]) -> Generator[Daemon]:
    """A daemon that may be replaced by one that `tiller` starts."""
    daemon = new_daemon()
    daemon.start()
    yield daemon
    tiller(daemon, "daemon", "stop")


def tiller(daemon: Daemon, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [daemon.python, "-P", "-m", "tiller_client", *words],
        check=False,
        capture_output=True,
        text=True,
        env=daemon.variables | variables,
    )


def on_terminal(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch, *words: str, **variables: str
) -> str:
    """Return the lines that `tiller` shows on a terminal."""
    for name, value in (daemon.variables | variables).items():
        monkeypatch.setenv(name, value)
    terminal = Terminal(*words, columns=300)
    terminal.end()
    return terminal.screen


def pid(daemon: Daemon) -> str:
    return tiller(daemon, "daemon", "status").stdout.partition("pid ")[2].partition(",")[0]


@pytest.mark.nightly
def test_a_restart_over_a_mistake_in_the_configuration_stops_nothing(daemon: Daemon) -> None:
    before = pid(daemon)
    daemon.configure("\nmodell = 1\n" + CONFIG)
    done = tiller(daemon, "daemon", "restart")
    assert done.returncode == 1
    assert "nothing was stopped, because a new daemon could not start" in done.stderr
    assert f"{daemon.places.config / 'config.toml'}, line 2" in done.stderr
    assert pid(daemon) == before
    daemon.configure(CONFIG)
    assert tiller(daemon, "daemon", "restart").returncode == 0
    assert pid(daemon) not in ("", before)


def test_a_restart_with_a_program_that_can_not_be_imported_stops_nothing(
    daemon: Daemon, tmp_path: Path
) -> None:
    before = pid(daemon)
    package = tmp_path / "tiller_daemon"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text("import a_package_that_nobody_installed\n")
    daemon.python = make_installation(tmp_path / "python", tmp_path)
    done = tiller(daemon, "daemon", "restart")
    assert done.returncode == 1
    assert "nothing was stopped" in done.stderr
    assert "a_package_that_nobody_installed" in done.stderr
    assert pid(daemon) == before


@pytest.mark.parametrize(("verb", "done"), [("restart", "restarted"), ("stop", "stopped")])
def test_no_turn_that_nobody_gave_up_is_interrupted(
    daemon: Daemon, tmp_path: Path, verb: str, done: str
) -> None:
    before = pid(daemon)
    model = daemon.script(hang("So far."))
    session_id = tiller(daemon, "new", "-C", str(tmp_path), "-m", model).stdout.strip()
    assert tiller(daemon, "send", session_id, "go").returncode == 0
    refused = tiller(daemon, "daemon", verb)
    assert refused.returncode == 2
    assert f"1 turn would be interrupted, so nothing was {done}" in refused.stderr
    assert "add --drain; to interrupt them, add --yes" in refused.stderr
    assert pid(daemon) == before
    assert tiller(daemon, "daemon", verb, "--yes").returncode == 0
    assert pid(daemon) != before
    assert tiller(daemon, "daemon", verb).returncode == 0


@pytest.mark.nightly
def test_a_key_that_only_the_shell_has_is_named_and_not_shown(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once per command, only on a terminal, and not after the restart that it asks for."""
    assert "LATER_KEY" not in on_terminal(daemon, monkeypatch, "ls", LATER_KEY=KEY)
    daemon.configure(CONFIG + PROVIDER)
    said = on_terminal(daemon, monkeypatch, "models", LATER_KEY=KEY)
    assert said.count("LATER_KEY is set here, but not where the running daemon was started") == 1
    assert "run: tiller daemon restart" in said
    assert KEY not in said
    assert "set here" not in on_terminal(daemon, monkeypatch, "ls", "--json", LATER_KEY=KEY)
    assert "set here" not in on_terminal(daemon, monkeypatch, "ls", LATER_KEY="")
    assert tiller(daemon, "ls", LATER_KEY=KEY).stderr == ""
    restarted = on_terminal(daemon, monkeypatch, "daemon", "restart", LATER_KEY=KEY)
    assert "tillerd" in restarted
    assert "set here" not in restarted
    assert "set here" not in on_terminal(daemon, monkeypatch, "ls", LATER_KEY=KEY)


def test_a_well_known_key_is_named_as_long_as_no_model_is_configured(
    new_daemon: Callable[..., Daemon], monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon = new_daemon("")
    daemon.start()
    assert "OPENAI_API_KEY is set here" in on_terminal(
        daemon, monkeypatch, "ls", OPENAI_API_KEY=KEY
    )
    daemon.configure(CONFIG)
    assert "set here" not in on_terminal(daemon, monkeypatch, "ls", OPENAI_API_KEY=KEY)


@pytest.mark.nightly
def test_a_daemon_whose_program_was_replaced_is_named(
    new_daemon: Callable[..., Daemon], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new installation of the same version, then of another one."""
    for package in (tiller_daemon, tiller_protocol):
        source = Path(package.__file__ or "").parent
        shutil.copytree(source, tmp_path / source.name)
    daemon = new_daemon()
    daemon.python = make_installation(tmp_path / "python", tmp_path)
    daemon.start()
    assert "restart" not in on_terminal(daemon, monkeypatch, "ls")
    file = tmp_path / "tiller_protocol" / "__init__.py"
    new = file.with_suffix(".new")
    shutil.copy2(file, new)
    new.rename(file)
    said = on_terminal(daemon, monkeypatch, "ls")
    assert said.count("tillerd was reinstalled after the running daemon was started") == 1
    daemon.kill9()
    text = file.read_text().replace(f'"{tiller_protocol.VERSION}"', '"0.0.9"')
    file.write_text(text)
    daemon.start()
    said = on_terminal(daemon, monkeypatch, "ls")
    assert f"tillerd 0.0.9, but this is tiller {tiller_protocol.VERSION}" in said
    assert "reinstalled" not in said
    assert "restart" not in on_terminal(daemon, monkeypatch, "daemon", "stop")


def test_the_version_is_that_of_the_package() -> None:
    assert version("tillerd") == tiller_protocol.VERSION


@pytest.mark.nightly
def test_who_only_watches_starts_no_daemon_that_was_stopped_and_goes_on_with_the_next(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, value in daemon.variables.items():
        monkeypatch.setenv(name, value)
    session_id = tiller(daemon, "new", "-C", str(tmp_path)).stdout.strip()
    terminal = Terminal("attach", session_id, columns=300)
    terminal.wait_for("type the next task")
    assert tiller(daemon, "daemon", "stop").returncode == 0
    terminal.wait_for("the daemon was stopped; waiting for the next one")
    assert tiller(daemon, "daemon", "status").returncode == 1
    assert tiller(daemon, "send", "--no-reply", session_id, "are you there?").returncode == 0
    terminal.wait_for("are you there?")
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.end() == 0
