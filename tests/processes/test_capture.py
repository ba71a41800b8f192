"""Keeping output: both ends in bounded memory, the whole on disk, always text (T16, B59)."""

import errno

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from tiller_daemon.processes import capture as capture_module
from tiller_daemon.processes.capture import END_BYTES, LIVE_BYTES_MAX, SLICE_BYTES, Capture
from tiller_daemon.processes.terminal_text import TerminalText

MIXED = "aé\u2028\U0001f600\n"


async def keep(path, pieces):
    capture = Capture(path)
    shown = [await capture.add(piece) for piece in pieces]
    return capture, "".join(shown)


@settings(max_examples=40, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 70_000), max_size=8),
    unit=st.sampled_from([MIXED.encode(), b"x", b"\n", b"\xff\xfe"]),
)
def test_both_ends_are_those_of_the_whole_and_the_file_holds_it(tmp_path_factory, sizes, unit):
    path = tmp_path_factory.mktemp("spill") / "deep" / "file"
    whole = (unit * (sum(sizes) // len(unit) + 1))[: sum(sizes)]
    pieces = [whole[sum(sizes[:i]) : sum(sizes[: i + 1])] for i in range(len(sizes))]
    capture, _ = trio.run(keep, path, pieces)
    kept = capture.result()
    text = whole.decode(errors="replace")
    assert (kept.size_bytes, kept.lines) == (len(whole), whole.count(b"\n"))
    assert text.startswith(kept.head)
    assert text.endswith(kept.tail)
    if len(whole) <= 2 * END_BYTES:
        assert (kept.head, kept.tail) == (text, "")
    else:
        assert len(kept.head.encode()) > END_BYTES - 4
        assert len(kept.tail.encode()) > END_BYTES - 4
    trio.run(capture.spill)
    capture.close()
    assert (path.read_bytes() if path.exists() else b"") == whole


async def test_a_character_between_two_pieces_is_shown_once_it_is_whole(tmp_path):
    _, shown = await keep(tmp_path / "file", [b"a\xc3", b"\xa9b", b"\xff"])
    assert shown == "aéb\ufffd"


@pytest.mark.promise("B59")
async def test_a_flood_is_kept_and_no_more_shown_while_it_comes(tmp_path):
    pieces = [b"x" * 65_536] * (LIVE_BYTES_MAX // 65_536 + 3)
    capture, shown = await keep(tmp_path / "file", pieces)
    capture.close()
    assert len(shown) == LIVE_BYTES_MAX
    assert (tmp_path / "file").stat().st_size == capture.result().size_bytes == 65_536 * len(pieces)


async def test_nothing_is_written_while_it_fits(tmp_path):
    capture, _ = await keep(tmp_path / "file", [b"x" * END_BYTES])
    capture.close()
    assert capture.spill_path() == ""
    assert capture.result().where == ""
    assert list(tmp_path.iterdir()) == []


async def test_the_file_of_an_earlier_call_is_not_added_to(tmp_path):
    (tmp_path / "file").write_text("old")
    capture, _ = await keep(tmp_path / "file", [b"x" * (END_BYTES + 1)])
    capture.close()
    assert capture.spill_path() == str(tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == b"x" * (END_BYTES + 1)


async def test_a_link_in_place_of_the_file_is_not_followed(tmp_path):
    (tmp_path / "file").symlink_to(tmp_path / "victim")
    capture, _ = await keep(tmp_path / "file", [b"x" * (END_BYTES + 1)])
    capture.close()
    assert "could not be written" in capture.result().where
    assert not (tmp_path / "victim").exists()


@pytest.mark.promise("B51")
async def test_a_disk_that_fills_up_is_told_and_the_output_goes_on(tmp_path, monkeypatch):
    capture, _ = await keep(tmp_path / "file", [b"x" * (END_BYTES + 1)])

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(capture_module.os, "write", full)
    await capture.add(b"more\n")
    monkeypatch.undo()
    await capture.add(b"end\n")
    capture.close()
    kept = capture.result()
    assert kept.head.endswith("more\nend\n")
    assert kept.where.endswith("file: No space left on device")


async def test_writes_that_take_only_a_part_are_completed(tmp_path, monkeypatch):
    write = capture_module.os.write
    monkeypatch.setattr(capture_module.os, "write", lambda opened, data: write(opened, data[:1000]))
    capture, _ = await keep(tmp_path / "file", [b"ab" * END_BYTES])
    monkeypatch.undo()
    capture.close()
    assert (tmp_path / "file").read_bytes() == b"ab" * END_BYTES


@pytest.mark.parametrize("size_bytes", [2**20 - 1, 2**20, 2**20 + 1])
async def test_the_file_has_a_largest_size(tmp_path, monkeypatch, size_bytes):
    monkeypatch.setattr(capture_module, "SPILL_BYTES_MAX", 2**20)
    capture, _ = await keep(tmp_path / "file", [b"x" * size_bytes, b"y"])
    capture.close()
    assert (tmp_path / "file").read_bytes() == (b"x" * size_bytes + b"y")[: 2**20]
    assert capture.result().tail.endswith("xy")


@pytest.mark.parametrize("unit", [b"\b", b"\r", b"\x1b[", b"a\x1b[A"])
async def test_other_tasks_run_while_a_flood_of_control_characters_is_looked_at(tmp_path, unit):
    size = 1024 * 1024
    capture = Capture(tmp_path / "file", TerminalText())
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(count)
        for _ in range(size // 65536):
            await capture.add((unit * 65536)[:65536])
        nursery.cancel_scope.cancel()
    assert turns > size // SLICE_BYTES // 2
    capture.close()
