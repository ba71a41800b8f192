"""The application: one session in one terminal, from its first frame until the user leaves.

prompt-toolkit reads the keyboard and edits the text. `Screen` draws the conversation, the editor
and the open request.
"""

import asyncio
import contextlib
import signal
import sys
import time
from collections.abc import Coroutine, Sequence
from typing import Any

from msgspec.structs import replace
from prompt_toolkit.application import Application
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.layout import BufferControl, Layout, Window
from prompt_toolkit.output import DummyOutput
from prompt_toolkit.renderer import Renderer
from prompt_toolkit.styles import DummyStyle

from tiller_client.api.for_asyncio import Client
from tiller_client.chat.actions import Actions
from tiller_client.chat.keys import bindings
from tiller_client.chat.opening import Opening, open_session
from tiller_client.chat.screen import Screen
from tiller_client.chat.state import ChatState
from tiller_client.chat.sub_agents import SubAgents, working
from tiller_client.chat.submitting import RETRY_S, Submitter
from tiller_client.chat.terminal.backdrop import kind_of
from tiller_client.chat.terminal.keyboard import Keyboard, type_ahead
from tiller_client.chat.terminal.typed_ahead import waiting
from tiller_client.connecting.runtime import my_places
from tiller_client.connecting.silence import Silence
from tiller_client.console import say
from tiller_client.errors import RejectedError, StartedOver, TillerError
from tiller_client.following.catchup import leaving
from tiller_client.program_name import program
from tiller_client.rendering.blocks import parser
from tiller_client.rendering.lines import model_problem
from tiller_client.rendering.text import SHORT_ID_CHARS, one_line
from tiller_protocol.answers import CatalogResult, ReplayResult
from tiller_protocol.events import Event, ItemDelta, RequestOpened, RequestResolved, TurnEnded
from tiller_protocol.ops import Catalog, SessionDelete, SessionMarkSeen
from tiller_protocol.sessions import InputHistory, InputHistoryResult

NAME = "tiller chat"
"""The name of this frontend."""

LEAVING_S_MAX = 0.5
"""How long the user may wait for a daemon to be told that this chat has left."""

TICK_S = 0.25
"""Time between two frames during a turn, so that its clocks advance."""

NEW_LOG = "The daemon has a new event log, in which this session does not exist."
AWAY = "the daemon is not running; your next message starts it"

HISTORY_INPUTS = 500
"""Number of earlier inputs, from all sessions, for Up and Ctrl-R."""


class _Undrawn(Renderer):
    """Replaces prompt-toolkit's renderer, which would lay out cells that nobody sees."""

    def render(self, app: Application[Any], layout: Layout, is_done: bool = False) -> None:  # noqa: ARG002, FBT001, FBT002
        """Draw nothing: `Screen` draws right after this."""
        app.current_buffer.load_history_if_not_yet_loaded()  # as drawing a control would do


