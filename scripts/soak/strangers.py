"""Measures floods by strangers at the socket: the daemon's memory, and the delay of answers.

Several strangers at once send submissions with a wrong token, in several kinds of flood; in one
kind the token is right, but nobody reads the answers. Meanwhile another frontend asks for the
daemon's status, again and again, as it does before the flood, for comparison. Memory is how much
larger the daemon gets than before, at most and afterwards.
"""

import argparse
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pynng

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / place) for place in ("tests", "daemon", "protocol", "client")]

from support.daemon import Daemon  # noqa: E402 - found there
from support.frontend import new_id  # noqa: E402
from support.strangers import Flood, flood  # noqa: E402
from tiller_protocol.codec import (  # noqa: E402
    MESSAGE_BYTES_MAX,
    Encoding,
    decode_answer,
    encode_submission,
)
from tiller_protocol.ops import DaemonStatus, Submission  # noqa: E402
from tiller_protocol.places import OPS_SOCKET, TOKEN_FILE  # noqa: E402

PAUSE_S = 0.01
SETTLE_S = 1.0
TIMEOUT_MS = 60_000


class Kind(NamedTuple):
    """A kind of flood: how many submissions are sent at a time, and their content."""

    count: int
    size: int
    encoding: Encoding = "msgpack"
    reads: bool = True
    knows_token: bool = False


KINDS = {
    "small": Kind(50_000, 50),
    "small, answers unread": Kind(50_000, 50, reads=False),
    "64 KiB of JSON, answers unread": Kind(1_000, 64 * 1024, "json", reads=False),
    "the largest": Kind(20, MESSAGE_BYTES_MAX - 1024),
    "the largest in JSON": Kind(20, MESSAGE_BYTES_MAX - 1024, "json"),
    "small, with the token, answers unread": Kind(50_000, 50, reads=False, knows_token=True),
}


class Watched:
    """Records the daemon's largest size, and how long another frontend waits for answers."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._token = (daemon.places.runtime / TOKEN_FILE).read_text()
        self.highest_bytes = 0
        self.took_s: list[float] = []

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch until the context ends."""
        over = threading.Event()
        threads = [threading.Thread(target=one, args=(over,)) for one in (self._weigh, self._ask)]
        for thread in threads:
            thread.start()
        yield
        over.set()
        for thread in threads:
            thread.join()

    def _weigh(self, over: threading.Event) -> None:
        while not over.wait(PAUSE_S):
            self.highest_bytes = max(self.highest_bytes, self._daemon.rss_bytes)

    def _ask(self, over: threading.Event) -> None:
        address = f"ipc://{self._daemon.places.runtime / OPS_SOCKET}"
        with pynng.Req0(dial=address, block_on_dial=True, recv_timeout=TIMEOUT_MS) as asker:
            while not over.wait(PAUSE_S):
                submission = Submission(new_id(), DaemonStatus(), "asker", self._token)
                began = time.monotonic()
                asker.send(encode_submission(submission))
                decode_answer(asker.recv())
                self.took_s.append(time.monotonic() - began)


def _run(daemon: Daemon, kind: Kind, strangers: int, seconds: float) -> Flood:
    """Let `strangers` strangers flood the daemon for `seconds` seconds."""
    runtime, end = daemon.places.runtime, time.monotonic() + seconds
    token = (runtime / TOKEN_FILE).read_text() if kind.knows_token else "wrong"
    total = Flood()

    def one() -> None:
        while time.monotonic() < end:
            done = flood(
                runtime, kind.count, kind.size, kind.encoding, reads=kind.reads, token=token
            )
            total.sent += done.sent
            total.connections += done.connections
            total.answers += done.answers

    threads = [threading.Thread(target=one) for _ in range(strangers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return total


def _times(took_s: list[float]) -> str:
    cuts = statistics.quantiles(took_s, n=100)
    p50, p99, longest = (value * 1e3 for value in (cuts[49], cuts[98], max(took_s)))
    return f"p50 {p50:.1f} ms, p99 {p99:.1f}, longest {longest:.1f} (n = {len(took_s)})"


def measure(strangers: int, seconds: float) -> None:
    """Measure every kind of flood in turn against one daemon."""
    with tempfile.TemporaryDirectory() as home, Daemon(Path(home)) as daemon:
        idle = Watched(daemon)
        with idle.watching():
            time.sleep(seconds)
        print(f"an answer beside nothing else: {_times(idle.took_s)}")
        for name, kind in KINDS.items():
            before_bytes = daemon.rss_bytes
            watched = Watched(daemon)
            with watched.watching():
                total = _run(daemon, kind, strangers, seconds)
            time.sleep(SETTLE_S)
            more = (watched.highest_bytes - before_bytes) / 1e6
            left = (daemon.rss_bytes - before_bytes) / 1e6
            print(f"{name}: {total.sent} submissions, {total.connections} connections")
            print(f"  memory: {more:.1f} MB more at most, {left:.1f} MB afterwards")
            print(f"  an answer beside it: {_times(watched.took_s)}", flush=True)


def main() -> None:
    """Read the arguments and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--strangers", type=int, default=1, help="number of concurrent strangers")
    parser.add_argument("--seconds", type=float, default=10.0, help="length of each flood")
    arguments = parser.parse_args()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    measure(arguments.strangers, arguments.seconds)


if __name__ == "__main__":
    main()
