"""Seven ways for a process to escape its command, seven endings of the command, and the survivors.

A mark in their environment identifies the processes from their very beginning.
`tests/e2e/test_survivors.py` asserts the promise of each ending; `scripts/soak/survivors.py`
measures how long the last process lives.
"""

import os
import secrets
import signal
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import trio

from support.daemon import Daemon, gone, marked
from support.frontend import Frontend
from tiller_daemon.models.scripted import CallPart, ScriptStep, TextPart
from tiller_protocol.events import Event, ItemDelta
from tiller_protocol.ops import Interrupt, SessionArchive

STAY = "touch $READY; exec sleep 1000"
DEAF_AND_FORKING = """
trap "" TERM HUP INT
touch $READY
while :; do sh -c "sleep 0.05 & sleep 0.05" & sleep 0.02; done
"""

SHAPES: Final = {
    "a session of its own": f"setsid sh -c '{STAY}' &",
    "forked twice": f"( ( sh -c '{STAY}' & ) & )",
    "nohup": f"nohup sh -c '{STAY}' > /dev/null 2>&1 &",
    "disowned": f"sh -c '{STAY}' & disown",
    "a daemon without descriptors": f"( setsid sh -c 'cd /; ( {STAY} ) <&- >&- 2>&- &' & )",
    "a forged environment": (
        "( setsid env -i TILLER_COMMAND=x TILLER_DAEMON=x TILLER_CALL=x "
        f"PATH=\"$PATH\" READY=$READY SURVIVOR=$SURVIVOR sh -c '{STAY}' & )"
    ),
    "deaf and forking": f"setsid sh -c '{DEAF_AND_FORKING}' &",
}

READY = "all-ready"
"""The command's output when every shape of process has escaped."""

TIMEOUT_S = 4.0
"""The timeout of a command that is to end by it; doubled on a slow machine."""


class Escape:
    """One command that tries all shapes; it runs until `let_go`, or until it is ended."""

    def __init__(self, workspace: Path) -> None:
        self.workspace: Final = workspace
        self._token: Final = secrets.token_hex(8)
        self._go: Final = workspace / f"go-{self._token}"

    @property
    def command(self) -> str:
        """The command line."""
        lines: list[str] = []
        ready: list[str] = []
        for number, (name, shape) in enumerate(SHAPES.items()):
            file = self.workspace / f"ready-{self._token}-{number}"
            script = self.workspace / f"shape-{self._token}-{number}"
            script.write_text(f"{shape}\n")
            lines.append(f"READY={file} {self._mark(name)} bash {script}")
            ready.append(f"[ -e {file} ]")
        lines.append(f"until {' && '.join(ready)}; do sleep 0.02; done; echo {READY}")
        lines.append(f"until [ -e {self._go} ]; do sleep 0.02; done")
        return "\n".join(lines)

    def let_go(self) -> None:
        """Let the command end by itself."""
        self._go.touch()

    def alive(self) -> dict[str, set[int]]:
        """The living processes of each shape that has any."""
        found = {name: marked(self._mark(name)) for name in SHAPES}
        return {name: pids for name, pids in found.items() if pids}

    def gone_after_s(self, patience_s: float) -> float:
        """Wait until no process is alive; return how long that took, or infinity if some stay."""
        began = time.monotonic()
        while found := self.alive():
            if time.monotonic() - began > patience_s:
                return float("inf")
            gone(next(iter(next(iter(found.values())))), timeout_s=patience_s / 100)
        return time.monotonic() - began

    def kill(self) -> None:
        """Kill the remaining processes."""
        while found := self.alive():
            for pid in set[int]().union(*found.values()):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def _mark(self, name: str) -> str:
        return f"SURVIVOR={self._token}-{list(SHAPES).index(name)}"


Ending = Callable[[Daemon, Frontend, Escape], Awaitable[None]]
"""Starts the command and brings about its end; after it, none may be alive for long."""


async def by_itself(daemon: Daemon, frontend: Frontend, escape: Escape) -> None:
    """The shell exits, and the turn ends."""
    session_id = await _start(frontend, escape)
    escape.let_go()
    await frontend.turn_ended(session_id)


async def by_interrupt(daemon: Daemon, frontend: Frontend, escape: Escape) -> None:
    """The user interrupts the turn."""
    session_id = await _start(frontend, escape)
    await frontend.must(Interrupt(session_id))
    await frontend.turn_ended(session_id)


async def by_timeout(daemon: Daemon, frontend: Frontend, escape: Escape) -> None:
    """The command takes too long; try again with more time if not all shapes were ready."""
    timeout_s = TIMEOUT_S
    while True:
        session_id = await frontend.session(
            escape.workspace, _call(escape, timeout_s=timeout_s), _text()
        )
        await frontend.say(session_id)
        await frontend.turn_ended(session_id)
        if any(_is_ready(event) for event in frontend.events(session_id)):
            return
        timeout_s *= 2


async def by_leaving(daemon: Daemon, frontend: Frontend, escape: Escape) -> None:
    """The frontend dies; the turn continues, and its command ends after its work."""
    await _start(frontend, escape)
    await frontend.disconnect()
    escape.let_go()


async def by_sigterm(daemon: Daemon, frontend: Frontend, escape: Escape) -> None:
    """The daemon is stopped."""
    await _start(frontend, escape)
    await frontend.disconnect()
    await daemon.terminate()


async def by_kill(daemon: Daemon, frontend: Frontend, escape: Escape) -> None:
    """The daemon is killed."""
    await _start(frontend, escape)
    await frontend.disconnect()
    daemon.kill9()


async def in_background(daemon: Daemon, frontend: Frontend, escape: Escape) -> None:
    """The command runs in the background when its session is archived."""
    session_id = await _start(frontend, escape, background=True)
    assert len(escape.alive()) == len(SHAPES)
    await frontend.must(SessionArchive(session_id))


ENDINGS: Final[dict[str, Ending]] = {
    "by itself": by_itself,
    "interrupt": by_interrupt,
    "timeout": by_timeout,
    "frontend gone": by_leaving,
    "SIGTERM": by_sigterm,
    "kill -9": by_kill,
    "background": in_background,
}


async def _start(frontend: Frontend, escape: Escape, *, background: bool = False) -> str:
    """Start the command in a new session; return when all shapes have escaped."""
    session_id = await frontend.session(
        escape.workspace, _call(escape, background=background), _text()
    )
    await frontend.say(session_id)
    if background:
        await frontend.turn_ended(session_id)
        while len(escape.alive()) < len(SHAPES):  # noqa: ASYNC110 - nobody tells of a fork
            await trio.sleep(0.01)
    else:
        await frontend.until(session_id, _is_ready)
    return session_id


def _call(escape: Escape, **arguments: object) -> ScriptStep:
    part = CallPart("bash", arguments={"command": escape.command, **arguments})
    return ScriptStep(parts=(part,))


def _text() -> ScriptStep:
    return ScriptStep(parts=(TextPart("done"),))


def _is_ready(event: Event) -> bool:
    body = event.body
    return isinstance(body, ItemDelta) and body.channel == "output" and READY in body.delta
