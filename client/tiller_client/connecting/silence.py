"""Tells the user what a verb waits for, once the daemon has been silent for a while.

Only the command line does this: users of the library get an exception at the deadline.
"""

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

from tiller_client.connecting.runtime import daemon_pid
from tiller_protocol.daemon import Backup
from tiller_protocol.ops import AnyOp, Catalog, Revert, SessionCreate, Unrevert
from tiller_protocol.places import Places
from tiller_protocol.worktrees import (
    WorktreeChoice,
    WorktreeLand,
    WorktreeList,
    WorktreeRemove,
    WorktreeRestore,
)

SAID_AFTER_S = 3.0
"""Silence after which the user is told: the daemon usually answers within milliseconds."""

SEARCH_SAID_AFTER_S = 0.5
"""The same limit while a model is looked for: new users don't expect this wait."""

LEAVE = "to leave, press Ctrl-C"

SEARCH = (
    "no model is configured; looking for a model server on this machine (Ollama, llama.cpp, "
    "LM Studio, vLLM)"
)


class Silence:
    """A wait for the daemon; `check` tells the user once if it takes long."""

    say: ClassVar[Callable[[str], None] | None] = None
    """Shows a text to the user; `None` if the user is not to be told."""

    def __init__(
        self, describe: Callable[[], str], *, soon: bool = False, was_said: bool = False
    ) -> None:
        """Begin to wait; `describe` returns the text for the user, unless it `was_said` before.

        With `soon`, the user is told after `SEARCH_SAID_AFTER_S`.
        """
        self._describe = describe
        self.was_said = was_said
        """Whether the user has been told."""
        after_s = SEARCH_SAID_AFTER_S if soon else SAID_AFTER_S
        self._due = time.monotonic() + after_s if self.say and not was_said else math.inf

    @property
    def left_s(self) -> float:
        """The time until `check` tells the user; infinite afterwards."""
        return max(0.0, self._due - time.monotonic())

    def check(self) -> None:
        """Tell the user, if it is time."""
        if time.monotonic() >= self._due:
            self._due, self.was_said = math.inf, True
            assert Silence.say
            Silence.say(self._describe())


def not_listening(places: Places) -> Silence:
    """The wait for a daemon that starts or stops."""
    text = "the daemon is still starting or stopping; see its log: tiller daemon logs"
    return Silence(lambda: f"{_stopped(places) or text}; {LEAVE}")


def waits_for(op: AnyOp, places: Places, program: str) -> str:
    """The text about what an op waits for, with advice that begins with `program`."""
    match op:
        case Catalog(start_servers=True):
            return "still waiting for MCP servers to start"
        case Catalog(ask=True):
            return "still waiting for providers to list their models"
        case Revert() | Unrevert():
            return _stopped(places) or "still putting files back"
        case SessionCreate(worktree=WorktreeChoice()):
            return _stopped(places) or "still making the worktree"
        case WorktreeList():
            return _stopped(places) or "still looking at the worktrees"
        case WorktreeLand() | WorktreeRemove() | WorktreeRestore():
            return _stopped(places) or "still at work on the worktree"
        case Backup():
            return _stopped(places) or "still writing the backup"
        case _:
            return _stopped(places) or (
                f"the daemon has not answered for {SAID_AFTER_S:g} s; still waiting for it; see "
                f"its log: {program} daemon logs; if it hangs: {program} daemon restart"
            )


def _stopped(places: Places) -> str:
    """The text about a daemon that a signal has suspended; empty if the daemon runs."""
    pid = daemon_pid(places)
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:  # there is no /proc, or no daemon on this machine
        return ""
    if stat.rpartition(")")[2].split()[0] not in ("T", "t"):
        return ""
    return f"the daemon is suspended; still waiting for it; to resume it: kill -CONT {pid}"
