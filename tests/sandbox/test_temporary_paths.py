"""Paths that exist only while commands need them: none is removed under a command."""

import os
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
from tiller_daemon.sandbox.temporary_paths import TemporaryPaths

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
        new.mkdir(exist_ok=True)  # As bubblewrap makes a placeholder.
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
                for path in used:
                    path.mkdir(exist_ok=True)
                uses.append((stack, {*used}))
            there = {path for path in (Path(made, name) for name in NAMES) if path.exists()}
            assert there == {path for _, used in uses for path in used}
        for stack, _ in uses:
            stack.close()
