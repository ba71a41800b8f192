"""The status line at the bottom of the screen: settings, state and figures; pure."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tiller_client.rendering.layout import text_rows
from tiller_client.rendering.lines import BRANCH_COLUMNS, context_line, tokens_line
from tiller_client.rendering.text import cells, counted, cut, dollars, one_line, seconds
from tiller_protocol.items import AssistantMessage, Item
from tiller_protocol.snapshot import Snapshot, is_working

SEPARATOR = " · "

BESIDE_COLUMNS = 40
"""Maximum width of the names of other frontends, which may be of any length."""

NOTE_ROWS_MAX = 8
"""Maximum height of a note in rows, so that the editor stays visible."""


@dataclass
class Notes:
    """Notes to the user in the status line."""

    away: str = ""
    """Why no events arrive; empty while they do."""
    said: str = ""
    """The note about the last key or command; shown until the next key."""
    beside: Sequence[str] = ()
    """Names of the other frontends that have the session open."""
    said_before: str = ""
    """The note before the present key, as a second key may depend on the first key's note."""

    def key_came(self) -> None:
        """Forget the note about the previous key."""
        self.said_before, self.said = self.said, ""

    def no_key_came(self) -> None:
        """Undo `key_came`, because the terminal sent this, not the user."""
        self.said = self.said_before


class Facts(NamedTuple):
    """Facts that are not in the snapshot."""

    model: str = ""
    """The configured model, for sessions that have chosen none."""
    agent: str = ""
    """The configured agent, for sessions that have chosen none."""
    note: str = ""
    """A note for the user, such as that the daemon is not running; shown first."""
    beside: Sequence[str] = ()
    """Names of the other frontends that have the session open."""
    is_away: bool = False
    """Whether no events arrive, so that nothing is known about the turn."""


def status_rows(snapshot: Snapshot, facts: Facts, now: float, width: int) -> list[str]:
    """The status line, without colours; on a narrow terminal, its last parts are left out.

    A note that is longer than a line is shown above the status line.
    """
    note = one_line(facts.note)
    if cells(note) <= width:
        return [_line(note, _parts(snapshot, facts, now), width)]
    return [*text_rows(note, width)[:NOTE_ROWS_MAX], _line("", _parts(snapshot, facts, now), width)]


def _line(line: str, parts: list[str], width: int) -> str:
    for part in parts:
        longer = f"{line}{SEPARATOR}{part}" if line else part
        if cells(longer) > width:
            break
        line = longer
    return line


def beside(names: Sequence[str]) -> str:
    """The names of other frontends, each once: `neovim, tiller chat (2)`."""
    counted = Counter(one_line(name) or "unnamed" for name in names)
    shown = (f"{name} ({count})" if count > 1 else name for name, count in counted.items())
    return cut(", ".join(shown), BESIDE_COLUMNS)


def _parts(snapshot: Snapshot, facts: Facts, now: float) -> list[str]:
    """The parts of the status line, the most important first."""
    settings, turn = snapshot.settings, snapshot.turn
    context = turn.context if turn else None
    model = context.model if context else settings.model or facts.model
    variant = context.variant if context else settings.variant
    parts: list[str] = []
    if snapshot.requests:
        parts.append("waits for your answer")
    elif turn is not None and is_working(snapshot) and not facts.is_away:
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


def status_facts(snapshot: Snapshot, known: Facts) -> list[tuple[str, str]]:
    """The names and values that `/status` lists."""
    settings = snapshot.settings
    facts = [
        ("session", f"{snapshot.session_id} · {snapshot.title or 'untitled'}"),
        ("workspace", " · ".join(filter(None, (snapshot.workspace, snapshot.branch)))),
        ("model", " ".join(filter(None, (settings.model or known.model, settings.variant)))),
        ("agent", settings.agent or known.agent),
        ("approvals", settings.approve or ""),
        ("sandbox", (settings.sandbox or "").replace("_", " ")),
        ("context", context_line(snapshot).removeprefix("context ")),
        ("tokens", tokens_line(snapshot.usage)),
        ("cost", "" if snapshot.cost is None else dollars(snapshot.cost)),
        ("work", f"{counted(snapshot.turns, 'turn')} · {counted(snapshot.steps, 'step')}"),
        ("time", seconds(snapshot.worked_s)),
    ]
    return [(name, value) for name, value in facts if value]


def last_answer(items: Sequence[Item]) -> str:
    """The model's last message, as it wrote it."""
    messages = (one.text for one in reversed(items) if isinstance(one, AssistantMessage))
    return next(filter(str.strip, messages), "")
