"""The table `[hosts]`, as the command line reads it: what it accepts, and where an error is."""

from pathlib import Path

import pytest

from tiller_client.connecting.hosts import Host, configured_hosts, read_hosts
from tiller_client.connecting.runtime import known_remote, my_places
from tiller_client.errors import UsageError


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of the configuration."""
    monkeypatch.setenv("TILLER_HOME", str(tmp_path))
    (tmp_path / "config").mkdir()
    return tmp_path / "config"


def test_without_a_table_there_is_only_this_machine(home: Path) -> None:
    assert configured_hosts() == [Host("", "", my_places())]
    (home / "config.toml").write_text("not = = toml, which is the daemon's to report")
    assert configured_hosts() == [Host("", "", my_places())]


def test_this_machine_is_first_and_the_others_follow_in_the_order_of_the_file(home: Path) -> None:
    (home / "config.toml").write_text('[hosts]\nfar = "far"\nbox = "me@box"\n')
    own, *others = configured_hosts()
    assert own == Host("", "", my_places())
    assert [host[:2] for host in others] == [("far", "far"), ("box", "me@box")]
    for host in others:
        daemon = known_remote(host.places)
        assert daemon
        assert daemon.program == f"tiller --host {host.label}"
    assert len({host.places.runtime for host in (own, *others)}) == 3


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('[hosts]\n\nbox = ""\n', 3),
        ('[hosts]\nfar = "far"\nbox = "-oProxyCommand=x"\n', 3),
        ('[hosts]\nbox = "me box"\n', 2),
        ('[hosts]\nbox = "me@box\\n"\n', 2),
        ("[hosts]\nbox = 7\n", 2),
        ('[hosts]\n"a:b" = "me@box"\n', 2),
        ('[hosts]\n--all = "me@box"\n', 2),
        ('[hosts]\n"" = "me@box"\n', 2),
        ('box = "elsewhere"\n[other]\nbox = 1\n[hosts]\nbox = ""\n', 5),
        ('model = "m"\nhosts.box = ""\n', 2),
        ('\nhosts = { box = "" }\n', 2),
        ("\n\nhosts = 3\n", 3),
        ('[hosts]\nbox = "a"\nbox = "b"\n', 3),
    ],
)
def test_a_bad_entry_is_an_error_with_its_line(home: Path, text: str, line: int) -> None:
    (home / "config.toml").write_text(text)
    with pytest.raises(UsageError, match=rf"config\.toml.*line {line}\b"):
        read_hosts(home)


def test_a_file_that_can_not_be_read_is_an_error_that_says_why(home: Path) -> None:
    (home / "config.toml").write_bytes(b"\xff[hosts]")
    with pytest.raises(UsageError, match="not valid TOML"):
        read_hosts(home)
    (home / "config.toml").unlink()
    (home / "config.toml").mkdir()
    with pytest.raises(UsageError, match="not a regular file"):
        read_hosts(home)
