"""What only the background sub-agents of a session may change, while they work."""

from typing import NamedTuple

from tiller_daemon.tools.write_scope import WriteScope


class Claim(NamedTuple):
    """The places of one background sub-agent."""

    owner: str
    """Its id and its task, for the model."""
    scope: WriteScope


class Claims:
    """The claims of one session: the current ones, and how many there have been."""

    def __init__(self) -> None:
        self._current: dict[str, Claim] = {}
        self._scopes: list[WriteScope] = []

    @property
    def current(self) -> tuple[Claim, ...]:
        """The claims of sub-agents that work."""
        return tuple(self._current.values())

    def begin(self, task_id: str, claim: Claim) -> None:
        """Add the claim of a sub-agent that is about to begin."""
        self._current[task_id] = claim
        self._scopes.append(claim.scope)

    def end(self, task_id: str) -> None:
        """Drop the claim of a sub-agent that has ended, if it had one."""
        self._current.pop(task_id, None)

    def mark(self) -> int:
        """Return a mark for `since`."""
        return len(self._scopes)

    def since(self, mark: int) -> tuple[WriteScope, ...]:
        """Return what was claimed since a mark, including by sub-agents that have ended since."""
        return tuple(self._scopes[mark:])
