"""Paths that exist only while commands need them: none is removed under a command."""

import os
from collections.abc import Generator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from tiller_daemon.processes.command import run_command
from tiller_daemon.sandbox.bubblewrap import Bubblewrap
from tiller_daemon.sandbox.confinement import CommandSandbox, Confinement
from tiller_daemon.sandbox.detect import bubblewrap_program
from tiller_daemon.sandbox.enclosure import Enclosure
from tiller_daemon.sandbox.temporary_paths import TemporaryPaths, remove_abandoned

NAMES = ("a", "a/b", "a/b/c", "d")


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    (workspace := tmp_path / "workspace").mkdir()
    return workspace


@pytest.fixture
def bubblewrap() -> Bubblewrap:
    program = bubblewrap_program()
    if program is None:
        pytest.skip("no bwrap: apt install bubblewrap")
    return Bubblewrap(program)


def owners(sandbox: Bubblewrap, workspace: Path) -> CommandSandbox:
    """The sandbox of the one command that may write to `new`, and to nothing else."""
    may = Confinement(workspace, writable=(workspace / "new",))
    return CommandSandbox(sandbox, may, Enclosure.SESSION, [])


def others(sandbox: Bubblewrap, workspace: Path) -> CommandSandbox:
    """The sandbox of a command that may write to everything but `new`."""
    new = (workspace / "new",)
    read_only, absent = (new, ()) if new[0].exists() else ((), new)
    may = Confinement(workspace, writable=(workspace,), read_only=read_only, absent=absent)
    return CommandSandbox(sandbox, may, Enclosure.SESSION, [])


async def test_a_command_can_write_to_its_directory_when_one_that_may_not_has_ended(
    bubblewrap: Bubblewrap, workspace: Path
) -> None:
    """The other command began first, so the directory was made as its placeholder."""
    ready, has_ended = trio.Event(), trio.Event()

    async def receive(_piece: bytes) -> None:
        ready.set()

    async def run(line: str, sandbox: CommandSandbox) -> int | None:
        end = await run_command(
            ["sh", "-c", line],
            directory=workspace,
            variables={"PATH": os.environ["PATH"]},
            receive=receive,
            timeout_s=60,
            confined=sandbox,
        )
        has_ended.set()
        return end.status

    async with trio.open_nursery() as nursery:
        other = others(bubblewrap, workspace)
        nursery.start_soon(run, "until [ -e go ]; do sleep 0.01; done", other)
        while not (workspace / "new").exists():
            await trio.lowlevel.checkpoint()
        written: list[int | None] = []

        async def write() -> None:
            line = "echo ready; until [ -e gone ]; do sleep 0.01; done; echo 1 > new/x"
            written.append(await run(line, owners(bubblewrap, workspace)))

        nursery.start_soon(write)
        await ready.wait()
        (workspace / "go").touch()
        await has_ended.wait()
        (workspace / "gone").touch()
    assert written == [0]
    assert (workspace / "new" / "x").read_text() == "1\n"


@pytest.mark.parametrize("first", [owners, others])
@pytest.mark.parametrize("second", [owners, others])
def test_a_directory_is_there_until_the_last_command_that_needs_it_has_ended(
    workspace: Path, first, second
) -> None:
    sandbox, new = Bubblewrap("bwrap"), workspace / "new"
    with ExitStack() as both:
        one = both.enter_context(ExitStack())
        one.enter_context(first(sandbox, workspace).wrap(["true"]))
        both.enter_context(second(sandbox, workspace).wrap(["true"]))
        one.close()
        assert new.is_dir()
    assert not new.exists()


@given(st.lists(st.lists(st.sampled_from(NAMES), unique=True) | st.integers(0, 3)))
def test_exactly_the_paths_in_use_exist(steps: list[list[str] | int]) -> None:
    with TemporaryDirectory() as made:
        paths, uses = TemporaryPaths(), list[tuple[ExitStack, set[Path]]]()
        for step in steps:
            if isinstance(step, int):
                for stack, _ in uses[step : step + 1]:
                    stack.close()
                del uses[step : step + 1]
            else:
                used = sorted({Path(made, *n.split("/")[: i + 1]) for n in step for i in range(3)})
                stack = ExitStack()
                stack.enter_context(paths.used(used))
                uses.append((stack, {*used}))
            there = {path for path in (Path(made, name) for name in NAMES) if path.exists()}
            assert there == {path for _, used in uses for path in used}
        for stack, _ in uses:
            stack.close()


@pytest.fixture
def killed(tmp_path: Path, workspace: Path) -> Generator[tuple[Path, list[Path], Path]]:
    """The records of a killed daemon, and the directories and the file that were in use."""
    records = tmp_path / "records"
    paths, directories = TemporaryPaths(records), [workspace / name for name in NAMES]
    with paths.used(directories, [workspace / "HEAD"]):
        yield records, directories, workspace / "HEAD"


def test_what_a_killed_daemon_left_is_removed(killed, workspace: Path) -> None:
    records, directories, file = killed
    assert sorted(remove_abandoned(records)) == sorted([*directories, file])
    assert [*workspace.iterdir(), *records.iterdir()] == []


def test_what_has_got_content_stays(killed, workspace: Path) -> None:
    records, (a, b, c, d), file = killed
    (b / "mine").touch()
    file.write_text("mine")
    assert sorted(remove_abandoned(records)) == [c, d]
    assert sorted(workspace.rglob("*")) == [file, a, b, b / "mine"]
    assert [*records.iterdir()] == []


def test_what_was_not_made_with_its_record_is_somebody_elses(killed, workspace: Path) -> None:
    """The daemon died before it made them, and the user made them later."""
    records, (*_, d), file = killed
    for record in records.iterdir():
        if record.read_bytes() in (os.fsencode(d), os.fsencode(file)):
            os.utime(record, (0, record.stat().st_mtime - 2))
    assert len(remove_abandoned(records)) == 3
    assert sorted(workspace.iterdir()) == [file, d]
    assert [*records.iterdir()] == []


def test_a_record_is_kept_while_its_path_can_not_be_reached(killed, workspace: Path) -> None:
    records, (*_, d), _ = killed
    gone = workspace.rename(workspace.with_name("unplugged"))
    assert remove_abandoned(records) == []
    gone.rename(workspace)
    assert d in remove_abandoned(records)
    assert [*workspace.iterdir(), *records.iterdir()] == []


def test_a_path_has_a_record_before_it_exists_and_until_it_is_gone(
    tmp_path: Path, workspace: Path
) -> None:
    paths = TemporaryPaths(records := tmp_path / "records")
    with pytest.raises(FileNotFoundError), paths.used([workspace / "none" / "a"]):
        pass
    assert [*records.iterdir()] == []
    with paths.used([workspace / "a"]):
        (record,) = records.iterdir()
        assert record.read_bytes() == os.fsencode(workspace / "a")
    records.rmdir()
    with pytest.raises(FileNotFoundError), paths.used([workspace / "a"]):
        pass
    records.mkdir()
    assert [*workspace.iterdir(), *records.iterdir()] == []
