"""Lines of JSON wherever the stream is cut, and jobs: in order by key, others at the same time."""

import os
import threading
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiller_client import json_lines, ordered_jobs
from tiller_client.following.watch import Wakeup
from tiller_client.json_lines import Line, read_lines
from tiller_client.ordered_jobs import OrderedJobs

TIMEOUT_S = 10.0
SMALL_MAX = 8


@given(
    st.lists(st.binary(max_size=2 * SMALL_MAX).map(lambda data: data.replace(b"\n", b""))),
    st.lists(st.integers(1, 3 * SMALL_MAX)),
    st.sampled_from([b"", b"\n"]),
)
def test_lines_are_numbered_and_whole_wherever_the_stream_is_cut(
    texts: Sequence[bytes], cuts: Sequence[int], newline: bytes
) -> None:
    data = b"\n".join(texts) + newline
    wanted = [
        Line(number, None if len(text) > SMALL_MAX else text)
        for number, text in enumerate(texts, 1)
        if text.strip() or len(text) > SMALL_MAX
    ]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(json_lines, "LINE_BYTES_MAX", SMALL_MAX)
        assert read_cut(data, cuts) == wanted


def read_cut(data: bytes, cuts: Sequence[int]) -> list[Line]:
    """The lines of a stream whose reader gets it in these pieces."""
    reading, writing = os.pipe()
    wakeup = Wakeup()
    try:
        found: list[Line] = []
        reader = read_lines(reading, wakeup)
        thread = threading.Thread(target=lambda: found.extend(reader))
        thread.start()
        for cut in cuts:
            os.write(writing, data[:cut])
            data = data[cut:]
        os.write(writing, data)
        os.close(writing)
        thread.join()
        return found
    finally:
        os.close(reading)
        wakeup.close()


def test_a_wake_up_ends_the_reading_of_a_silent_program() -> None:
    reading, writing = os.pipe()
    wakeup = Wakeup()
    wakeup.wake()
    assert list(read_lines(reading, wakeup)) == []
    os.close(reading)
    os.close(writing)
    wakeup.close()


def start(target: Callable[[], None]) -> None:
    threading.Thread(target=target, daemon=True).start()


@given(st.lists(st.sampled_from(["a", "b", "c", None]), max_size=3 * ordered_jobs.JOBS_MAX))
def test_the_jobs_of_a_key_are_done_in_order_and_all_of_them(keys: Sequence[str | None]) -> None:
    done: list[tuple[str | None, int]] = []
    work = OrderedJobs[tuple[str | None, int]](done.append, start)
    for number, key in enumerate(keys):
        work.put((key, number), key)
    work.join()
    assert sorted(number for _, number in done) == list(range(len(keys)))
    for one in ("a", "b", "c"):
        numbers = [number for key, number in done if key == one]
        assert numbers == sorted(numbers)


def test_a_job_that_takes_long_keeps_up_its_own_lane_only() -> None:
    go_on, other_done = threading.Event(), threading.Event()
    started: list[str] = []

    def work(key: str) -> None:
        started.append(key)
        if key == "slow":
            assert go_on.wait(TIMEOUT_S)
        else:
            other_done.set()

    jobs = OrderedJobs[str](work, start)
    jobs.put("slow", "slow")
    jobs.put("slow", "slow")
    jobs.put("quick", "quick")
    assert other_done.wait(TIMEOUT_S)
    assert started == ["slow", "quick"]
    go_on.set()
    jobs.join()
