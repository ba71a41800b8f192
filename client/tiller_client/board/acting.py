"""Carries out what a board's keys ask for: ops, chats in the same terminal, and diffs."""

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress

from tiller_client.api.for_asyncio import Client
from tiller_client.board.acts import Act, Create, Land, Open, Send, ShowDiff, Submit
from tiller_client.board.line import Line
from tiller_client.board.sessions import Key, Row
from tiller_client.board.state import BoardState, Typing, View
from tiller_client.chat.attaching import attachments
from tiller_client.command_line.prompt import worktree_name
from tiller_client.errors import RejectedError, TillerError
from tiller_client.following.overview import FollowedHost
from tiller_client.rendering.diff import diff_lines
from tiller_client.rendering.labels import change_line, landed_line, worktree_around
from tiller_client.rendering.style import Theme
from tiller_client.rendering.text import cut
from tiller_protocol.answers import AnyResult, Created, SessionDiffResult
from tiller_protocol.ops import (
    AnyOp,
    SessionArchive,
    SessionCreate,
    SessionDelete,
    SessionDiff,
    UserInput,
)
from tiller_protocol.turns import Queued
from tiller_protocol.worktrees import (
    WorktreeChoice,
    WorktreeLand,
    WorktreeLanded,
    WorktreeList,
    WorktreeListResult,
)

DIFF_LINES_MAX = 20_000
"""More lines of a diff are left out: nobody scrolls so far, and each key draws anew."""

Lend = Callable[[Sequence[str]], Awaitable[int]]
"""Runs a command in the board's terminal, and returns its exit status."""


