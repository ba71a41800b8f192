"""A daemon stopped by SIGSTOP: the verbs say so, and continue when the daemon continues."""

import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
import trio

from e2e.gates import Gate
from e2e.words import always
from support.daemon import CONFIG, Daemon
from support.frontend import Frontend
from support.terminal import TILLER, TIMEOUT_S
from tiller_client.connecting import connection as connection_module
from tiller_client.connecting.connection import DaemonConnection
from tiller_protocol.answers import CatalogResult
from tiller_protocol.ops import Catalog

SESSION = "SESSION"
"""Stands for the session's id: `last` would depend on which verb was quicker."""

VERBS = (
    *(("ls",), ("show",), ("log",), ("attach", "--until-idle"), ("models",), ("requests",)),
    *(
        ("send", SESSION, "hi"),
        ("new",),
        ("fork", SESSION),
        ("daemon", "status"),
        ("exec", "--session", SESSION, "--queue", "x"),
    ),
)


def begin(daemon: Daemon, directory: Path, *verb: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [*TILLER, *verb],
        cwd=directory,
        env=daemon.variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def read_until(process: subprocess.Popen[bytes], text: bytes) -> bytes:
    """Read stderr until it contains the text."""
    assert process.stderr
    said, deadline = b"", time.monotonic() + 3 * TIMEOUT_S
    while text not in said:
        assert select.select([process.stderr], [], [], deadline - time.monotonic())[0], said
        piece = os.read(process.stderr.fileno(), 4096)
        assert piece, said
        said += piece
    return said


@pytest.mark.nightly
async def test_every_verb_says_that_the_daemon_is_stopped_and_goes_on_with_it(
    daemon: Daemon, frontend: Frontend, workspace: Path
) -> None:
    assert daemon.process
    session_id = await frontend.session(workspace, always("answer"))
    await frontend.say(session_id)
    await frontend.turn_ended(session_id)
    daemon.process.send_signal(signal.SIGSTOP)
    with ExitStack() as stack:
        running = [
            stack.enter_context(
                begin(daemon, workspace, *(session_id if one == SESSION else one for one in verb))
            )
            for verb in VERBS
        ]
        try:
            hint = f"to resume it: kill -CONT {daemon.process.pid}; to leave, press Ctrl-C"
            for process in running:
                read_until(process, hint.encode())
        finally:
            daemon.process.send_signal(signal.SIGCONT)
        for process, verb in zip(running, VERBS, strict=True):
            process.communicate(timeout=3 * TIMEOUT_S)
            assert process.returncode == 0, verb


@pytest.mark.nightly
def test_ctrl_c_ends_the_wait_for_a_stopped_daemon(daemon: Daemon) -> None:
    assert daemon.process
    daemon.process.send_signal(signal.SIGSTOP)
    try:
        with begin(daemon, Path.cwd(), "ls") as ls:
            read_until(ls, b"press Ctrl-C")
            ls.send_signal(signal.SIGINT)
            assert ls.wait(TIMEOUT_S) == 130
    finally:
        daemon.process.send_signal(signal.SIGCONT)


class Patient(DaemonConnection):
    """Tells when it has found out that the daemon is alive although an op takes long."""

    signs = threading.Semaphore(0)

    def _is_alive(self) -> bool:
        alive = super()._is_alive()
        self.signs.release()
        return alive


async def test_an_op_that_takes_long_is_waited_for_while_the_daemon_answers_others(
    new_daemon: Callable[..., Daemon],
    nursery: trio.Nursery,
    workspace: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection_module, "ANSWER_DEADLINE_S", 0.05)
    gate = Gate(workspace)
    daemon = new_daemon(f'{CONFIG}\n[mcp.slow]\ncommand = ["sh", "-c", "read line <{gate.path}"]\n')
    daemon.start()
    answers: list[CatalogResult] = []

    def ask() -> None:
        with Patient(daemon.places, "test", may_start=False) as connection:
            answers.append(connection.ask(Catalog(start_servers=True), CatalogResult))

    async with trio.open_nursery() as asking:
        asking.start_soon(trio.to_thread.run_sync, ask)
        await gate.reached()
        for _ in range(3):
            await trio.to_thread.run_sync(Patient.signs.acquire)
        gate.open()
    (catalog,) = answers
    assert [server.state for server in catalog.servers] == ["failed"]
