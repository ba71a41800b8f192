"""The ops socket against garbage, other protocols, half-open and very many connections (B57, T7).

`TILLER_FRAMES` and `TILLER_CONNECTS` set how many.
"""

import os
import random
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import pynng
import pytest
import trio

from tiller_protocol.codec import decode_envelope, encode_submission
from tiller_protocol.errors import BadMessage
from tiller_protocol.ops import Hello, Submission
from tiller_protocol.places import OPS_SOCKET
from transport.wire import (
    MESSAGE_BYTES_MAX,
    PUSH,
    REQ,
    REQUEST_ID,
    TIMEOUT_S,
    ask_once,
    connect,
    descriptors,
    frame,
    greeting,
    serving,
    until,
)

FRAMES = int(os.environ.get("TILLER_FRAMES", "10000"))
CONNECTS = int(os.environ.get("TILLER_CONNECTS", "2000"))
FRAMES_PER_CONNECTION = 50


@pytest.fixture
def runtime(tmp_path: Path) -> Path:
    path = tmp_path / "r"
    path.mkdir(mode=0o700)
    return path


async def read_to_end(stream: trio.SocketStream) -> bytes:
    received = b""
    with trio.fail_after(TIMEOUT_S):
        try:
            while piece := await stream.receive_some(65536):
                received += piece
        except trio.BrokenResourceError:
            pass  # reset: closed all the same
    return received


async def decoding(submission: bytes) -> bytes:
    """As the daemon: whatever comes, an answer."""
    try:
        return decode_envelope(submission).envelope.id.encode()
    except BadMessage as error:
        return str(error).encode(errors="replace")


def mutate(source: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(source.choice([1, 1, 2, 8])):
        match source.randrange(4):
            case 0:
                changed[source.randrange(len(changed))] ^= 1 << source.randrange(8)
            case 1:
                changed[source.randrange(len(changed))] = source.choice([0, 1, 127, 128, 255])
            case 2:
                del changed[source.randrange(len(changed)) :]
            case _:
                changed += source.randbytes(source.randrange(20))
        changed = changed or bytearray(b"\0")
    return bytes(changed)


async def test_mutated_frames_end_in_an_answer_or_a_closed_connection(runtime: Path) -> None:
    source = random.Random(57)
    frames = [
        frame(REQUEST_ID + encode_submission(Submission("id", Hello(1, "t"), "t", "k"), encoding))
        for encoding in ("msgpack", "json")
    ]
    async with serving(runtime, decoding):
        await ask_once(runtime)
        before = descriptors()
        sent = 0
        while sent < FRAMES:
            stream = await connect(runtime)
            async with stream:
                start = greeting(REQ)
                if source.randrange(10) == 0:
                    start = mutate(source, start)
                try:
                    await stream.send_all(start)
                    for _ in range(source.randrange(1, FRAMES_PER_CONNECTION)):
                        sent += 1
                        await stream.send_all(mutate(source, source.choice(frames)))
                except trio.BrokenResourceError:
                    continue  # refused: also an answer
        assert b"not a submission" in await ask_once(runtime, b"\xc1")
        await until(lambda: descriptors() <= before)


async def test_a_body_of_any_bytes_is_answered(runtime: Path) -> None:
    source = random.Random(58)
    whole = encode_submission(Submission("id", Hello(1, "t"), "t", "k"))
    async with serving(runtime, decoding):
        with pynng.Req0() as asker, trio.fail_after(TIMEOUT_S * 2):
            asker.dial(f"ipc://{runtime / OPS_SOCKET}", block=False)
            for _ in range(FRAMES // 10):
                await asker.asend(mutate(source, whole))
                await asker.arecv()


@pytest.mark.promise("T7")
async def test_a_frame_that_is_too_large_closes_its_connection_and_reserves_nothing(
    runtime: Path,
) -> None:
    """T7: 17 bytes that announce 16 GiB, and one byte more than is allowed."""
    async with serving(runtime):
        for length in (1 << 34, (1 << 64) - 1, MESSAGE_BYTES_MAX + 1):
            before = address_space_bytes()
            async with await connect(runtime) as stream:
                await stream.send_all(greeting(REQ) + b"\x01" + length.to_bytes(8, "big"))
                assert await read_to_end(stream) == greeting(0x31)
            assert address_space_bytes() - before < 1 << 30
        largest = b"x" * (MESSAGE_BYTES_MAX - len(REQUEST_ID))
        assert await ask_once(runtime, largest) == largest.upper()


async def test_frames_without_a_request_id_are_not_answered(runtime: Path) -> None:
    async with serving(runtime):
        for body in (b"", b"abc", b"\x00\x00\x00\x01" * 40):
            async with await connect(runtime) as stream:
                await stream.send_all(greeting(REQ) + frame(body))
                await stream.send_eof()
                assert await read_to_end(stream) == greeting(0x31)
        assert await ask_once(runtime) == b"HELLO"


async def test_other_protocols_are_refused_and_the_next_frontend_is_served(runtime: Path) -> None:
    async with serving(runtime):
        for kind in (pynng.Sub0, pynng.Push0, pynng.Pair0, pynng.Bus0, pynng.Surveyor0):
            with kind() as stranger:
                stranger.dial(f"ipc://{runtime / OPS_SOCKET}", block=False)
                assert await ask_once(runtime) == b"HELLO"
        async with await connect(runtime) as stream:
            await stream.send_all(greeting(PUSH) + frame(b"op"))
            assert await read_to_end(stream) in (b"", greeting(0x31))
        async with await connect(runtime) as stream:
            await stream.send_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert await read_to_end(stream) in (b"", greeting(0x31))


async def test_half_open_connections_do_not_keep_others_out(runtime: Path) -> None:
    async with serving(runtime):
        await ask_once(runtime)
        before = descriptors()
        whole = greeting(REQ) + frame(REQUEST_ID + b"body")
        async with AsyncExitStack() as streams:
            for number in range(200):
                stream = await streams.enter_async_context(await connect(runtime))
                with suppress(trio.BrokenResourceError):  # faster than nng accepts
                    await stream.send_all(whole[: number % len(whole)])
            assert await ask_once(runtime) == b"HELLO"
        await until(lambda: descriptors() <= before)


async def test_connecting_again_and_again_leaks_no_descriptor(runtime: Path) -> None:
    async with serving(runtime):
        await ask_once(runtime)
        before = descriptors()
        for number in range(CONNECTS):
            whole = greeting(REQ) + frame(REQUEST_ID + b"gone")
            async with await connect(runtime) as stream:
                with suppress(trio.BrokenResourceError):  # faster than nng accepts
                    await stream.send_all(whole[: number % 3 * 8])
        assert await ask_once(runtime) == b"HELLO"
        await until(lambda: descriptors() <= before)


def address_space_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGESIZE")
