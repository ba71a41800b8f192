"""Every state of `tiller board` that a person can see, to be tested and drawn."""

from collections.abc import Callable
from typing import Any, NamedTuple

from support.boards import NOW, pressed, read_all, session
from tiller_client.board.state import BoardState
from tiller_client.following.overview import News
from tiller_protocol.items import Request
from tiller_protocol.snapshot import SessionSummary

PUSH = "git push origin main && gh release create v1.2 --notes-file NOTES.md"
APPROVAL = Request(
    "r1", "approval", f"Run {PUSH}", permission="bash", subjects=(PUSH,), detail=PUSH,
    detail_kind="command", always=("git push *",),
)  # fmt: skip
QUESTION = Request(
    "r2", "question", "Which names should be the same?",
    choices=("Those that differ in case only", "Only equal ones"),
)  # fmt: skip
SCRIPT = Request(
    "r3", "approval", "Write deploy.sh", permission="edit", subjects=("deploy.sh",),
    detail="".join(f"+step {number} of the deployment\n" for number in range(1, 41)),
    detail_kind="diff",
)  # fmt: skip

MINUTE, HOUR = 60, 3600


def one(title: str, ago_s: float, repository: str, branch: str, **fields: Any) -> SessionSummary:
    """A session of the picture; `fields` are those of its summary."""
    times = {"created_at": NOW - 2 * HOUR - ago_s, "updated_at": NOW - ago_s}
    if fields.get("status") == "busy":
        times |= {"working_since": NOW - ago_s, "updated_at": NOW}
    used = {"context_window": 128_000, "last_outcome": "completed"}
    place = {"workspace": f"/home/ann/{repository}", "branch": branch}
    return session(title, **(used | times | place | fields))


HERE = (
    one("Publish version 1.2", 90, "accounts", "main", status="waiting", requests=(APPROVAL,),
        context_tokens=31_000, cost=0.42),
    one("Log in with names in capitals", 20, "accounts", "fix/login", status="waiting",
        requests=(QUESTION,), context_tokens=14_000, cost=0.11, plan_done=1, plan_size=3),
    one("Make the suite faster", 4 * MINUTE, "accounts-suite", "faster-suite", status="busy",
        doing="bash pytest -q -n4 tests", context_tokens=52_000, cost=1.37, plan_done=2,
        plan_size=4, changed_files=6, added_lines=120, removed_lines=48),
    one("Describe the new settings", 35, "website", "docs/settings", status="busy",
        doing="write docs/settings.md", context_tokens=9_000, cost=0.05),
    one("Translate the error messages", 12, "website", "main", status="retry",
        context_tokens=21_000, cost=0.2),
    one("Tidy the style sheets", 9 * MINUTE, "website", "main", queued=1,
        last_outcome="interrupted", context_tokens=5_000, cost=0.02),
    one("Rename User to Account", 3 * MINUTE, "accounts-rename", "rename-user", unseen=True,
        last_line="All 214 tests pass.", context_tokens=40_000, cost=0.88, changed_files=31),
    one("Update the dependencies", 11 * MINUTE, "website", "deps", unseen=True,
        last_outcome="failed", reason="the provider answered 401: the key is not valid",
        context_tokens=2_000, cost=0.01),
    one("Explain the cache of sessions", 2 * HOUR, "accounts", "main",
        last_line="So an entry lives until the next login.", context_tokens=18_000, cost=0.09),
)  # fmt: skip
BOX = (
    one("Train the classifier", 50 * MINUTE, "vision", "lr-sweep", status="busy",
        doing="bash make train", context_tokens=64_000, cost=2.1),
    one("Why is the loss not a number?", 5 * MINUTE, "vision", "main", unseen=True,
        last_line="One image is empty: data/0481.png.", context_tokens=12_000, cost=0.3),
)  # fmt: skip
LONG = one("Deploy at night", 15, "website", "main", status="waiting", requests=(SCRIPT,))


def _board(*more: SessionSummary, box: bool = False) -> BoardState:
    state = BoardState(["", "box"] if box else [""])
    state.take(News("", NOW, [*more, *HERE], whole=True))
    if box:
        state.take(News("box", NOW - 3 * MINUTE, BOX, whole=True))
    return state


def _several_hosts() -> BoardState:
    state = _board(box=True)
    state.take(News("box", NOW, problem="ssh can't reach box: Connection timed out"))
    return state


def _answering(size: tuple[int, int]) -> BoardState:
    state = _board()
    pressed(state, "a")
    read_all(state, size)
    pressed(state, "y")
    return state


def _long() -> BoardState:
    state = _board(LONG)
    pressed(state, "n", "n", "a")
    return state


def _after(*keys: str) -> BoardState:
    state = _board()
    pressed(state, *keys)
    return state


class BoardScreen(NamedTuple):
    """Something that a person can see of a board."""

    name: str
    about: str
    """One sentence for the page that shows it."""
    make: Callable[[tuple[int, int]], BoardState]
    """Makes the board for a window of this size."""
    shows: tuple[str, ...]
    """What is to be seen."""
    main: bool = False
    """Whether it is drawn in every size and palette."""


BOARD_SCREENS = (
    BoardScreen(
        "board", "The board.", lambda _: _board(), ("needs you · 2", "▸? Publish"), main=True
    ),
    BoardScreen(
        "hosts", "Sessions on two machines, of which one can't be reached.",
        lambda _: _several_hosts(), ("! box has said nothing for 3 min", "box:vision"),
    ),
    BoardScreen(
        "answering", "A request is answered.", _answering,
        (PUSH, "▸ y  yes, once  (Enter)"), main=True,
    ),
    BoardScreen(
        "long", "A request that does not fit into the window.", lambda _: _long(),
        ("more lines below", "first read all of it: PgDn"),
    ),
    BoardScreen(
        "message", "A message to a working session.",
        lambda _: _after("down", "down", "s", *"leave the fixtures alone"),
        ("Enter steers, Tab queues", "leave the fixtures alone"),
    ),
    BoardScreen(
        "filter", "A filter.", lambda _: _after("/", *"repo:accounts"),
        ("of 9 sessions · filter: repo:accounts",),
    ),
    BoardScreen("keys", "The keys.", lambda _: _after("?"), ("interrupt the running turn",)),
)  # fmt: skip
