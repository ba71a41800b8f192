"""The registry of a user's daemons: what each registers is hidden from the commands of all."""

from pathlib import Path

from tiller_daemon.sandbox.daemon_registry import REGISTRY, register, registered


def test_what_every_daemon_keeps_is_known_to_all_as_long_as_it_is_there(tmp_path: Path) -> None:
    home, one, other = (tmp_path / name for name in ("home", "one", "other"))
    for path in (home, one, other):
        path.mkdir()
    register(home, (one, tmp_path / "gone"))
    register(home, (other,))
    register(home, (other,))
    assert sorted(registered(home)) == [one, other]
    assert len(list((home / REGISTRY).iterdir())) == 2
    other.rmdir()
    assert registered(home) == [one]
    assert len(list((home / REGISTRY).iterdir())) == 1


def test_a_home_that_can_not_be_written_to_keeps_no_daemon_from_starting(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.write_text("no directory")
    register(home, (tmp_path,))
    assert registered(home) == []
