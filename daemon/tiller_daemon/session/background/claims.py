"""Claims: the files that only one background sub-agent of a session may change while it works."""

from typing import NamedTuple

from tiller_daemon.tools.write_scope import WriteScope


class Claim(NamedTuple):
    """The files and directories that one background sub-agent has claimed."""

    owner: str
    """The sub-agent's id and task, for the model."""
    scope: WriteScope


class Claims:
    """The claims of one session: the current claims, and all scopes claimed so far."""

    def __init__(self) -> None:
        self._current: dict[str, Claim] = {}
        self._scopes: list[WriteScope] = []

    @property
    def current(self) -> tuple[Claim, ...]:
        """The claims of sub-agents that are still working."""
        return tuple(self._current.values())

    def begin(self, task_id: str, claim: Claim) -> None:
        """Add the claim of a sub-agent that is about to begin."""
        self._current[task_id] = claim
        self._scopes.append(claim.scope)

    def end(self, task_id: str) -> None:
        """Drop the claim of a sub-agent that has ended, if it had a claim."""
        self._current.pop(task_id, None)

    def mark(self) -> int:
        """Return a mark for the present time, to pass to `since`."""
        return len(self._scopes)

    def since(self, mark: int) -> tuple[WriteScope, ...]:
        """Return the scopes claimed since a mark, including those of sub-agents that have ended."""
        return tuple(self._scopes[mark:])
