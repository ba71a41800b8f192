"""What a session keeps of the turn that is open, and what turns cost."""

from msgspec import Struct

from tiller_protocol.items import Usage
from tiller_protocol.settings import TurnContextShown

RESUMED = "resumed"
"""Code of the notice that a turn goes on after the daemon had stopped in it."""


class OpenTurn(Struct, omit_defaults=True):
    """The turn that runs, or that was running when the log ended. `step` is 0 before the first.

    It was `resumed` so many times, after `away_s` seconds in all in which no daemon ran it.
    """

    turn_id: str
    started_at: float
    context: TurnContextShown
    step: int = 0
    step_open: bool = False
    steps_ended: int = 0
    delegated_steps: int = 0
    usage: Usage = Usage()
    cost: float | None = None
    last_message: str = ""
    resumed: int = 0
    away_s: float = 0.0

    def worked_s(self, now: float) -> float:
        """How long it has run until `now`, in Unix seconds."""
        return max(0.0, now - self.started_at - self.away_s)


def add_cost(total: float | None, more: float | None) -> float | None:
    """Sum of two costs in US dollars, where `None` means that the price is unknown."""
    return total if more is None else more + (total or 0.0)
