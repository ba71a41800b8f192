"""Sessions for boards, and what a board shows of them."""

from hashlib import sha256
from typing import Any

from tiller_client.board.frame import Drawn, compose
from tiller_client.board.keys import press
from tiller_client.board.state import BoardState
from tiller_client.following.overview import News
from tiller_client.rendering.style import Theme
from tiller_protocol.items import Request
from tiller_protocol.snapshot import SessionSummary

NOW = 1_800_000_000.0
PUSH = Request("r1", "approval", "Run git push", permission="bash", subjects=("git push",))
LONG = Request(
    "r2", "approval", "Run a script", detail="\n".join(f"line {n}" for n in range(100)),
    detail_kind="command",
)  # fmt: skip


def session(name: str, **fields: Any) -> SessionSummary:
    """A session with this title, from which its id follows."""
    session_id = "01K0" + sha256(name.encode()).hexdigest()[:22].upper()
    given: dict[str, Any] = {"workspace": "/src/accounts", "title": name, "head": 9}
    given |= {"created_at": NOW - 100, "updated_at": NOW - 60}
    return SessionSummary(session_id, **(given | fields))


def in_every_group() -> list[SessionSummary]:
    """A session for each group, the last group first."""
    return [
        session("read", last_outcome="completed", last_line="It is cached."),
        session("ended", last_outcome="completed", unseen=True, last_line="All tests pass."),
        session("broke", last_outcome="failed", unseen=True, reason="no such model"),
        session("later", last_outcome="interrupted", queued=2, updated_at=NOW - 5),
        session("again", status="retry", working_since=NOW - 90),
        session("builds", status="busy", doing="bash make", plan_done=1, plan_size=3,
                working_since=NOW - 200),
        session("pushes", status="waiting", requests=(PUSH,), branch="fix/login"),
    ]  # fmt: skip


def board(*sessions: SessionSummary, label: str = "", here: str = "") -> BoardState:
    """A board of one host, which has just said that it has these sessions."""
    state = BoardState([label], here=here)
    state.take(News(label, NOW, sessions, whole=True))
    return state


def drawn(state: BoardState, size: tuple[int, int] = (80, 24), steady: float = 0.0) -> Drawn:
    """The board's window without colours."""
    return compose(state, size, NOW, steady, Theme())


def shown(state: BoardState, size: tuple[int, int] = (80, 24)) -> str:
    """The text of the board's window."""
    return "\n".join(drawn(state, size).frame.rows)


def pressed(state: BoardState, *keys: str, now: float = 1e9) -> list[Any]:
    """Press keys: names such as `enter`, or characters; return what is to be done."""
    acts: list[Any] = []
    for key in keys:
        is_text = len(key) == 1
        acts += press(state, "text" if is_text else key, key if is_text else "", now)
    return acts


def read_all(state: BoardState, size: tuple[int, int] = (80, 24)) -> None:
    """Draw the window, and let the user see what it has."""
    asked = drawn(state, size).asked
    if state.asking.request is not None and state.asking.request.id == asked:
        state.asking.seen(0.0)
