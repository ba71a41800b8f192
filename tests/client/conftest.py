"""Fixtures: a runtime directory for each test, and `tiller` run in this process."""

from pathlib import Path

import pytest

from support.event_bodies import Tiller
from support.installation import make_installation
from tiller_client.__main__ import main
from tiller_client.connecting import starting
from tiller_client.connecting.runtime import my_places
from tiller_protocol.places import Places


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Places:
    monkeypatch.setenv("TILLER_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.delenv("TERM", raising=False)
    return my_places()


@pytest.fixture
def fake_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the path of a module that replaces `tiller_daemon`; its code exits at once."""
    package = tmp_path / "path" / "tiller_daemon"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    module = package / "__main__.py"
    module.touch()
    python = make_installation(tmp_path / "python", package.parent, Path(__file__).parent.parent)
    monkeypatch.setattr(starting, "DAEMON_COMMAND", (python, *starting.DAEMON_COMMAND[1:]))
    return module


@pytest.fixture
def tiller(places: Places, capfd: pytest.CaptureFixture[str]) -> Tiller:
    """Return a function that runs a command line and returns exit status, stdout and stderr."""
    assert places

    def run(*command_line: str) -> tuple[int, str, str]:
        capfd.readouterr()
        try:
            status = main(command_line)
        except SystemExit as error:
            status = error.code if isinstance(error.code, int) else 1
        out, err = capfd.readouterr()
        return status, out, err

    return run
