"""The nng sockets as honest frontends use them (T3, T4, T7, T14, T17, T19)."""

import ast
import os
import resource
import select
import stat
import struct
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pynng
import pytest
import trio
import trio.lowlevel
import trio.testing

from tiller_daemon.transport.nng import (
    PENDING_ANSWERS_MAX,
    REFUSALS_MAX,
    SUBMISSIONS_MAX,
    NngTransport,
    TransportError,
)
from tiller_protocol.places import EVENTS_SOCKET, OPS_SOCKET
from transport.wire import (
    MESSAGE_BYTES_MAX,
    REQ,
    SUB,
    TIMEOUT_S,
    ask,
    ask_once,
    connect,
    descriptors,
    dial,
    echo,
    frame,
    greeting,
    serving,
    until,
)

BETWEEN_MAX = 1024
"""Answers that nng and the kernel keep of one connection, and questions that are being handled."""

ASKED = 3000
"""Many more than nng and the kernel keep of one connection."""


@pytest.fixture
def runtime(tmp_path: Path) -> Path:
    path = tmp_path / "r"
    path.mkdir(mode=0o700)
    return path


def subscribe(runtime: Path, topic: bytes, **options: int) -> pynng.Sub0:
    subscriber = pynng.Sub0(topics=[topic], recv_timeout=int(TIMEOUT_S * 1000), **options)
    subscriber.dial(f"ipc://{runtime / EVENTS_SOCKET}", block=True)
    return subscriber


async def join(transport: NngTransport, subscriber: pynng.Sub0, topic: str) -> None:
    """Publish until the subscriber is seen; nng joins it on a thread of its own."""
    await join_by(transport, subscriber.arecv, topic)


async def join_by(
    transport: NngTransport, receive: Callable[[], Awaitable[object]], topic: str
) -> None:
    with trio.fail_after(TIMEOUT_S):
        while True:
            transport.publish(topic, b"joining")
            with trio.move_on_after(0.05):
                await receive()
                return


async def test_each_submission_gets_its_own_answer(runtime: Path) -> None:
    async with serving(runtime):
        with dial(runtime) as asker:
            for size in (0, 1, 1000, 500_000):
                assert await ask(asker, b"x" * size) == b"X" * size


async def test_a_slow_answer_holds_up_no_other_even_on_one_connection(runtime: Path) -> None:
    go_on = trio.Event()

    async def handler(submission: bytes) -> bytes:
        if submission == b"slow":
            await go_on.wait()
        return submission.upper()

    answers: list[bytes] = []
    async with serving(runtime, handler):
        with dial(runtime) as asker:

            async def one(submission: bytes) -> None:
                answers.append(await ask(asker.new_context(), submission))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(one, b"slow")
                await one(b"fast")
                assert await ask_once(runtime, b"other") == b"OTHER"
                go_on.set()
    assert answers == [b"FAST", b"SLOW"]


@pytest.mark.promise("T19")
async def test_all_of_a_burst_are_answered_though_few_are_handled_at_once(runtime: Path) -> None:
    """T19: answers that nng can't take at once are neither lost nor out of state; G12 too."""
    handling = most = 0
    answered: set[bytes] = set()

    async def handler(submission: bytes) -> bytes:
        nonlocal handling, most
        handling += 1
        most = max(most, handling)
        await trio.lowlevel.checkpoint()
        handling -= 1
        return submission

    async with serving(runtime, handler):
        with dial(runtime) as asker:

            async def one(number: int) -> None:
                submission = b"%d " % number + b"x" * 5000
                assert await ask(asker.new_context(), submission) == submission
                answered.add(submission)

            async with trio.open_nursery() as nursery:
                for number in range(1000):
                    nursery.start_soon(one, number)
    assert len(answered) == 1000
    assert most <= SUBMISSIONS_MAX


async def test_answers_that_come_faster_than_nng_takes_them_wait_for_it(runtime: Path) -> None:
    """T19: a non-blocking send that says "try again" is tried again, one after the other."""
    answered: list[bytes] = []
    async with serving(runtime):
        with dial(runtime) as asker:

            async def one() -> None:
                answered.append(await ask(asker.new_context(), b"x"))

            for _ in range(5):
                async with trio.open_nursery() as nursery:
                    for _ in range(1000):
                        nursery.start_soon(one)
    assert answered == [b"X"] * 5000


async def test_with_too_many_slow_submissions_the_next_one_waits(
    runtime: Path,
) -> None:
    go_on = trio.Event()
    taken: list[bytes] = []

    async def handler(submission: bytes) -> bytes:
        taken.append(submission)
        await go_on.wait()
        return submission

    async with serving(runtime, handler):
        with dial(runtime) as asker:
            async with trio.open_nursery() as nursery:
                for _ in range(SUBMISSIONS_MAX + 5):
                    nursery.start_soon(ask, asker.new_context(), b"slow")
                await until(lambda: len(taken) >= SUBMISSIONS_MAX)
                await trio.testing.wait_all_tasks_blocked(0.05)
                assert len(taken) == SUBMISSIONS_MAX
                go_on.set()
    assert len(taken) == SUBMISSIONS_MAX + 5


