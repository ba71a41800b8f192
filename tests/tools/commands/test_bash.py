"""The tool `bash`: what the model learns about a command, and that nothing of it stays."""

import math
import os
import tracemalloc
from pathlib import Path

import msgspec
import pytest
import trio

from tiller_daemon.sandbox.base import CommandSandbox, SandboxProfile
from tiller_daemon.sandbox.bubblewrap import Bubblewrap
from tiller_daemon.sandbox.detect import bubblewrap_program
from tiller_daemon.sandbox.level import SandboxLevel
from tiller_daemon.tools.base import ToolFailure
from tiller_daemon.tools.commands.bash import BashArguments
from tiller_daemon.tools.commands.sandbox_notes import NOT_RUN, sandbox_notes
from tiller_daemon.tools.truncation import BYTES_MAX, LINES_MAX

HERE = Path(__file__).resolve()
"""A path that is not part of the system."""


@pytest.fixture
def bubblewrap() -> Bubblewrap:
    program = bubblewrap_program()
    if program is None:
        pytest.skip("no bwrap: pip install 'tillerd[sandbox]'")
    return Bubblewrap(program)


async def test_output_and_errors_come_together_with_the_exit_status(bench):
    result = await bench.call("bash", command="echo out; echo err >&2; exit 3")
    assert result.output == "out\nerr\n[Exit status 3.]"
    assert (result.failed, result.exit_status) == (True, 3)
    assert bench.live == "out\nerr\n"


async def test_a_model_reads_the_last_state_of_a_progress_bar(bench):
    frames = r"for i in $(seq 5000); do printf '\r\033[2K%d%%' $i; done; printf '\n\033[31mend\n'"
    result = await bench.call("bash", command=frames)
    assert result.output == "5000%\nend\n"
    assert "\x1b[31m" in bench.live


async def test_a_good_end_is_the_output_alone(bench):
    result = await bench.call("bash", command="printf hi")
    assert (result.output, result.failed, result.exit_status) == ("hi", False, 0)
    assert (await bench.call("bash", command="true")).output == "(No output.)"


async def test_a_command_runs_in_the_workspace_without_input_or_terminal(bench):
    result = await bench.call("bash", command="pwd; cat; tty; [ -t 1 ] || echo plain")
    assert result.output == f"{bench.workspace}\nnot a tty\nplain\n"


async def test_a_death_by_signal_is_said(bench):
    result = await bench.call("bash", command="kill -SEGV $$")
    assert (result.output, result.failed) == ("[Ended by signal 11.]", True)


async def test_a_command_whose_sandbox_can_not_be_set_up_did_not_run(bench, bubblewrap):
    gone = bench.workspace / "gone"
    held = SandboxProfile(bench.workspace, writable=(bench.workspace,), read_only=(gone,))
    bench.sandbox = CommandSandbox(bubblewrap, held, SandboxLevel.SESSION, [])
    result = await bench.call("bash", command="touch ran")
    assert str(gone) in result.output
    assert result.output.endswith(f"\n[{NOT_RUN}]")
    assert (result.failed, result.exit_status) == (True, None)
    assert list(bench.workspace.iterdir()) == []


async def test_of_a_command_that_was_stopped_a_path_that_it_missed_is_not_asked_for(
    bench, bubblewrap
):
    held = SandboxProfile(bench.workspace, visible=(), writable=(bench.workspace,))
    sandbox = CommandSandbox(bubblewrap, held, SandboxLevel.SESSION, [])
    seen = sandbox_notes(sandbox, 1, f"no {HERE}", has_run=True)
    assert (seen.missed, seen.stopped_by) == (str(HERE), str(HERE))
    seen = sandbox_notes(sandbox, 1, f"npm error code EROFS\nno {HERE}", has_run=True)
    assert (seen.missed, seen.stopped_by) == ("", "npm error code EROFS")


async def test_the_status_of_a_sandboxed_command_is_its_own(bench, bubblewrap, tmp_path):
    held = SandboxProfile(bench.workspace, temporary=tmp_path / "spill" / "tmp")
    bench.sandbox = CommandSandbox(bubblewrap, held, SandboxLevel.READ_ONLY, [])
    result = await bench.call("bash", command="echo bwrap: no; exit 1")
    assert (result.output, result.exit_status) == ("bwrap: no\n[Exit status 1.]", 1)


async def test_output_comes_while_the_command_runs(bench):
    os.mkfifo(bench.workspace / "go")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: bench.call("bash", command="echo first; read x < go; echo $x"))
        await bench.until_live("first\n")
        (bench.workspace / "go").write_text("second\n")
    assert bench.live == "first\nsecond\n"


async def test_a_character_cut_in_two_by_a_pause_is_shown_whole(bench):
    os.mkfifo(bench.workspace / "go")
    command = r"printf 'a\303'; echo >&2; read x < go; printf '\251b\377'"
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: bench.call("bash", command=command))
        await bench.until_live("a")
        (bench.workspace / "go").write_text("\n")
    assert "\ufffd" in bench.live