class Actor:
    """Carries out acts, for each host in their order; what comes of it is noted in the state."""

    def __init__(
        self,
        state: BoardState,
        hosts: Mapping[str, FollowedHost],
        clients: Mapping[str, Client],
        lend: Lend,
        changed: Callable[[], None],
    ) -> None:
        """`changed` is called when a frame is to be drawn; hosts and clients are by label."""
        self._state = state
        self._hosts = hosts
        self._clients = clients
        self._lend = lend
        self._changed = changed
        self._turns = {label: asyncio.Lock() for label in hosts}
        """Held, in the order of requests, by who talks to a host."""
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, act: Act) -> None:
        """Begin to carry out an act."""
        match act:
            case Submit():
                self._begin(act.host, self._submit(act))
            case Send():
                self._begin(act.row.key.host, self._send(act))
            case Create():
                self._begin(act.host, self._create(act))
            case ShowDiff():
                self._begin(act.key.host, self._show_diff(act))
            case Land():
                self._begin(act.row.key.host, self._land(act.row))
            case Open():
                self._spawn(self._open(act.key))
            case _:
                raise AssertionError(f"{act} is not for this module")

    def end(self) -> None:
        """Stop waiting for answers; what was submitted takes effect."""
        for task in self._tasks:
            task.cancel()

    def _begin(self, host: str, work: Coroutine[object, object, None]) -> None:
        self._spawn(self._in_turn(host, work))

    def _spawn(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _in_turn(self, host: str, work: Coroutine[object, object, None]) -> None:
        async with self._turns[host]:
            await work
        self._changed()

    async def _op(self, host: str, op: AnyOp) -> AnyResult | None:
        return await self._clients[host].submit(op)

    async def _submit(self, act: Submit) -> None:
        try:
            await self._op(act.host, act.op)
        except TillerError as error:
            self._state.answered.discard(act.answers)
            self._state.refresh()
            if isinstance(act.op, SessionArchive) and act.op.archived:
                self._state.archived.pop(Key(act.host, act.op.session_id), None)
            self._state.say(str(error))
        else:
            self._state.say(act.done)

    async def _send(self, act: Send) -> None:
        """Send a message; if that fails, the user gets the text back."""
        state, key, session = self._state, act.row.key, act.row.session
        # Messages that wait although no turn runs must not go before this one.
        auto = "start" if session.queued and session.status == "idle" else "auto"
        try:
            # The files of another host can't be attached from here.
            images, files = ((), ()) if key.host else attachments(act.text, session.workspace)
            delivery = "queue" if act.queue else auto
            op = UserInput(key.session_id, act.text, images, files, delivery)
            result = await self._op(key.host, op)
        except TillerError as error:
            if state.typing is None and state.view is None:
                state.typing = Typing("message", Line.of(act.text), act.row)
            state.say(f"not sent: {error}")
        else:
            state.say(f"{'queued' if isinstance(result, Queued) else 'sent'}: {act.text}")

    async def _create(self, act: Create) -> None:
        host, state = act.host, self._state
        try:
            worktree = WorktreeChoice(worktree_name(act.text)) if act.apart else None
            created = await self._op(host, SessionCreate(act.workspace, worktree=worktree))
            assert isinstance(created, Created)
            key = Key(host, created.session_id)
            if act.text:
                await self._op(host, UserInput(key.session_id, act.text))
        except TillerError as error:
            state.say(f"no session was started: {error}")
            return
        state.chosen = key
        if act.text:
            state.say(f"started {key.short}{f' in {worktree.name}' if worktree else ''}")
        else:
            self._spawn(self._open(key, is_new=True))

    async def _show_diff(self, act: ShowDiff) -> None:
        state = self._state
        try:
            found = await self._op(act.key.host, SessionDiff(act.key.session_id))
        except TillerError as error:
            state.say(str(error))
            return
        assert isinstance(found, SessionDiffResult)
        if not found.files:
            some = "; some steps have no snapshot" if found.partial else ""
            state.say(f"{act.name} has changed no file{some}")
        elif state.view is None and state.typing is None:
            state.view = View(f"changes of {act.name}", _lines_of(found), act.key)

    async def _land(self, row: Row) -> None:
        """Land a session's worktree; conflicts become a message that the user may send."""
        state, host = self._state, row.key.host
        try:
            found = await self._op(host, WorktreeList(row.session.workspace, row.session.worktree))
            assert isinstance(found, WorktreeListResult)
            tree = worktree_around(found.worktrees, row.session.workspace)
            if tree is None:
                state.say(f"the worktree of {row.name} is not there any more")
                return
            landed = await self._op(host, WorktreeLand(tree.id))
            assert isinstance(landed, WorktreeLanded)
        except RejectedError as error:
            state.say(str(error))
            task = error.answer.data.get("task")
            if error.answer.code == "conflict" and state.typing is None and state.view is None:
                state.typing = Typing("message", Line.of(str(task)), row)
        except TillerError as error:
            state.say(str(error))
        else:
            state.say(f"{row.name} landed: {landed_line(landed)}")

    async def _open(self, key: Key, *, is_new: bool = False) -> None:
        options = self._hosts[key.host].options
        command = [sys.executable, "-m", "tiller_client", *options, "chat", key.session_id]
        if status := await self._lend(command):
            self._state.say(f"the chat ended with status {status}; leave the board to read why")
        if is_new:
            with suppress(TillerError):  # it stays if there was any input
                await self._op(key.host, SessionDelete(key.session_id, if_empty=True))
        self._changed()


def _lines_of(found: SessionDiffResult) -> Callable[[int, Theme], Sequence[str]]:
    """Return what makes the lines of a diff; they are kept, as each key asks for them."""
    kept: dict[tuple[int, Theme], Sequence[str]] = {}

    def lines(width: int, theme: Theme) -> Sequence[str]:
        if (width, theme) not in kept:
            kept.clear()
            rows = [cut(change_line(one), width) for one in found.files]
            rows += diff_lines(found.diff, width, theme, lines_max=DIFF_LINES_MAX)
            rows += ["… the diff is too long; its end is missing"] if found.cut else []
            kept[width, theme] = rows
        return kept[width, theme]

    return lines


def run_here(command: Sequence[str]) -> int:
    """Run a command in this terminal; returns its exit status."""
    return subprocess.run(command, check=False).returncode