async def test_what_is_published_reaches_the_subscribers_of_its_topic(runtime: Path) -> None:
    async with serving(runtime) as transport:
        with subscribe(runtime, b"") as subscriber, subscribe(runtime, b"s1\0") as narrow:
            await join(transport, narrow, "s1")
            await join(transport, subscriber, "s1")
            for number in range(100):
                transport.publish("s1" if number % 2 else "s10", b"%d" % number)
            assert await receive_until(subscriber, b"s1\x0099") == [
                (b"s1\0" if number % 2 else b"s10\0") + b"%d" % number for number in range(100)
            ]
            assert await receive_until(narrow, b"s1\x0099") == [
                b"s1\0%d" % number for number in range(1, 100, 2)
            ]


async def receive_until(subscriber: pynng.Sub0, last: bytes) -> list[bytes]:
    """What was published, without the joining, up to `last`."""
    seen: list[bytes] = []
    with trio.fail_after(TIMEOUT_S):
        while not seen or seen[-1] != last:
            seen.append(await subscriber.arecv())
    return [message for message in seen if not message.endswith(b"joining")]


@pytest.mark.parametrize(("size", "count"), [(1000, 100_000), (100_000, 3000), (3_000_000, 60)])
async def test_a_subscriber_that_reads_nothing_costs_the_others_nothing(
    runtime: Path, size: int, count: int
) -> None:
    """T4, G12: publishing does not wait, and what is kept for the slow one is bounded in bytes."""
    async with serving(runtime) as transport:
        stream = await trio.open_unix_socket(str(runtime / EVENTS_SOCKET))
        async with stream:
            await stream.send_all(greeting(SUB))
            await stream.receive_some(len(greeting(SUB)))
            await join_by(transport, lambda: stream.receive_some(1), "s")
            before = memory_bytes()
            for _ in range(count):
                transport.publish("s", b"x" * size)
            assert await ask_once(runtime) == b"HELLO"
            assert memory_bytes() - before < 30_000_000


@pytest.mark.parametrize(("size", "count"), [(600, 8_000), (1_200, 5_000), (40_000, 200)])
@pytest.mark.promise("T4")
async def test_what_a_slow_subscriber_gets_in_the_end_is_whole_and_in_order(
    runtime: Path, size: int, count: int
) -> None:
    """T4: also when less and less of it could be kept, as publications grew while it was slow."""
    async with serving(runtime) as transport:
        stream = await trio.open_unix_socket(str(runtime / EVENTS_SOCKET))
        async with stream:
            await stream.send_all(greeting(SUB))
            await stream.receive_some(len(greeting(SUB)))
            await join_by(transport, lambda: stream.receive_some(1), "s")
            for number in range(1, count + 1):
                transport.publish("s", b"%d %s" % (number, b"x" * size))
            seen = await read_numbers(stream, count)
    assert seen == sorted(set(seen))
    assert len(seen) < count


async def read_numbers(stream: trio.SocketStream, last: int) -> list[int]:
    """The numbers at the beginning of what is published, up to `last`; all that comes is whole."""
    seen: list[int] = []
    data = b"\x01"  # the first byte was taken by whoever joined
    with trio.fail_after(TIMEOUT_S):
        while not seen or seen[-1] != last:
            data += await stream.receive_some(1 << 20)
            while len(data) >= 9 and len(data) >= 9 + int.from_bytes(data[1:9], "big"):
                end = 9 + int.from_bytes(data[1:9], "big")
                topic, _, body = data[9:end].partition(b"\0")
                number, _, filling = body.partition(b" ")
                assert (data[:1], topic, filling.strip(b"x")) == (b"\x01", b"s", b"")
                if number != b"joining":
                    seen.append(int(number))
                data = data[end:]
    return seen


async def test_after_large_publications_many_small_ones_are_kept_again(runtime: Path) -> None:
    """T4: a burst of thousands reaches a subscriber that was not looking, once it looks."""
    async with serving(runtime) as transport:
        with subscribe(runtime, b"s\0", recv_buffer_size=8192) as subscriber:
            await join(transport, subscriber, "s")
            for _ in range(100):
                transport.publish("s", b"x" * 200_000)
            for _ in range(20_000):
                transport.publish("s", b"small")
            await receive_all(subscriber)
            for number in range(4000):
                transport.publish("s", b"%d" % number)
            assert await receive_until(subscriber, b"s\x003999") == [
                b"s\0%d" % number for number in range(4000)
            ]


