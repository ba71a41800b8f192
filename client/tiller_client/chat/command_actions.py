"""The commands of the chat, such as `/new`: each submits an op, opens a menu or shows something."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from tiller_client.chat.attaching import attachments
from tiller_client.chat.clipboard import copying
from tiller_client.chat.commands import COMMANDS, INIT, REVIEW, UNCOMMITTED, named
from tiller_client.chat.keys import KEYS_SHOWN
from tiller_client.chat.menu import Entry, Menu
from tiller_client.chat.rows import explained_rows
from tiller_client.chat.status import last_answer, status_facts
from tiller_client.chat.terminal.backdrop import ASK_BACKGROUND
from tiller_client.errors import UsageError
from tiller_client.rendering.text import one_line
from tiller_protocol.answers import AnyResult, Created
from tiller_protocol.ops import (
    Compact,
    SessionArchive,
    SessionConfigure,
    SessionCreate,
    TurnContinue,
    Unrevert,
    UserInput,
)
from tiller_protocol.settings import Settings

if TYPE_CHECKING:
    from tiller_client.chat.actions import Actions
    from tiller_client.chat.app import Chat

APPROVE = ("ask", "always", "never")
SANDBOX = ("read_only", "workspace_write", "full_access")
THEMES = ("auto", "dark", "light")


class CommandActions:
    """The actions of the commands."""

    def __init__(self, chat: "Chat", actions: "Actions") -> None:
        self._chat = chat
        self._actions = actions
        menus, outside = actions.menus, actions.outside
        self._commands: dict[str, Callable[[str], None]] = {
            "help": lambda _: self._help(),
            "new": self._new,
            "sessions": menus.sessions,
            "rename": self._rename,
            "fork": lambda _: actions.fork(None),
            "archive": lambda _: self._archive(),
            "model": lambda name: self._set("model", name, menus.models),
            "variant": lambda name: self._set("variant", name, menus.variants),
            "agent": lambda name: self._set("agent", name, menus.agents),
            "approve": lambda value: self._one_of("approve", value, APPROVE),
            "sandbox": lambda value: self._one_of("sandbox", value, SANDBOX),
            "continue": lambda _: actions.submit(TurnContinue(self._id)),
            "queue": self._queue,
            "ps": lambda _: menus.background(),
            "go": lambda _: actions.carry_out_plan(),
            "back": lambda _: menus.turns(),
            "unrevert": lambda _: actions.submit(Unrevert(self._id)),
            "diff": self._diff,
            "compact": lambda text: actions.submit(Compact(self._id, text)),
            "transcript": lambda _: self._show("show", "--full", self._id),
            "editor": lambda _: actions.start(outside.edit()),
            "quit": lambda _: chat.leave(),
            "status": lambda _: self._status(),
            "copy": lambda _: self._copy(),
            "permissions": lambda _: self._show("rules", "--session", self._id),
            "mcp": lambda _: self._show("mcp"),
            "init": lambda _: self._ask_model(INIT),
            "review": lambda what: self._ask_model(REVIEW.format(what=what or UNCOMMITTED)),
            "theme": self._theme,
        }

    def run(self, name: str, argument: str) -> None:
        """Run a command."""
        command = named(name)
        assert command is not None
        if argument and not command.argument:
            self._chat.say(f"/{name} takes nothing after it, so it was not run")
        else:
            self._commands[command.name](argument)

    @property
    def _id(self) -> str:
        return self._chat.session.id

    def _set(self, name: str, value: str, menu: Callable[[], None]) -> None:
        if value:
            self._actions.configure(**{name: value})
        else:
            self._actions.with_catalog(menu)

    def _one_of(self, name: str, value: str, known: tuple[str, ...]) -> None:
        if value and value not in known:
            self._chat.say(f"{name} must be one of: {', '.join(known)}")
        else:
            self._set(name, value, lambda: self._actions.menus.one_of(name, known))

    def _new(self, text: str) -> None:
        snapshot = self._chat.snapshot
        now = snapshot.settings
        try:
            images, files = attachments(text, snapshot.workspace)
        except UsageError as error:
            self._actions.failed(f"/new {text}", error)
            return

        def created(result: AnyResult | None) -> None:
            assert isinstance(result, Created)
            session_id = result.session_id
            if text:
                first = UserInput(session_id, text, images, files)
                opens = partial(self._actions.open, session_id)
                self._actions.submit(first, written=text, done=lambda _: opens())
            else:
                self._actions.open(session_id)

        settings = Settings(now.agent, now.model, now.variant)
        op = SessionCreate(snapshot.workspace, settings=settings)
        self._actions.submit(op, written=text, done=created)

    def _queue(self, text: str) -> None:
        if text:
            self._actions.input(text, text, text, queue=True)
        else:
            self._actions.menus.queued()

    def _ask_model(self, text: str) -> None:
        self._actions.input(text, "", "", queue=False)

    def _show(self, *arguments: str) -> None:
        self._actions.start(self._actions.outside.show(*arguments))

    def _diff(self, path: str) -> None:
        path = path.removeprefix("@").strip("\"'")
        self._show("diff", *(["--path", path] if path else []), self._id)

    def _status(self) -> None:
        snapshot, look = self._chat.snapshot, self._chat.screen.look
        facts = status_facts(snapshot, self._chat.screen.facts())
        rows = explained_rows("Status", facts, look.width, look.paint)
        self._chat.print(rows)

    def _copy(self) -> None:
        text = last_answer(self._chat.snapshot.items)
        if text:
            self._chat.screen.tell(copying(text))
            self._chat.say(
                "the last answer is in the clipboard, if the terminal allows it (OSC 52)"
            )
        else:
            self._chat.say("there is no answer to copy yet")

    def _theme(self, kind: str) -> None:
        screen = self._chat.screen
        if kind not in THEMES:
            entries = [Entry(one, one) for one in THEMES]
            self._chat.choose(Menu("theme", entries, self._theme))
            return
        if screen.look.theme.kind == "none":
            self._chat.say("the chat began without colours; leave it, and start it with them")
            return
        screen.look.follows_background = kind == "auto"
        if kind == "auto":
            screen.tell(ASK_BACKGROUND)
        else:
            screen.look.be("light" if kind == "light" else "dark")
        self._chat.say(f"theme: {kind} from now on; TILLER_THEME={kind} makes it the default")

    def _archive(self) -> None:
        self._actions.submit(SessionArchive(self._id), done=lambda _: self._chat.leave())

    def _rename(self, title: str) -> None:
        if title:
            self._actions.submit(SessionConfigure(self._id, title=one_line(title)))
        else:
            self._chat.say("which title? /rename TITLE")

    def _help(self) -> None:
        """List the keys and commands; Enter puts a command into the editor."""
        entries = [Entry("", keys, text) for keys, text in KEYS_SHOWN]
        known = [(one.name, one.argument, one.help) for one in COMMANDS]
        known += [(one.name, "", one.description) for one in self._chat.catalog.commands]
        entries += [
            Entry(f"/{name}", f"/{name} {argument}".rstrip(), text)
            for name, argument, text in known
        ]

        def taken(command: str) -> None:
            if command:
                self._chat.editor.insert_word(command)

        self._chat.choose(Menu("keys and commands", entries, taken))
