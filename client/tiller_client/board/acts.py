"""What a board's keys ask for, beyond a change of the board itself; `app.py` carries it out."""

from typing import NamedTuple

from tiller_client.board.sessions import Key, Row
from tiller_protocol.ops import AnyOp


class Submit(NamedTuple):
    """Submit an op to a host."""

    host: str
    op: AnyOp
    done: str
    """The note once it is accepted."""
    answers: str = ""
    """The request that the op answers."""


class Send(NamedTuple):
    """Send a message to a session."""

    row: Row
    text: str
    queue: bool
    """Whether the running turn takes it after its other work."""


class Create(NamedTuple):
    """Create a session in the workspace of another one, or where the board was started."""

    host: str
    workspace: str
    text: str
    """The first message; if it is empty, open the session in a chat."""
    apart: bool = False
    """Whether it works in a new worktree."""


class Open(NamedTuple):
    """Open a session in a chat."""

    key: Key


class ShowDiff(NamedTuple):
    """Show what a session has changed."""

    key: Key
    name: str


class Land(NamedTuple):
    """Bring the commits of a session's worktree onto its base branch."""

    row: Row


class Do(NamedTuple):
    """Do something that is about no session."""

    what: str
    """`leave`, `suspend` or `redraw`."""


Act = Submit | Send | Create | Open | ShowDiff | Land | Do
