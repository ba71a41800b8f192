"""The menus: sessions, turns, models, agents, queued inputs, and earlier texts."""

import time
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import Literal, cast

from tiller_client.chat.menu import Act, Entry, Menu
from tiller_client.chat.points import Point, points
from tiller_client.chat.state import ChatState
from tiller_client.chat.submitting import Submitter
from tiller_client.connecting.runtime import chosen_remote
from tiller_client.rendering.labels import input_line
from tiller_client.rendering.lines import files_changed, state_word
from tiller_client.rendering.text import age, below_home, one_line
from tiller_protocol.answers import AnyResult, SessionListResult
from tiller_protocol.ops import (
    AnyOp,
    Interrupt,
    QueueEdit,
    Revert,
    SessionArchive,
    SessionConfigure,
    SessionList,
)
from tiller_protocol.sessions import (
    SEARCH_LIMIT_MAX,
    FoundSession,
    SessionSearch,
    SessionSearchResult,
)
from tiller_protocol.snapshot import SessionSummary, plain

LISTED = 200
"""Number of sessions in the menu, most recently active first; a search finds the others, too."""

Read = Callable[[str], Coroutine[object, object, None]]

_QueueAction = Literal["remove", "promote", "move"]


class Menus:
    """Opens the menus of one chat, and carries out the user's choice."""

    def __init__(self, state: ChatState, submitter: Submitter, read: Read) -> None:
        """`read` shows a file in the user's pager."""
        self._state = state
        self._read = read
        self._submitter = submitter
        self._words = ""
        """The words of the search that found the listed sessions; empty if there was none."""
        self._searched: str | None = None
        """The words of the running search."""
        self._written: Menu | None = None
        """The latest menu of earlier texts."""
        self._acts = {
            "c-r": Act("Ctrl-R renames", self._rename),
            "c-a": Act("Ctrl-A archives", self._archive),
        }

    def sessions(self, words: str) -> None:
        """Choose another session, among recent ones or among those that contain the words."""
        self._words = words
        op = SessionSearch(words, limit=SEARCH_LIMIT_MAX) if words else SessionList(limit=LISTED)
        self._submitter.submit(op, done=self._show_sessions)

    def _show_sessions(self, result: AnyResult | None) -> None:
        if isinstance(result, SessionSearchResult):
            title, entries = "other sessions with these words", self._found(result)
        else:
            assert isinstance(result, SessionListResult)
            title = "open a session"
            entries = self._entries((one, below_home(one.workspace)) for one in result.sessions)
        if not entries:
            if self._state.menu is None:
                words = " with these words" if self._words else ""
                self._state.say(f"there is no other session{words}")
            self._state.menu = None
            return
        menu = Menu(title, entries, self._submitter.open, self._search, self._acts)
        self._state.choose(menu)

    def _found(self, result: SessionSearchResult) -> list[Entry]:
        return self._entries((one.session, _where_and_what(one)) for one in result.found)

    def _entries(self, sessions: Iterable[tuple[SessionSummary, str]]) -> list[Entry]:
        """Make entries for sessions other than this one, each with a text about it."""
        now = time.time()
        return [
            Entry(
                one.session_id,
                one.title or "untitled",
                f"{_state(one)}{age(now - one.updated_at)} ago · {about}",
            )
            for one, about in sessions
            if one.session_id != self._state.session_id
        ]

    def _search(self, menu: Menu) -> None:
        """Search for sessions that contain the typed words; run one search at a time."""
        if self._searched is not None:
            return
        self._searched = typed = menu.typed

        def ended() -> None:
            """Search again if other words were typed meanwhile."""
            self._searched = None
            if self._state.menu is menu and menu.typed.strip() and menu.typed != typed:
                self._search(menu)

        def done(result: AnyResult | None) -> None:
            assert isinstance(result, SessionSearchResult)
            if menu.typed == typed:
                menu.find(self._found(result))
                self._state.changed()
            ended()

        op = SessionSearch(typed, limit=SEARCH_LIMIT_MAX)
        # A failed search is no mistake of the user: the words still narrow the titles.
        self._submitter.submit(op, done=done, failed=lambda _: ended())

    def _rename(self, entry: Entry) -> None:
        def rename(title: str) -> None:
            if title.strip():
                self._change(SessionConfigure(entry.value, title=one_line(title)))

        self._state.choose(Menu(f"new title of {one_line(entry.label)}", (), rename))

    def _archive(self, entry: Entry) -> None:
        self._state.say(f"archived: {entry.label}; to undo: tiller archive --undo {entry.value}")
        self._change(SessionArchive(entry.value))

    def _change(self, op: AnyOp) -> None:
        """Change another session, and show the updated list."""
        self._submitter.submit(op, done=lambda _: self.sessions(self._words))

    def written_before(self) -> None:
        """Choose an earlier text from the history."""
        self._written = Menu("written before", self._texts(), self._state.editor.put)
        self._state.choose(self._written)

    def history_loaded(self) -> None:
        """Show the loaded history if the user is choosing from it already."""
        if self._written is not None and self._written is self._state.menu:
            self._written.renew(self._texts())

    def _texts(self) -> list[Entry]:
        texts = dict.fromkeys(reversed(self._state.editor.history))
        return [Entry(text, one_line(text)) for text in texts]

    def models(self) -> None:
        """Choose the model of the next turn."""
        entries = [Entry(one.name, one.name) for one in self._state.catalog.models]
        self._configure("model", entries, self._state.snapshot.settings.model)

    def variants(self) -> None:
        """Choose the variant of the model, such as its effort."""
        name = self._state.snapshot.settings.model
        models = self._state.catalog.models
        model = next((one for one in models if one.name == name), next(iter(models), None))
        variants = model.variants if model else ()
        entries = [Entry("", "default", "as configured"), *(Entry(one, one) for one in variants)]
        self._configure("variant", entries, self._state.snapshot.settings.variant)

    def agents(self) -> None:
        """Choose the agent of the next turn."""
        agents = self._state.catalog.agents
        entries = [Entry(one.name, one.name, one.description) for one in agents]
        self._configure("agent", entries, self._state.snapshot.settings.agent)

    def one_of(self, name: str, values: tuple[str, ...]) -> None:
        """Choose the value of a setting."""
        entries = [Entry(one, one.replace("_", " ")) for one in values]
        sandbox = self._state.catalog.sandbox
        configured = sandbox.mode if sandbox and name == "sandbox" else None
        self._configure(name, entries, getattr(self._state.snapshot.settings, name) or configured)

    def queued(self) -> None:
        """Choose a queued input, and an action on it."""
        queue = self._state.snapshot.queue
        if not queue:
            self._state.say("nothing is queued")
            return
        entries = [Entry(one.id, input_line(one), one.delivery) for one in queue]
        self._state.choose(Menu("queued", entries, self._queued))

    def background(self) -> None:
        """Choose a background command or sub-agent, to see its output or end it."""
        entries = self._in_background()
        if entries:
            self._state.choose(Menu("in the background", entries, self._of_background))
        else:
            self._state.say("nothing runs in the background")

    def _in_background(self) -> list[Entry]:
        """The commands and sub-agents that run, and then those that have ended."""
        now = time.time()
        known = sorted(self._state.snapshot.background, key=lambda one: one.state != "running")
        return [
            Entry(
                one.id,
                f"{one.id} {one_line(one.command)}",
                f"for {age(now - one.started_at)}" if one.state == "running" else one.state,
            )
            for one in known
        ]

    def _of_background(self, background_id: str) -> None:
        known = {one.id: one for one in self._state.snapshot.background}
        if (one := known.get(background_id)) is None:
            self._state.say(f"{background_id} is gone")
            return

        def act(what: str) -> None:
            if what == "end":
                op = Interrupt(self._state.session_id, background_id=background_id)
                self._submitter.submit(op)
            elif what == "see" and one.sub_agent:
                self._submitter.open(one.sub_agent.session_id)
            elif what == "see":
                self._state.start(self._read(one.output_path))

        entries: list[Entry] = []
        if one.state == "running":
            entries.append(Entry("end", "end it"))
        if one.sub_agent:
            entries.append(Entry("see", "open its session"))
        elif one.output_path and chosen_remote() is None:  # else the file is elsewhere
            entries.append(Entry("see", "see its output"))
        entries.append(Entry("", "leave it"))
        label = f"{one.id} {one_line(one.command)}"
        self._state.choose(Menu(label, entries, act))

    def turns(self) -> None:
        """Choose a turn to go back to, and how."""
        entries: list[Entry] = []
        found = points(self._state.snapshot)
        for number, point in enumerate(found, 1):
            text = one_line(point.text) or "(no message)"
            when = [f"{age(time.time() - point.at)} ago"] if point.at else []
            changed = files_changed(point.files, more=point.more_files)
            detail = " · ".join([*when, *([changed] if point.files else [])])
            entries.append(Entry(point.turn_id, f"{number}. {text}", detail))
        if not entries:
            self._state.say("there is no turn to go back to yet")
            return
        # Another frontend may revert a turn while the menu shows it.
        known = {point.turn_id: point for point in found}
        back_to = Menu(
            "go back to the point before a turn",
            entries[::-1],
            lambda turn_id: self._back_to(known[turn_id]),
        )
        self._state.choose(back_to)

    def _configure(self, name: str, entries: list[Entry], now: str | None) -> None:
        """Choose the value of a setting; the present value is selected at first.

        The first entry leaves the setting to the configuration.
        """
        configure = self._submitter.configure
        at = next((at for at, one in enumerate(entries) if one.value == now), 0)
        self._state.choose(Menu(name, entries, lambda value: configure(**{name: value}), at=at))

    def _queued(self, input_id: str) -> None:
        entries = (
            Entry("take back", "take back", "into the editor"),
            Entry("remove", "remove"),
            Entry("promote", "send now", "steers the running turn, or starts one"),
            Entry("move", "move to the front"),
        )
        self._state.choose(Menu("this input", entries, partial(self._edit, input_id)))

    def _edit(self, input_id: str, what: str) -> None:
        state = self._state
        queued = next((one for one in state.snapshot.queue if one.id == input_id), None)
        if queued is None:
            state.say("this input is no longer queued")
            return

        def removed(_result: AnyResult | None) -> None:
            state.editor.put(queued.text)
            state.changed()

        if what == "take back":
            self._submitter.submit(QueueEdit(state.session_id, input_id, "remove"), done=removed)
        else:
            op = QueueEdit(state.session_id, input_id, cast("_QueueAction", what))
            self._submitter.submit(op)

    def _back_to(self, point: Point) -> None:
        """Choose between revert and fork."""
        state = self._state
        entries = (
            Entry("revert", "revert", "history and files go back; /unrevert undoes this"),
            Entry("fork", "fork", "a new session continues from there; files stay as they are"),
        )

        def act(what: str) -> None:
            if what == "fork":
                self._submitter.fork(point.seq)
            else:
                done = partial(self._reverted, point.prompt)
                self._submitter.submit(Revert(state.session_id, point.turn_id), done=done)

        state.choose(Menu("before this turn", entries, act))

    def _reverted(self, prompt: str, _result: AnyResult | None) -> None:
        """Put the prompt of the reverted turn back, to be changed and sent again."""
        if self._state.editor.is_empty:
            self._state.editor.put(prompt)
            self._state.changed()


def _where_and_what(found: FoundSession) -> str:
    """The worktree or directory of a session, and the text that was found in it."""
    session = found.session
    place = session.worktree or session.workspace.rpartition("/")[2]
    return f"{place} · {plain(''.join(found.texts[0].pieces))}"


def _state(session: SessionSummary) -> str:
    state = state_word(session)
    return "" if state == "idle" else f"{state} · "