class BackgroundTasks:
    """An application's tasks. If a task fails, the application ends and raises the task's error."""

    def __init__(self, app: Application[None]) -> None:
        self._app = app
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, work: Coroutine[object, object, None]) -> None:
        """Run this task until it is done or `end` is called."""
        task = asyncio.create_task(work)
        task.add_done_callback(self._finished)
        self._tasks.append(task)

    async def end(self) -> None:
        """Cancel all tasks and wait for them."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _finished(self, task: "asyncio.Task[None]") -> None:
        if task.cancelled() or (error := task.exception()) is None:
            return
        if self._app.is_running and not self._app.is_done:
            self._app.exit(exception=error)


class Chat:
    """One session on the screen, until the user leaves it."""

    def __init__(self, client: Client, opening: Opening, keyboard: Keyboard) -> None:
        """Take over a session that `opening` has put on the screen."""
        self.state = ChatState(
            opening.conversation, changed=self._changed, leave=self.leave, start=self._start
        )
        self.client = client
        self.screen = Screen(self.state, opening.painter, opening.look)
        self.state.editor.buffer.on_text_changed += self._typed
        self.submitter = Submitter(client, self.state)
        self.actions = Actions(self.state, self.screen, self.submitter)
        self.keyboard = keyboard
        keyboard.answered = self.screen.pace.answered
        keyboard.reported = self._reported
        self.sub_agents = SubAgents(client, self._sub_agents_changed)
        self.app: Application[None] = Application(
            layout=Layout(Window(BufferControl(self.state.editor.buffer))),
            key_bindings=bindings(self.state, self.screen, self.actions),
            output=DummyOutput(),
            input=keyboard,
            after_render=lambda _: self.screen.draw(),
        )
        self.app.renderer = _Undrawn(DummyStyle(), self.app.output)
        self.app.key_processor.before_key_press += self._key_came
        self._marked = 0
        """The `seq` until which this chat has marked the session as seen."""

    def _changed(self) -> None:
        self.app.invalidate()

    def _start(self, work: Coroutine[object, object, None]) -> None:
        self.app.create_background_task(work)

    async def run(self) -> None:
        """Show the session until the user leaves it."""
        screen = self.screen
        screen.notifier.key_came(time.monotonic())
        self._ask()
        self.state.conversation.children = self.sub_agents.items
        self.sub_agents.look(self.state.snapshot)
        loop = asyncio.get_running_loop()
        # Nothing else may write to the terminal.
        said = Silence.say

        def say(text: str) -> None:
            loop.call_soon_threadsafe(self.state.say, text)

        Silence.say = say
        for number in (signal.SIGHUP, signal.SIGTERM):
            loop.add_signal_handler(number, self.leave)
        tasks = BackgroundTasks(self.app)
        tasks.start(self.submitter.send())
        tasks.start(self._follow())
        tasks.start(self._tick())
        tasks.start(self._load())
        try:
            with self.app.input.raw_mode():  # or the terminal's answers would be echoed
                screen.begin()
                await self.app.run_async(set_exception_handler=False, handle_sigint=False)
        finally:
            Silence.say = said
            await tasks.end()
            await self.sub_agents.end()
            self.actions.clipboard.close()
            screen.end()
            for number in (signal.SIGHUP, signal.SIGTERM):
                loop.remove_signal_handler(number)

    async def _follow(self) -> None:
        """Show events, and who else has the session open, until the session is gone."""
        problem = cut_off = ""
        session = self.client.session(self.state.session_id)
        async with session.follow(self.state.snapshot.seq) as stream:
            while True:
                stream.focus = self.screen.notifier.is_seen(time.monotonic())
                try:
                    await self.client.in_thread(stream.wait)
                    while event := stream.take():
                        cut_off = ""
                        self._take(event)
                    problem = "" if stream.connected else problem
                except StartedOver:
                    return self._end(NEW_LOG)
                except RejectedError as error:
                    if not error.is_cut_off:
                        return self._end(str(error))
                    cut_off = str(error)
                    self._end_turn()
                except TillerError as error:
                    problem = str(error)
                    await asyncio.sleep(RETRY_S)
                absent = "" if stream.connected else AWAY
                self._note(one_line(cut_off or problem or absent), stream.others)
                if stream.caught_up:
                    # Each wait costs a thread, and more than an event itself. So let events gather
                    # until the next frame.
                    await self.screen.pace.rest()

    def _take(self, event: Event) -> None:
        event = self._with_me(event)
        self.screen.records.note(event)
        self.screen.add(self.state.conversation.take(event))
        if isinstance(event.body, TurnEnded | RequestOpened):
            self.screen.notifier.happened()
        if isinstance(event.body, TurnEnded):
            self.app.create_background_task(self._refresh())
        if not isinstance(event.body, ItemDelta):
            self.sub_agents.look(self.state.snapshot)
        self._ask()
        self.screen.pace.soon()

    def _with_me(self, event: Event) -> Event:
        """Name this user, not the program, as who has answered."""
        body = event.body
        if not isinstance(body, RequestResolved) or body.by != NAME:
            return event
        is_mine = self.state.asking.is_mine(body.request_id)
        return replace(event, body=replace(body, by="you")) if is_mine else event

    def _end_turn(self) -> None:
        """Show that the turn has ended, although its last events may come later."""
        self.state.snapshot.status = "idle"
        self.state.snapshot.requests.clear()
        self.screen.records.cut_off()
        self._ask()

    def _note(self, away: str, beside: Sequence[str]) -> None:
        """Show why no events arrive, unless `away` is empty, and who else is there."""
        notes = self.state.notes
        if (away, beside) != (notes.away, notes.beside):
            notes.away, notes.beside = away, beside
            self.app.invalidate()

    def _end(self, reason: str) -> None:
        """Leave, as the session can no longer be followed."""
        self._warn(reason)
        self.leave()

    def _warn(self, sentence: str) -> None:
        self.screen.print([self.screen.look.theme.asking(f"! {one_line(sentence)}")])

    def leave(self) -> None:
        """End the application; a running turn continues."""
        if self.app.is_running and not self.keyboard.is_ignored:
            self.keyboard.is_ignored = True
            self.app.create_background_task(self._leave())

    async def _leave(self) -> None:
        await self.screen.pace.settle()
        if not self.app.is_done:
            self.screen.draw()
            self.app.exit()

    def _key_came(self, _processor: object) -> None:
        self.state.notes.key_came()
        self.state.asking.key_came(editor_is_empty=self.state.editor.is_empty)
        self.screen.pace.key_came()
        self.screen.notifier.key_came(time.monotonic())

    def _reported(self, report: str) -> None:
        """Use the theme for the background that the terminal reports."""
        kind = kind_of(report)
        if kind is not None and self.screen.look.follows_background:
            self.screen.look.be(kind)
            self.app.invalidate()

    def _sub_agents_changed(self) -> None:
        self._ask()
        self.screen.pace.soon()

    def _ask(self) -> None:
        """Ask the oldest open request, unless it is being asked already."""
        request = next(iter((*self.state.snapshot.requests, *self.sub_agents.requests)), None)
        before = self.state.asking.request
        self.state.asking.show(request)
        if request is not None and (before is None or before.id != request.id):
            self.screen.add_request(request)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            if self.state.is_busy or working(self.state.snapshot):
                self.app.invalidate()
            self._mark_seen()

    def _mark_seen(self) -> None:
        """Say that the user has seen what the session waits to show, unless they look elsewhere."""
        wanted = self.state.snapshot.wants_user
        sees = self.screen.notifier.is_seen(time.monotonic())
        if sees and wanted > max(self.state.snapshot.seen, self._marked):
            self._marked = wanted
            self.submitter.tell(SessionMarkSeen(self.state.session_id, until=wanted))

    async def _load(self) -> None:
        """Load the catalog, past inputs and the file list, which the first frame does not need."""
        await self._load_catalog()
        if not self.state.catalog.models:
            await self._load_catalog(ask=True)  # this also looks for servers on this machine
        if problem := model_problem(self.state.catalog, self.state.snapshot.settings):
            self._warn(problem)
        op = InputHistory(limit=HISTORY_INPUTS)
        written = await self.submitter.look_up(op, InputHistoryResult)
        await self.state.files.refresh()
        # `recall` completes the text in the editor anew, so everything else must be loaded by then.
        self.state.editor.recall([one.text for one in reversed(written.inputs)] if written else [])
        self.actions.menus.history_loaded()
        self.app.invalidate()
        await asyncio.to_thread(parser)

    async def _load_catalog(self, *, ask: bool = False) -> None:
        op = Catalog(self.state.snapshot.workspace, ask=ask)
        if (catalog := await self.submitter.look_up(op, CatalogResult)) is not None:
            self.state.catalog = catalog

    def _typed(self, buffer: Buffer) -> None:
        if buffer.text == "/":  # the user may have written a new command
            self.app.create_background_task(self._load_catalog())

    async def _refresh(self) -> None:
        """Reload the data that a turn may have changed."""
        await self.state.files.refresh()
        if not self.state.catalog.models:  # a model exists now, as a turn has run
            await self._load_catalog()
            self.app.invalidate()


async def delete_if_empty(client: Client, session_id: str) -> None:
    """Delete a session if nothing was said in it; nothing comes of it without a daemon."""

    def delete() -> None:
        pool = client.blocking.pool
        with contextlib.suppress(TillerError), pool.connect(only_crashed=True) as connection:
            connection.submit(SessionDelete(session_id, if_empty=True))

    await client.in_thread(delete)


async def tell_leaving(client: Client, session_id: str) -> None:
    """Tell other frontends that this one has left, unless the daemon is gone or takes long."""

    def tell() -> None:
        pool = client.blocking.pool
        with contextlib.suppress(TillerError), pool.connect(only_crashed=True) as connection:
            connection.look(leaving(session_id), ReplayResult)

    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(client.in_thread(tell), LEAVING_S_MAX)


async def run_chat(opening: Opening, typed: bytes, *, is_new: bool = False) -> int:
    """Show sessions, one after another, until the user leaves; `typed` are the first keys.

    If the first session `is_new`, and the user leaves it without a word, it is deleted.
    """
    # From now on, keys are read as they come, so a text with many lines is not typed but pasted.
    type_ahead(Keyboard(sys.stdin), typed + waiting(sys.stdin.fileno()))
    async with Client(NAME, places=my_places()) as client:
        while True:
            chat = Chat(client, opening, Keyboard(sys.stdin))
            await chat.run()
            turn = "the turn goes on; " if chat.state.is_busy else ""
            if is_new and not (chat.submitter.has_input or chat.state.snapshot.turns):
                await delete_if_empty(client, chat.state.session_id)
            else:
                say(f"{turn}to return: {program()} chat {chat.state.session_id[-SHORT_ID_CHARS:]}")
                if worktree := one_line(chat.state.snapshot.worktree):
                    say(f"to land its commits: {program()} worktree land {worktree}")
                await tell_leaving(client, chat.state.session_id)
            if chat.state.next_session is None:
                return 0
            is_new = False
            snapshot = await client.session(chat.state.next_session).snapshot()
            opening = open_session(snapshot, opening.painter, opening.look)
