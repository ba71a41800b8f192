"""Files that rules protect stay hidden from builds, wherever a build moves or links them."""

from collections.abc import Generator
from pathlib import Path
from typing import Final

import pytest

from sandbox.test_quarantine import Runner
from support.jail import SECRET, WHO, Jail, jail_of
from tiller_daemon.sandbox.base import SandboxProfile
from tiller_daemon.sandbox.level import SandboxLevel
from tiller_daemon.sandbox.seatbelt import rules_for

READ_ONLY: Final = SandboxLevel.READ_ONLY


@pytest.fixture
def jail() -> Generator[Jail]:
    with jail_of() as made:
        yield made


MOVES: Final = {
    "into installed packages": ("mv a node_modules/", "node_modules/a/b/keys.env"),
    "from above": ("mv a/b node_modules/", "node_modules/b/keys.env"),
    "where no search goes": ("mkdir -p x/.git; mv a x/.git/", "x/.git/a/b/keys.env"),
    "by an exchange": (
        '"$PYTHON" -c "import ctypes as c;'
        "c.CDLL(None).renameat2(-100, b'a', -100, b'node_modules', 2)\"",
        "node_modules/b/keys.env",
    ),
    "with its name": ("for do in ln cp mv; do $do a/b/keys.env plain; done", "plain"),
    "to a closed directory": ("chmod 600 a/b", "a/b/keys.env"),
    "to a directory closed above": ("chmod 600 a", "a/b/keys.env"),
}  # fmt: skip


@pytest.mark.parametrize("who", WHO)
@pytest.mark.parametrize("name", MOVES)
async def test_no_build_moves_a_hidden_file_to_where_the_next_one_sees_it(
    jail: Jail, name: str, who: str
) -> None:
    move, place = MOVES[name]
    (jail.workspace / "a" / "b").mkdir(parents=True)
    (jail.workspace / "node_modules").mkdir()
    (jail.workspace / "a" / "b" / "keys.env").write_text(SECRET)
    run = Runner(jail, who)
    await run.run(move)
    await run.run(f"chmod 755 a a/b node_modules/b; cat {place}; echo ran")
    await run.run(f"cat {place} a/b/keys.env node_modules/*/*.env; echo ran")
    assert SECRET not in jail.said
    assert jail.said.endswith("ran\n")


@pytest.mark.parametrize("who", WHO)
async def test_no_build_moves_the_directory_above_the_daemons_configuration(
    jail: Jail, who: str
) -> None:
    place = jail.workspace / "tools" / "conf" / "tiller"
    place.mkdir(parents=True)
    (place / "config.toml").write_text("mine\n")
    run = Runner(jail, who, protected=(place,))
    for directory in ("tools", "tools/conf", "tools/conf/tiller"):
        await run.run(f"mv {directory} moved; mkdir -p {directory}; echo evil >{place}/config.toml")
    assert (place / "config.toml").read_text() == "mine\n"
    assert "busy" in jail.said


LINKS: Final = {
    "nowhere": "/nowhere/at/all",
    "to a missing file": "missing",
    "to itself": "x.env",
    "to the workspace": ".",
    "above": "../..",
    "to a directory": "there",
    "to a missing file in it": "there/missing",
}


@pytest.mark.parametrize("who", WHO[-1:])
@pytest.mark.parametrize("name", LINKS)
async def test_commands_run_beside_a_protected_name_that_is_a_link(
    jail: Jail, name: str, who: str
) -> None:
    (jail.workspace / "there").mkdir()
    (jail.workspace / "there" / "file").write_text("in it")
    (jail.workspace / "x.env").symlink_to(LINKS[name])
    (jail.workspace / ".x.env").symlink_to(LINKS[name])
    before = jail.state()
    run = Runner(jail, who)
    for level in SandboxLevel.READ_ONLY, SandboxLevel.BUILD, SandboxLevel.SESSION:
        told = await run.run("cat there/file && echo ran", level)
        assert told == ""
    assert jail.said.count("in itran\n") == 3, jail.said
    after = jail.state()
    assert {path for path in after if after[path] != before.get(path) and "home/" in path} == set()


async def test_the_target_of_a_protected_name_is_hidden(jail: Jail) -> None:
    (jail.workspace / "plain").write_text(SECRET)
    (jail.workspace / "x.env").symlink_to("plain")
    await Runner(jail, "root").run("cat x.env; cat plain")
    assert SECRET not in jail.said


async def test_a_path_that_is_too_long_stops_no_command(jail: Jail) -> None:
    run = Runner(jail, "root")
    deep = "for i in $(seq 30); do mkdir {0} && cd {0} || exit; done".format("d" * 200)
    await run.run(f"mkdir deep; cd deep; {deep}; echo made")
    await run.run("echo ran", READ_ONLY)
    await run.run("echo ran; rm -r deep")
    assert "made" in jail.said
    assert jail.said.count("ran") == 2, jail.said
    assert not (jail.workspace / "deep").exists()


def test_the_profile_for_macos_keeps_directories_above_hidden_files_in_place() -> None:
    w = Path("/w")
    text = rules_for(
        SandboxProfile(w, writable=(w,), hidden=(w / "a/b/.env", Path("/elsewhere/x")))
    )
    pinned = [line for line in text.split("\n") if "file-write-unlink" in line]
    assert pinned == [f'(deny file-write-unlink (literal "/w/{name}"))' for name in ("a", "a/b")]