async def receive_all(subscriber: pynng.Sub0) -> None:
    """Take what is there until nothing more comes for a while."""
    while True:
        with trio.move_on_after(0.3) as waiting:
            await subscriber.arecv()
        if waiting.cancelled_caught:
            return


@pytest.mark.promise("T3")
async def test_sending_leaks_no_memory_when_askers_and_answers_are_cancelled(
    runtime: Path,
) -> None:
    """T3: each of these would leave 100 kB behind."""

    async def handler(submission: bytes) -> bytes:
        return submission * 100_000

    async with serving(runtime, handler):
        for _ in range(50):
            await ask_once(runtime, b"x")
    before = memory_bytes()
    for _ in range(30):
        async with serving(runtime, handler):
            with dial(runtime) as asker:
                async with trio.open_nursery() as nursery:
                    for _ in range(20):
                        nursery.start_soon(ask, asker.new_context(), b"x")
                    await ask(asker, b"x")
                    nursery.cancel_scope.cancel()
    assert memory_bytes() - before < 30_000_000


async def test_the_sockets_are_for_the_owner_only(runtime: Path) -> None:
    """G14, T14."""
    mask = os.umask(0)
    try:
        async with serving(runtime):
            for name in (OPS_SOCKET, EVENTS_SOCKET):
                found = (runtime / name).lstat()
                assert stat.S_ISSOCK(found.st_mode)
                assert stat.S_IMODE(found.st_mode) == 0o600
    finally:
        os.umask(mask)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as somebody else")
@pytest.mark.promise("T14")
async def test_a_stranger_who_reaches_the_socket_is_ignored() -> None:
    """T14: as if the modes had been opened by mistake."""
    heard: list[bytes] = []

    async def handler(submission: bytes) -> bytes:
        heard.append(submission)
        return submission

    script = (
        "import os, sys, pynng; os.setuid(65534)\n"
        "s = pynng.Req0(dial='ipc://' + sys.argv[1], recv_timeout=500); s.send(b'stranger')\n"
        "try: s.recv()\n"
        "except pynng.Timeout: print('no answer')\n"
    )
    with tempfile.TemporaryDirectory() as directory:
        runtime = Path(directory)
        await trio.Path(directory).chmod(0o711)
        async with serving(runtime, handler):
            (runtime / OPS_SOCKET).chmod(0o666)
            found = await trio.run_process(
                [sys.executable, "-c", script, str(runtime / OPS_SOCKET)], capture_stdout=True
            )
            assert found.stdout == b"no answer\n"
            assert await ask_once(runtime) == b"hello"
    assert heard == [b"hello"]


async def test_a_socket_that_can_not_be_opened_says_where(tmp_path: Path) -> None:
    def try_to_open() -> None:
        with pytest.raises(TransportError, match=r"nowhere/events\.sock"):
            NngTransport(tmp_path / "nowhere", MESSAGE_BYTES_MAX).__enter__()

    try_to_open()  # nng opens some descriptors once, for as long as the process lives.
    before = descriptors()
    try_to_open()
    await until(lambda: descriptors() <= before)


@pytest.mark.promise("T17")
def test_sockets_can_be_opened_and_closed_under_load_again_and_again(runtime: Path) -> None:
    """T17: no callback comes after the loop has ended, no descriptor stays, no file stays."""

    async def once() -> None:
        async with serving(runtime) as transport:
            with dial(runtime) as asker, subscribe(runtime, b""):
                assert await ask(asker, b"x") == b"X"
                await asker.asend(b"unanswered")
                transport.publish("s", b"last")

    async def descriptors_within(most: int) -> int:
        """Descriptors in use, counted inside of a loop both times."""
        await until(lambda: descriptors() <= most)
        return descriptors()

    trio.run(once)
    before = trio.run(descriptors_within, 1 << 20)
    for _ in range(25):
        trio.run(once)
    trio.run(descriptors_within, before)
    assert list(runtime.iterdir()) == []


async def test_closing_under_a_waiting_serve_is_no_hang(runtime: Path) -> None:
    """T17."""
    transport = NngTransport(runtime, MESSAGE_BYTES_MAX)

    async def serve() -> None:
        with pytest.raises(ExceptionGroup) as raised:
            await transport.serve(echo)
        assert raised.group_contains(trio.ClosedResourceError)

    async with trio.open_nursery() as nursery:
        with transport:
            nursery.start_soon(serve)
            await trio.testing.wait_all_tasks_blocked()


