"""The list of a session's background commands and sub-agents. Pure."""

from msgspec import structs

from tiller_protocol.items import BackgroundCommand
from tiller_protocol.snapshot import Snapshot

LISTED_MAX = 32
"""Maximum length of the list. Running entries always stay; the oldest ended ones drop out."""


def listed_with(
    before: tuple[BackgroundCommand, ...], changed: BackgroundCommand
) -> tuple[BackgroundCommand, ...]:
    """Return the list after adding or replacing an entry."""
    if any(entry.id == changed.id for entry in before):
        return tuple(changed if entry.id == changed.id else entry for entry in before)
    # The oldest ended entries are dropped first; running ones stay, as they can still be ended.
    too_many = len(before) + 1 - LISTED_MAX
    ended = [entry.id for entry in before if entry.state != "running"][: max(0, too_many)]
    return (*(entry for entry in before if entry.id not in ended), changed)


def next_id(snapshot: Snapshot, prefix: str) -> str:
    """Return a short id that a model can remember. Numbers continue after a restart."""
    named = [entry.id for entry in snapshot.background if entry.id.startswith(prefix)]
    numbers = [int(entry.removeprefix(prefix)) for entry in named]
    return f"{prefix}{max(numbers, default=0) + 1}"


def lost_entries(snapshot: Snapshot) -> tuple[BackgroundCommand, ...] | None:
    """Return the list with running entries marked as lost; None if no entry was running."""
    if all(entry.state != "running" for entry in snapshot.background):
        return None
    return tuple(
        structs.replace(entry, state="lost") if entry.state == "running" else entry
        for entry in snapshot.background
    )
