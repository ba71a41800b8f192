"""Asks the daemons of several hosts at the same time, so that a slow or dead host delays no other.

Each host has its own thread. What has not answered within the time limit is left behind: its thread
ends with the program, and an ssh that is still connecting may leave a link that the next verb uses.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, TypeVar

from tiller_client.connecting.connection import DaemonConnection
from tiller_client.connecting.hosts import Host
from tiller_client.connecting.silence import Silence
from tiller_client.errors import (
    HostKeyRefused,
    LinkLost,
    NoAnswer,
    NoDaemon,
    NotInstalled,
    RejectedError,
    TillerError,
)

ANSWER_WITHIN_S = 5.0
"""How long to wait for hosts by default: a new link to a machine far away takes about 3 s."""

Reason = Literal[
    "host_key", "unreachable", "no_tiller", "other_protocol", "no_daemon", "no_answer", "failed"
]
"""Why a host gave no result."""

_Found = TypeVar("_Found")


def ask_hosts(
    hosts: Sequence[Host],
    name: str,
    work: Callable[[DaemonConnection], _Found],
    within_s: float = ANSWER_WITHIN_S,
) -> Iterator[tuple[Host, _Found | TillerError]]:
    """Connect to each host as `name` and yield what `work` returns, or the error, as they arrive.

    Starts the daemons that are not running. After `within_s`, yields `NoAnswer` for each host that
    has not answered. `work` runs in threads, one for each host.
    """
    import threading  # takes 2 ms, and most verbs ask one host
    from queue import Empty, SimpleQueue

    arrived = SimpleQueue[tuple[Host, _Found | BaseException]]()

    def ask(host: Host) -> None:
        try:
            with DaemonConnection(host.places, name) as connection:
                arrived.put((host, work(connection)))
        except BaseException as error:
            arrived.put((host, error))

    say, Silence.say = Silence.say, None  # the limit is short, and the text names no host
    try:
        deadline = time.monotonic() + within_s
        for host in hosts:
            threading.Thread(target=ask, args=(host,), daemon=True).start()
        missing = list(hosts)
        while missing:
            try:
                host, found = arrived.get(timeout=max(0.0, deadline - time.monotonic()))
            except Empty:
                break
            missing.remove(host)
            if isinstance(found, BaseException) and not isinstance(found, TillerError):
                raise found
            yield host, found
        for host in missing:
            yield host, NoAnswer(f"no answer within {within_s:g} s")
    finally:
        Silence.say = say


def reason_of(error: TillerError) -> Reason:
    """Why a host gave no result, as a word for programs."""
    match error:
        case HostKeyRefused():
            return "host_key"
        case LinkLost():
            return "unreachable"
        case NotInstalled():
            return "no_tiller"
        case RejectedError(code="unsupported_protocol"):
            return "other_protocol"
        case NoDaemon():
            return "no_daemon"
        case NoAnswer():
            return "no_answer"
        case _:
            return "failed"
