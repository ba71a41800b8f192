"""The keys of a board: each changes the state, or asks for an act; pure.

No letter that answers a request does any harm in the list, where the user may press it too late.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from tiller_client.board.acts import Act, Create, Do, Land, Open, Send, ShowDiff, Submit
from tiller_client.board.filtering import Filter
from tiller_client.board.line import Line
from tiller_client.board.sessions import GROUPS, Row
from tiller_client.board.state import BoardState, Typing, View
from tiller_client.chat.asking import Choice
from tiller_client.chat.rows import explained_rows
from tiller_client.rendering.requests import request_text, title_line
from tiller_client.rendering.style import Theme
from tiller_client.rendering.text import cut, one_line
from tiller_protocol.ops import Answer, Interrupt, SessionArchive, SessionMarkSeen, TurnContinue

KEYS_SHOWN = (
    ("↑ ↓ PgUp PgDn", "choose a session; Home and End: the first and the last one"),
    ("Enter", "open the session in a chat; leaving the chat returns here"),
    ("a", "read what the session asks, and answer it"),
    ("n", "go to the next session that needs you"),
    ("s", "write a message: Enter steers the running turn or starts one, Tab queues"),
    ("i i", "interrupt the running turn"),
    ("o", "go on: send the messages that wait, or continue a turn that did not complete"),
    ("d", "show what the session has changed"),
    ("l l", "land the session's worktree: bring its commits onto the branch it came from"),
    ("m", "mark the session as seen"),
    ("x", "archive the session; u brings the last one back"),
    ("c", "create a session in the same directory, with a first message or in a chat"),
    ("w", "create one in a new worktree of the same repository"),
    ("/", "filter: words, repo:NAME, host:NAME, group:NAME; Esc shows all again"),
    ("1 … 5", "show only one group; again: all"),
    ("Ctrl-L", "redraw"),
    ("Ctrl-Z", "suspend the board"),
    ("q, Ctrl-C, Ctrl-D", "leave; the sessions go on"),
)

INTERRUPT = "i again interrupts"
LAND = "l again lands the worktree"
NOTHING_ASKED = "asks nothing now"
ANSWERED_ELSEWHERE = (
    "the request is no longer open: it was answered elsewhere, or its turn has ended"
)
NO_SESSION = "no session is chosen"

Acts = Sequence[Act]


def press(state: BoardState, key: str, text: str, now: float) -> Acts:
    """Carry out a key at `now`, by the clock of `Asking.seen`; return what else is to be done.

    `key` is a name such as `enter` or `c-l`, `text` for a character, or `paste`. `text` is what the
    key types.
    """
    state.said_before, state.said = state.said, ""
    if key in ("c-l", "c-z"):
        return [Do("redraw" if key == "c-l" else "suspend")]
    if state.typing is not None:
        return _type(state, state.typing, key, text)
    if state.view is not None:
        return _read(state, state.view, key, text, now)
    return _choose(state, key, text)


def close_request_if_gone(state: BoardState) -> None:
    """Leave the view of a request that is no longer open; a late key does no harm in the list."""
    view = state.view
    if view is None or not view.request_id:
        return
    if all(one.id != view.request_id for one in state.requests_of(view)):
        _close(state)
        state.say(ANSWERED_ELSEWHERE)


def _choose(state: BoardState, key: str, text: str) -> Acts:
    """Carry out a key of the list."""
    moves = {
        "up": -1, "down": 1, "pageup": -PAGE_ROWS, "pagedown": PAGE_ROWS,
        "home": -len(state.rows), "end": len(state.rows),
    }  # fmt: skip
    name = text if key == "text" else key
    name = {"j": "down", "k": "up", "g": "home", "G": "end", "c-p": "up", "c-n": "down"}.get(
        name, name
    )
    if name in moves:
        state.choose(state.at + moves[name])
    elif name in ("q", "c-c", "c-d"):
        return [Do("leave")]
    elif name == "esc":
        state.narrow(Filter())
    elif name == "/":
        state.typing = Typing("filter", Line.of(state.filter.text))
    elif name == "?":
        state.view = View("keys", _help)
    elif name == "u":
        return _bring_back(state)
    elif len(name) == 1 and name in "12345":
        state.narrow(state.filter.toggled(f"group:{GROUPS[int(name) - 1]}"))
    elif name in _OF_ROW:
        if state.row is None and name in _CREATE and state.here:
            state.typing = Typing(_CREATE[name], Line())
        elif state.row is None:
            state.say(NO_SESSION)
        else:
            return _OF_ROW[name](state, state.row)
    return []


PAGE_ROWS = 20
"""About how many sessions a page has."""

DONE_COLUMNS = 40
"""Columns for the title of an answered request: enough to recognise the request."""

LINES_MAX = 1 << 30
"""More lines than any text has."""


def _bring_back(state: BoardState) -> Acts:
    if not state.archived:
        state.say("nothing was archived here")
        return []
    key, name = state.archived.popitem()
    op = SessionArchive(key.session_id, archived=False)
    return [Submit(key.host, op, f"{name} is back")]


def _open(_state: BoardState, row: Row) -> Acts:
    return [Open(row.key)]


def _ask(state: BoardState, row: Row) -> Acts:
    if not row.requests:
        state.say(f"{row.name} {NOTHING_ASKED}")
        return []
    request = row.requests[0]
    state.asking.show(request)

    def lines(width: int, theme: Theme) -> Sequence[str]:
        return request_text(request, theme, width).split("\n")

    state.view = View(f"{row.name} · {row.narrow_place}", lines, row.key, request.id)
    return []


def _next(state: BoardState, _row: Row) -> Acts:
    asking = [at for at, row in enumerate(state.rows) if row.group == "needs_you"]
    if not asking:
        state.say("no session needs you")
        return []
    state.choose(next((at for at in asking if at > state.at), asking[0]))
    return []


def _write(state: BoardState, row: Row) -> Acts:
    state.typing = Typing("message", Line(), row)
    return []


def _interrupt(state: BoardState, row: Row) -> Acts:
    asked = f"{INTERRUPT} {row.key.short}: {row.name}"  # titles may be the same
    if row.session.status == "idle":
        state.say(f"{row.name} runs no turn")
    elif state.said_before == one_line(asked):
        return [Submit(row.key.host, Interrupt(row.key.session_id), f"interrupted {row.name}")]
    else:
        state.say(asked)
    return []


def _go_on(state: BoardState, row: Row) -> Acts:
    session = row.session
    if session.status != "idle":
        state.say(f"{row.name} runs a turn already")
    elif session.queued or session.last_outcome not in (None, "completed"):
        _choose_near(state, row)
        return [Submit(row.key.host, TurnContinue(row.key.session_id), f"{row.name} goes on")]
    else:
        state.say(f"{row.name} has nothing to go on with; s writes a message")
    return []


def _diff(_state: BoardState, row: Row) -> Acts:
    return [ShowDiff(row.key, row.name)]


def _land(state: BoardState, row: Row) -> Acts:
    asked = f"{LAND} {row.session.worktree}: {row.name}"
    if not row.session.worktree:
        state.say(f"{row.name} works in no worktree")
    elif state.said_before == one_line(asked):
        state.say(f"landing {row.session.worktree} …")  # a check may take minutes
        return [Land(row)]
    else:
        state.say(asked)
    return []


def _mark_seen(state: BoardState, row: Row) -> Acts:
    if not row.session.unseen:
        state.say(f"{row.name} was seen already")
        return []
    _choose_near(state, row)
    op = SessionMarkSeen(row.key.session_id, until=row.session.head)
    return [Submit(row.key.host, op, f"seen: {row.name}")]


def _choose_near(state: BoardState, row: Row) -> None:
    """Choose the next row of the group of one that is about to move to another group."""
    near = (at for at in (state.at + 1, state.at - 1) if 0 <= at < len(state.rows))
    for at in near:
        if state.rows[at].group == row.group:
            state.choose(at)
            break


def _archive(state: BoardState, row: Row) -> Acts:
    state.archived[row.key] = row.name
    done = f"archived {row.name}; u brings it back"
    return [Submit(row.key.host, SessionArchive(row.key.session_id), done)]


def _create(state: BoardState, row: Row) -> Acts:
    state.typing = Typing(_CREATE["c"], Line(), row)
    return []


def _create_apart(state: BoardState, row: Row) -> Acts:
    state.typing = Typing(_CREATE["w"], Line(), row)
    return []


_CREATE: Mapping[str, Literal["new", "worktree"]] = {"c": "new", "w": "worktree"}
"""What is typed after the keys that create a session, for which none need be chosen."""

_OF_ROW: Mapping[str, Callable[[BoardState, Row], Acts]] = {
    "enter": _open, "a": _ask, "n": _next, "s": _write, "i": _interrupt, "o": _go_on,
    "d": _diff, "l": _land, "m": _mark_seen, "x": _archive, "c": _create, "w": _create_apart,
}  # fmt: skip


def _help(width: int, theme: Theme) -> Sequence[str]:
    return explained_rows("Keys", KEYS_SHOWN, width, theme)


def _read(state: BoardState, view: View, key: str, text: str, now: float) -> Acts:
    """Carry out a key while a text is shown."""
    is_request = bool(view.request_id)
    moves = {
        "up": -1, "down": 1, "pageup": 1 - view.rows, "pagedown": view.rows - 1,
        "home": -view.top, " ": view.rows - 1,
    }  # fmt: skip
    name = text if key == "text" else key
    if is_request and view.fits and key in ("up", "down"):
        return _answer(state, key, text, now)
    if name in moves and not (is_request and name == " "):
        view.scroll(moves[name])
    elif key == "end":
        view.top = LINES_MAX  # drawing corrects it
    elif key in ("esc", "c-c", "c-d") or (name == "q" and not is_request):
        if not (is_request and state.asking.cancel()):
            _close(state)
    elif is_request:
        return _answer(state, key, text, now)
    return []


def _answer(state: BoardState, key: str, text: str, now: float) -> Acts:
    asking = state.asking
    request = asking.request
    assert request is not None
    if not asking.takes_keys(now, editor_is_empty=True):
        return []
    if key in ("up", "down", "tab", "s-tab"):
        asking.move(1 if key in ("down", "tab") else -1)
    elif key == "text":
        typed = asking.press(text)
        if asking.typing is not None:
            state.typing = Typing("reason", Line(), state.row)
        elif typed and request.kind == "question":
            state.typing = Typing("answer", Line.of(typed), state.row)
    elif key == "paste" and request.kind == "question":
        state.typing = Typing("answer", Line.of(text), state.row)
    elif key == "enter":
        choice = asking.confirm()
        if choice is not None:
            return _give(state, choice)
        if asking.typing is not None:
            state.typing = Typing("reason", Line(), state.row)
    return []


def _give(state: BoardState, choice: Choice) -> Acts:
    """Give an answer, and return to the list, to the next session that needs the user."""
    request, view = state.asking.request, state.view
    assert request is not None
    assert view is not None
    key = view.key
    assert key is not None
    state.asking.answered()
    state.answered.add(request.id)
    _close(state)
    state.refresh()
    state.choose_next_asking()
    answer = one_line(choice.label or choice.text)
    done = f"answered “{answer}”: {cut(one_line(title_line(request)), DONE_COLUMNS)}"
    op = Answer(request.id, choice.decision, choice.text)
    return [Submit(key.host, op, done, answers=request.id)]


def _close(state: BoardState) -> None:
    state.view = state.typing = None
    state.asking.show(None)


def _type(state: BoardState, typing: Typing, key: str, text: str) -> Acts:
    """Carry out a key while the user types a text."""
    line = typing.line
    if key in ("text", "paste"):
        line.insert(text if typing.purpose != "filter" else one_line(text) or " ")
    elif key == "esc" or (key == "c-c" and not line.text):
        state.typing = None
        state.asking.cancel()
        if typing.purpose == "filter":
            state.narrow(Filter())
    elif key == "c-c":
        typing.line = Line()
    elif key in ("enter", "tab"):
        return _finish(state, typing, queue=key == "tab")
    else:
        line.press(key)
    if typing.purpose == "filter" and state.typing is typing:
        state.narrow(Filter(typing.line.text))
    return []


def _finish(state: BoardState, typing: Typing, *, queue: bool) -> Acts:
    text, row = typing.line.text.strip(), typing.row
    state.typing = None
    if typing.purpose == "filter":
        state.say(state.filter.problem)
        return []
    if typing.purpose in ("new", "worktree"):
        apart = typing.purpose == "worktree"
        return [Create(row.key.host if row else "", typing.place(state.here), text, apart)]
    if row is None:
        return []
    if typing.purpose == "reason":
        return _give(state, state.asking.finish(text))
    if typing.purpose == "answer":
        return _give(state, Choice("", "", "answer", text))
    if not text:
        state.say("nothing was sent")
        return []
    return [Send(row, text, queue)]
