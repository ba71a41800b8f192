"""Which directories are homes of other users."""

import os
import pwd
from pathlib import Path
from typing import Final

import pytest

from tiller_daemon.sandbox.known_paths import PERSON_UID_MIN, SYSTEM, other_homes


def user(name: str, uid: int, home: object) -> pwd.struct_passwd:
    return pwd.struct_passwd((name, "x", uid, uid, "", str(home), "/bin/sh"))


class Machine:
    """A directory `home` with the own home in it, and users besides."""

    def __init__(self, root: Path) -> None:
        self.root, self.places = root, root / "home"
        self.own = self.add("home/me")
        self.users = [user("me", 1000, self.own)]

    def add(self, path: str) -> Path:
        made = self.root / path
        made.mkdir(parents=True)
        return made

    def found(self) -> list[str]:
        found = other_homes(self.own, self.users, (self.places,))
        return [str(path.relative_to(self.root)) for path in found]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_the_homes_of_root_and_of_persons_are_found(machine: Machine) -> None:
    machine.users += [
        user("root", 0, machine.add("root")),
        user("ann", PERSON_UID_MIN, machine.add("srv/ann")),
        user("far", 1_700_000_000, machine.add("net/far")),
        user("toor", 0, machine.root / "root"),
    ]
    assert machine.found() == ["root", "srv/ann", "net/far"]


def test_every_directory_beside_the_own_home_is_found(machine: Machine) -> None:
    for name in ("ann", "bob", "left by a deleted user"):
        machine.add(f"home/{name}")
    (machine.places / "file").touch()
    machine.users.append(user("bob", 1001, machine.places / "bob"))
    assert machine.found() == ["home/bob", "home/ann", "home/left by a deleted user"]


def test_links_are_resolved(machine: Machine) -> None:
    real = machine.add("disk/ann")
    (machine.places / "ann").symlink_to(real)
    (machine.places / "gone").symlink_to(machine.root / "nothing")
    (machine.places / "also me").symlink_to(machine.own)
    machine.users.append(user("ann", 1001, machine.places / "ann"))
    assert machine.found() == ["disk/ann"]


def test_the_own_home_is_left_out_under_each_of_its_names(machine: Machine) -> None:
    link = machine.root / "link"
    link.symlink_to(machine.own)
    machine.users.append(user("twin", 1001, link))
    assert machine.found() == []
    assert other_homes(link, machine.users, (machine.places,)) == ()


BROKEN: Final = ("", "/nonexistent", "relative", ".", "~", "/dev/null", "/etc/passwd")


@pytest.mark.parametrize(
    "home", ["/", "//", *SYSTEM, "/usr/sbin", "/usr/games", "/usr/..", *BROKEN]
)
def test_a_system_path_is_no_home(machine: Machine, home: str) -> None:
    machine.users.append(user("odd", 1001, home))
    assert machine.found() == []


@pytest.mark.parametrize("home", ["", "home", "home/me", "home/me/inside", "home/.."])
def test_a_directory_around_or_inside_the_own_home_is_none(machine: Machine, home: str) -> None:
    (machine.own / "inside").mkdir()
    machine.users.append(user("odd", 0, machine.root / home))
    assert machine.found() == []


@pytest.mark.parametrize("uid", [1, 33, PERSON_UID_MIN - 1])
def test_the_directories_of_services_are_none_unless_they_are_among_homes(
    machine: Machine, uid: int
) -> None:
    machine.users += [
        user("web", uid, machine.add("var/www")),
        user("x", uid, machine.add("home/x")),
    ]
    assert machine.found() == ["home/x"]


def test_on_this_machine_they_are_directories_outside_the_own_home_and_the_system() -> None:
    own = Path(os.path.realpath(Path.home()))
    found = other_homes(own)
    assert all(path.is_dir() and path == path.resolve() for path in found)
    assert not any(own.is_relative_to(path) for path in found)
