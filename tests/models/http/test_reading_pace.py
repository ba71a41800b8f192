"""The pace at which many streams are read, on a virtual clock."""

from contextlib import ExitStack

import pytest
import trio
from trio.testing import MockClock

from tiller_daemon.models.http.reading_pace import READS_PER_S, ReadingPace


@pytest.mark.parametrize("streams", [1, 20, 21, 150, 1000])
@pytest.mark.nightly
async def test_all_streams_together_are_read_so_often_and_no_more(
    autojump_clock: MockClock, streams: int
) -> None:
    pace, reads, read_s = ReadingPace(), 0, 0.001

    async def stream() -> None:
        nonlocal reads
        with pace.stream():
            read_at = -1e9
            while trio.current_time() < 4:
                await pace.wait_since(read_at)
                await trio.sleep(0 if pace.pause_s else read_s)  # there is always something to read
                read_at = trio.current_time()
                reads += 1

    async with trio.open_nursery() as nursery:
        for _ in range(streams):
            nursery.start_soon(stream)
    per_stream = READS_PER_S / streams if streams > 20 else 1 / read_s
    assert reads == pytest.approx(streams * per_stream * 4, abs=2 * streams + 5)


async def test_the_first_piece_of_a_stream_is_never_waited_for(autojump_clock: MockClock) -> None:
    pace = ReadingPace()
    with ExitStack() as streams:
        for _ in range(1000):
            streams.enter_context(pace.stream())
        begun = trio.current_time()
        await pace.wait_since(float("-inf"))
        assert trio.current_time() == begun
        await pace.wait_since(begun)
        assert trio.current_time() == begun + 0.25
    assert pace.pause_s == 0