async def test_a_timeout_keeps_the_output_so_far(bench):
    result = await bench.call("bash", command="echo begun; sleep 1000 & sleep 1000", timeout_s=1)
    assert result.output.startswith("begun\n[Killed after 1 s: it timed out.")
    assert "2 processes were still alive at the end and were killed." in result.output
    assert (result.failed, result.exit_status) == (True, None)


async def test_a_command_that_took_too_long_failed_whatever_it_says(bench):
    command = "trap 'exit 0' TERM; while :; do sleep 0.01; done"
    result = await bench.call("bash", command=command, timeout_s=1)
    assert (result.failed, result.exit_status) == (True, None)


@pytest.mark.promise("T13")
async def test_a_child_that_holds_the_output_does_not_hold_the_result(bench):
    result = await bench.call("bash", command="sleep 1000 & echo done")
    assert result.output == "done\n[1 process was still alive at the end and was killed.]"
    assert not result.failed


async def test_what_ends_by_itself_a_moment_after_the_shell_is_no_leftover(bench):
    result = await bench.call("bash", command="echo hi > >(cat)")
    assert result.output == "hi\n"


async def test_interrupted_it_leaves_nothing_and_lets_the_interrupt_through(bench):
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: bench.call("bash", command="echo $$; sleep 1000"))
            await bench.until_live("\n")
            scope.cancel()
    assert scope.cancelled_caught
    with pytest.raises(ProcessLookupError):
        os.kill(int(bench.live), 0)


@pytest.mark.promise("B59")
async def test_long_output_is_cut_and_kept_whole_in_a_file(bench):
    result = await bench.call("bash", command="seq 100000")
    whole = "".join(f"{i}\n" for i in range(1, 100001))
    assert len(result.output.encode()) <= BYTES_MAX
    assert result.output.startswith("1\n2\n3\n")
    assert result.output.endswith("\n99999\n100000\n")
    assert f"the full output is in {result.spill_path} ...]" in result.output
    assert bench.spilled(result) == whole.encode()


@pytest.mark.promise("G14")
async def test_a_spill_file_is_its_owners_alone_wherever_the_id_of_the_call_points(bench):
    result = await bench.call("bash", command="seq 100000")
    assert result.spill_path.rpartition("/")[0] == str(bench.spills)
    assert bench.modes(result.spill_path, bench.spills) == [0o600, 0o700]


async def test_no_spill_file_stays_open(bench):
    await bench.call("bash", command="seq 100000")
    before = len(bench.descriptors())
    await bench.call("bash", command="seq 100000")
    assert len(bench.descriptors()) == before


async def test_many_short_lines_are_cut_by_their_number_and_kept_too(bench):
    result = await bench.call("bash", command=f"yes | head -{LINES_MAX + 10}")
    assert result.output.count("\n") <= LINES_MAX
    assert bench.spilled(result) == b"y\n" * (LINES_MAX + 10)


@pytest.mark.promise("B59")
@pytest.mark.nightly
async def test_a_flood_takes_bounded_memory_and_a_bounded_file(bench, monkeypatch):
    monkeypatch.setattr("tiller_daemon.processes.capture.SPILL_BYTES_MAX", 1024**2)
    tracemalloc.start()
    result = await bench.call("bash", command="head -c 100000000 /dev/zero; printf end")
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 4 * 1024**2
    assert result.output.endswith("  end"), "a NUL is shown as a blank"
    assert "0 lines, 99948" in result.output
    assert f"the first 1 MiB are in {result.spill_path} ...]" in result.output
    assert len(bench.spilled(result)) == 1024**2


@pytest.mark.promise("B59")
async def test_binary_output_becomes_text(bench):
    result = await bench.call("bash", command="head -c 200000 /dev/urandom")
    assert len(result.output.encode()) <= BYTES_MAX
    assert len(bench.spilled(result)) > BYTES_MAX
    assert b"\x1b[" not in bench.spilled(result)


async def test_a_spill_file_that_can_not_be_written_does_not_fail_the_command(bench):
    bench.spills.write_text("a file in the way")
    result = await bench.call("bash", command="seq 100000")
    assert not result.failed
    assert "the full output could not be written to" in result.output
    assert result.spill_path == ""


async def test_what_can_not_be_started_is_said(bench):
    for command in ("echo \0", "x" * 300_000):
        with pytest.raises(ToolFailure, match="The command could not be started"):
            await bench.call("bash", command=command)
    bench.workspace.rmdir()
    with pytest.raises(ToolFailure, match="No such file or directory"):
        await bench.call("bash", command="true")


def test_the_time_asked_for_is_checked_with_its_name():
    for asked in (0, -1, 601, math.inf):
        with pytest.raises(msgspec.ValidationError, match="timeout_s"):
            msgspec.convert({"command": "true", "timeout_s": asked}, BashArguments)


def test_it_needs_permission_for_the_command_as_it_is(bench):
    (need,) = bench.requirements("bash", command="ls\nrm x")
    assert (need.permission, need.kind, need.subjects) == (
        "bash",
        "command",
        ("ls\nrm x",),
    )
    assert (need.title, need.always) == ("Run ls...", ())
    assert (need.detail, need.detail_kind) == ("ls\nrm x", "command")
