"""The permissions in docs/fleet.md: what each role can do with them on a real server."""

import re
from collections.abc import Generator
from pathlib import Path

import pytest

from e2e.words import text
from support.fleet import Broker, Host, repository

PAGE = Path(__file__).parents[2] / "docs" / "fleet.md"

GATEWAY, DRIVER, VIEWER = "box:secret-1", "ann:secret-2", "bob:secret-3"


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Generator[Host]:
    directory = tmp_path_factory.mktemp("f")
    (shown,) = re.findall(r"test_permissions.py -->\n```\n(.*?)```", PAGE.read_text(), re.DOTALL)
    with Broker(directory, shown) as broker:
        (directory / "h").mkdir()
        host = Host(directory / "h", "box", broker)
        use(host, GATEWAY)
        with host:
            yield host


def use(host: Host, credentials: str) -> Host:
    """From now on, use the command line with these credentials."""
    file = host.daemon.places.config / "config.toml"
    address = f"nats://{credentials}@127.0.0.1:{host.link.port}"
    file.write_text(re.sub(r'servers = \["[^"]*"\]', f'servers = ["{address}"]', file.read_text()))
    return host


def test_a_viewer_sees_all_and_changes_nothing(host: Host, tmp_path: Path) -> None:
    origin = repository(tmp_path / "origin")
    model = host.daemon.script(text("Done."))
    (task,) = use(host, DRIVER).run("Go", origin, "--model", model)
    assert host.ended(task)["state"] == "done"
    viewer = use(host, VIEWER)
    assert "completed" in viewer.tiller("fleet", "ls", "--all").stdout
    assert "Done." in viewer.tiller("fleet", "logs", task).stdout
    for words in (("run", "Go", "--repo", str(origin)), ("drain", "box"), ("cancel", task)):
        done = viewer.tiller("fleet", *words)
        assert done.returncode, words
        assert "permissions violation" in done.stderr or "already ended" in done.stderr, done


def test_wrong_credentials_get_a_clear_error(host: Host) -> None:
    done = use(host, "nobody:nobody-pw").tiller("fleet", "ls")
    assert done.returncode == 2
    assert "refuses the credentials" in done.stderr
    assert "nobody-pw" not in done.stderr
