"""Where a registry never answers, tests that need a package are skipped after one short wait."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import peers

pytestmark = pytest.mark.nightly


def connections(server: socket.socket) -> int:
    """How many connections were made since this was asked last."""
    count = 0
    while True:
        try:
            server.accept()[0].close()
        except BlockingIOError:
            return count
        count += 1


@pytest.fixture
def silent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """A registry that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0)
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        for name, value in {
            "XDG_CACHE_HOME": str(tmp_path),
            "PIP_CONFIG_FILE": "/dev/null",
            "PIP_INDEX_URL": f"{url}/simple",
            "npm_config_registry": url,
            "NO_PROXY": "127.0.0.1",
            "TILLER_PEERS": "",
        }.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(peers, "PROBE_S", 5.0)
        yield server


def test_the_first_test_finds_out_and_the_others_ask_no_more(silent: socket.socket) -> None:
    with pytest.raises(pytest.skip.Exception, match="ty==1 can't be installed: pip's registry"):
        peers._installed("ty==1", peers._pip_install)
    assert connections(silent) > 0
    with pytest.raises(pytest.skip.Exception, match="git==2 can't be installed: pip's registry"):
        peers._installed("git==2", peers._pip_install)
    assert connections(silent) == 0


def test_what_is_installed_needs_no_registry(silent: socket.socket, tmp_path: Path) -> None:
    place = tmp_path / "tiller-peers" / "ty==1"
    place.mkdir(parents=True)
    assert peers._installed("ty==1", peers._pip_install) == place
    assert connections(silent) == 0