def memory_bytes() -> int:
    """Resident memory now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def is_hung_up(stream: trio.SocketStream) -> bool:
    """Whether the other side has closed, seen without reading."""
    poll = select.poll()
    poll.register(stream.socket.fileno())
    return any(event & select.POLLHUP for _, event in poll.poll(0))


@asynccontextmanager
async def asked_without_reading(runtime: Path) -> AsyncGenerator[trio.SocketStream]:
    """A frontend that has asked `ASKED` times, all of which was handled, and read no answer."""
    handled = 0

    async def handler(submission: bytes) -> bytes:
        nonlocal handled
        handled += 1
        return submission

    async with serving(runtime, handler), await connect(runtime) as stream:
        await stream.send_all(greeting(REQ))
        for index in range(ASKED):
            await stream.send_all(frame(struct.pack(">I", 1 << 31 | index) + b"x"))
        await until(lambda: handled == ASKED)
        yield stream


@pytest.mark.promise("T19")
async def test_no_answer_is_lost_by_a_frontend_that_asks_much_before_it_reads(
    runtime: Path,
) -> None:
    """T19: nng drops what it can't write to a slow reader; no more than it keeps is given to it."""
    async with asked_without_reading(runtime) as stream:
        expected = len(greeting(REQ)) + ASKED * len(frame(b"....x"))
        received = b""
        with trio.fail_after(TIMEOUT_S):
            while len(received) < expected:
                part = await stream.receive_some()
                assert part, "closed before all was answered"
                received += part


@pytest.mark.nightly
async def test_a_frontend_that_reads_no_answers_is_disconnected_and_others_are_served(
    runtime: Path,
) -> None:
    async with asked_without_reading(runtime) as stream:
        assert await ask_once(runtime, b"other") == b"other"
        await until(lambda: is_hung_up(stream))


async def test_a_connection_that_is_refused_again_and_again_is_closed_and_no_other(
    runtime: Path,
) -> None:
    """A stranger is told why, a few times; a frontend whose token is out of date hears it."""
    handled: list[bytes] = []

    async def handler(submission: bytes) -> bytes:
        handled.append(submission)
        return submission

    def admit(submission: memoryview) -> bytes | None:
        return b"no" if submission[:1] == b"x" else None

    with NngTransport(runtime, MESSAGE_BYTES_MAX) as transport:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(transport.serve, handler, admit)
            async with await connect(runtime) as stream:
                await stream.send_all(greeting(REQ))
                expected = len(greeting(REQ)) + REFUSALS_MAX * len(frame(b"....no"))
                for index in range(REFUSALS_MAX):
                    await stream.send_all(frame(struct.pack(">I", 1 << 31 | index) + b"x"))
                received = b""
                with trio.fail_after(TIMEOUT_S):
                    while len(received) < expected:
                        received += await stream.receive_some()
                assert not is_hung_up(stream)
                assert await ask_once(runtime, b"other") == b"other"
                await stream.send_all(frame(struct.pack(">I", 1 << 31) + b"x"))
                await until(lambda: is_hung_up(stream))
            assert await ask_once(runtime, b"another") == b"another"
            nursery.cancel_scope.cancel()
    assert handled == [b"other", b"another"]


@pytest.mark.promise("G12")
async def test_a_frontend_that_asks_without_end_and_never_reads_is_sent_away(
    runtime: Path,
) -> None:
    """Whatever it asks: so many answers of one connection wait, and no more."""
    handled = 0

    async def handler(submission: bytes) -> bytes:
        nonlocal handled
        handled += 1
        return submission

    question = frame(struct.pack(">I", 1 << 31) + b"x")
    async with serving(runtime, handler), await connect(runtime) as stream:
        await stream.send_all(greeting(REQ))
        with trio.fail_after(TIMEOUT_S):
            while not is_hung_up(stream):
                with suppress(trio.BrokenResourceError):
                    await stream.send_all(question * 100)
        assert handled < PENDING_ANSWERS_MAX + BETWEEN_MAX
        assert await ask_once(runtime, b"other") == b"other"


COUNT_THREADS = """
import sys
from pathlib import Path
import trio
from tiller_daemon.transport.nng import NngTransport

def names():
    return [(task / "comm").read_text().strip() for task in Path("/proc/self/task").iterdir()]

async def main():
    with NngTransport(Path(sys.argv[1]), 1 << 20):
        while names().count("python") > 1:
            await trio.sleep(0.001)  # a thread names itself when it runs
        print(sorted(name for name in names() if name.startswith("nng:")))

trio.run(main)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
async def test_nng_starts_few_threads(runtime: Path) -> None:
    command = [sys.executable, "-c", COUNT_THREADS, str(runtime)]
    done = await trio.run_process(command, capture_stdout=True)
    started = ast.literal_eval(done.stdout.decode())
    assert Counter(started) == {
        "nng:aio:expire": 1,
        "nng:poll:epoll": 1,
        "nng:reap2": 1,
        "nng:resolver": 1,
        "nng:task": 2,
    }
