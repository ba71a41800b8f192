"""What turns and sessions may spend and have spent. Pure."""

from typing import NamedTuple

import msgspec

from tiller_protocol.events import StepEnded
from tiller_protocol.settings import Budget


class Spent(NamedTuple):
    """What was spent, in the units of `Budget`."""

    steps: int = 0
    """Model requests."""
    tokens: int = 0
    """Input and output."""
    cost: float = 0.0
    """US dollars, as far as prices are known."""
    time_s: float = 0.0

    def plus(self, other: "Spent") -> "Spent":
        """Return the sum, field by field."""
        return Spent(
            self.steps + other.steps,
            self.tokens + other.tokens,
            self.cost + other.cost,
            self.time_s + other.time_s,
        )

    def minus(self, other: "Spent") -> "Spent":
        """Return the difference, field by field."""
        return Spent(
            self.steps - other.steps,
            self.tokens - other.tokens,
            self.cost - other.cost,
            self.time_s - other.time_s,
        )


def spent_by(step: StepEnded) -> Spent:
    """Return what one step spent, except its time."""
    return Spent(1, step.usage.tokens, step.cost or 0.0)


class ReachedLimit(NamedTuple):
    """A limit that is reached."""

    sentence: str
    """What is reached, as a sentence."""
    of_session: bool = False
    """Whether it is the session's, so that a next turn would stop at it too."""


def reached_limit(budget: Budget, spent: Spent, *, of_session: bool = False) -> ReachedLimit | None:
    """Return the first limit of a turn's or a session's budget that is reached, or `None`."""
    owner = "session" if of_session else "turn"
    limits = (
        (budget.steps, spent.steps, "model requests"),
        (budget.tokens, spent.tokens, "tokens"),
        (budget.cost, spent.cost, "US dollars"),
        (budget.time_s, spent.time_s, "seconds"),
    )
    for limit, used, what in limits:
        if limit is not None and used >= limit:
            sentence = f"The {owner}'s budget of {limit:,.10g} {what} is used up."
            return ReachedLimit(sentence, of_session)
    return None


def remaining_budget(budget: Budget, spent: Spent) -> Budget | None:
    """Return what may still be spent, or `None` if a limit is reached."""
    if reached_limit(budget, spent):
        return None
    return Budget(
        None if budget.steps is None else budget.steps - spent.steps,
        None if budget.tokens is None else budget.tokens - spent.tokens,
        None if budget.cost is None else budget.cost - spent.cost,
        None if budget.time_s is None else budget.time_s - spent.time_s,
    )


def tighter_budget(one: Budget, other: Budget) -> Budget:
    """Return the tighter limit of both, field by field."""
    fields = ((value, getattr(other, name)) for name, value in msgspec.structs.asdict(one).items())
    return Budget(*(min((v for v in pair if v is not None), default=None) for pair in fields))
