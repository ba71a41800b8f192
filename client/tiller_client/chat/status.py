"""The bottom of the screen: what this session uses, and how far it is; pure."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tiller_client.rendering.lines import BRANCH_COLUMNS
from tiller_client.rendering.text import cells, cut, dollars, one_line, rows, seconds
from tiller_client.rendering.wrap import wrapped
from tiller_protocol.snapshot import Snapshot

SEPARATOR = " · "

BESIDE_COLUMNS = 40
"""For the names of other frontends, which choose them freely."""

NOTE_ROWS_MAX = 8
"""Rows of a note, so that the text that is being written stays in sight."""


@dataclass
class Notes:
    """Notes to the user beside the facts."""

    away: str = ""
    """Why no events come; empty while they do."""
    said: str = ""
    """About the last key or command; until the next key."""
    beside: Sequence[str] = ()
    """Names of the other frontends that have the session open."""
    said_before: str = ""
    """`said` when the current key came, as a second key may depend on the note of the first."""

    def key_came(self) -> None:
        """Forget what was said about the key before."""
        self.said_before, self.said = self.said, ""

    def no_key_came(self) -> None:
        """Take it back: what came was from the terminal, not a key of the user."""
        self.said = self.said_before


class Facts(NamedTuple):
    """What the snapshot does not tell."""

    model: str = ""
    """The model of the next turn, where the session leaves that to the configuration."""
    agent: str = ""
    """The agent of the next turn, likewise."""
    note: str = ""
    """What the user should know now, such as that the daemon is not running; shown first."""
    beside: Sequence[str] = ()
    """Names of the other frontends that have the session open."""


def status_rows(snapshot: Snapshot, facts: Facts, now: float, width: int) -> list[str]:
    """The line, without colours; parts at its end are left out where the terminal is narrow.

    A note that is longer than a line stands above it, whole.
    """
    note = one_line(facts.note)
    if cells(note) <= width:
        return [_line(note, _parts(snapshot, facts, now), width)]
    return [*_wrapped(note, width), _line("", _parts(snapshot, facts, now), width)]


def _wrapped(note: str, width: int) -> list[str]:
    lines = wrapped(note, width).split("\n")
    return [row for line in lines for row in rows(line, width)][:NOTE_ROWS_MAX]


def _line(line: str, parts: list[str], width: int) -> str:
    for part in parts:
        longer = f"{line}{SEPARATOR}{part}" if line else part
        if cells(longer) > width:
            break
        line = longer
    return line


def beside(names: Sequence[str]) -> str:
    """The other frontends, each name once: `neovim, tiller chat (2)`."""
    counted = Counter(one_line(name) or "unnamed" for name in names)
    shown = (f"{name} ({count})" if count > 1 else name for name, count in counted.items())
    return cut(", ".join(shown), BESIDE_COLUMNS)


def _parts(snapshot: Snapshot, facts: Facts, now: float) -> list[str]:
    """The parts, the most important first."""
    settings, turn = snapshot.settings, snapshot.turn
    context = turn.context if turn else None
    model = context.model if context else settings.model or facts.model
    variant = context.variant if context else settings.variant
    parts: list[str] = []
    if turn is not None:
        parts.append(f"working {seconds(max(0.0, now - turn.started_at))}")
    parts.append(one_line(f"{model.rpartition('/')[2] or model} {variant or ''}"))
    parts.append(one_line(context.agent if context else settings.agent or facts.agent))
    if snapshot.context_tokens and snapshot.context_window:
        parts.append(f"{100 * snapshot.context_tokens / snapshot.context_window:.0f} % context")
    if snapshot.cost is not None:
        parts.append(dollars(snapshot.cost))
    if snapshot.queue:
        parts.append(f"{len(snapshot.queue)} queued")
    if running := sum(command.state == "running" for command in snapshot.background):
        parts.append(f"{running} in the background")
    if settings.approve in ("always", "never"):
        parts.append(
            {"always": "asks nothing", "never": "denies instead of asking"}[settings.approve]
        )
    if sandbox := (context.sandbox if context else settings.sandbox):
        parts.append(f"sandbox {sandbox.replace('_', ' ')}")
    if facts.beside:
        parts.append(f"also: {beside(facts.beside)}")
    if snapshot.branch:
        parts.append(cut(one_line(snapshot.branch), BRANCH_COLUMNS))
    return [part for part in parts if part]
