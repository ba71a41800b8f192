"""Budgets of turns and sessions, and how much of them is spent. Pure."""

import operator
from typing import NamedTuple

from msgspec import structs

from tiller_protocol.events import StepEnded
from tiller_protocol.settings import Budget


class Spent(NamedTuple):
    """The spending so far, in the units of `Budget`."""

    steps: int = 0
    """Model requests."""
    tokens: int = 0
    """Input and output tokens."""
    cost: float = 0.0
    """US dollars, as far as prices are known."""
    time_s: float = 0.0

    def plus(self, other: "Spent") -> "Spent":
        """Return the sum, field by field."""
        return Spent._make(map(operator.add, self, other))

    def minus(self, other: "Spent") -> "Spent":
        """Return the difference, field by field."""
        return Spent._make(map(operator.sub, self, other))


def spent_by(step: StepEnded) -> Spent:
    """Return the spending of one step, except its time."""
    return Spent(1, step.usage.tokens, step.cost or 0.0)


class ReachedLimit(NamedTuple):
    """A limit that was reached."""

    sentence: str
    """A sentence that names the limit."""
    of_session: bool = False
    """Whether this is the session's limit, at which the next turn would stop, too."""


def reached_limit(budget: Budget, spent: Spent, *, of_session: bool = False) -> ReachedLimit | None:
    """Return the first limit reached in a turn's or a session's budget, or `None`."""
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
    """Return the rest of a budget, or `None` if one of its limits is reached."""
    if reached_limit(budget, spent):
        return None
    pairs = zip(structs.astuple(budget), spent, strict=True)
    return Budget(*(None if limit is None else limit - used for limit, used in pairs))


def tighter_budget(one: Budget, other: Budget) -> Budget:
    """Return a budget with the lower limit of the two in each field."""
    fields = ((value, getattr(other, name)) for name, value in structs.asdict(one).items())
    return Budget(*(min((v for v in pair if v is not None), default=None) for pair in fields))
