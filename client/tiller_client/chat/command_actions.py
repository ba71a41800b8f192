"""The commands of the chat, such as `/new`: each submits an op, opens a menu or shows something."""

from collections.abc import Callable
from functools import partial

from tiller_client.chat.attaching import attachments
from tiller_client.chat.choosing import Menus
from tiller_client.chat.clipboard import copying
from tiller_client.chat.commands import COMMANDS, INIT, KEYS_SHOWN, REVIEW, UNCOMMITTED, named
from tiller_client.chat.menu import Entry, Menu
from tiller_client.chat.rows import explained_rows
from tiller_client.chat.screen import Screen
from tiller_client.chat.state import ChatState
from tiller_client.chat.status import last_answer, status_facts
from tiller_client.chat.submitting import Submitter
from tiller_client.chat.terminal.backdrop import ASK_BACKGROUND
from tiller_client.chat.terminal.outside import Outside
from tiller_client.errors import RejectedError, TillerError, UsageError
from tiller_client.rendering.labels import landed_line, worktree_around
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
from tiller_protocol.worktrees import (
    WorktreeLand,
    WorktreeLanded,
    WorktreeList,
    WorktreeListResult,
)

APPROVE = ("ask", "always", "never")
SANDBOX = ("read_only", "workspace_write", "full_access")
THEMES = ("auto", "dark", "light")


class CommandActions:
    """The actions of the commands."""

    def __init__(
        self,
        state: ChatState,
        screen: Screen,
        submitter: Submitter,
        menus: Menus,
        outside: Outside,
        carry_out_plan: Callable[[], None],
    ) -> None:
        self._state = state
        self._screen = screen
        self._submitter = submitter
        self._menus = menus
        self._outside = outside
        self._commands: dict[str, Callable[[str], None]] = {
            "help": lambda _: self._help(),
            "new": self._new,
            "sessions": menus.sessions,
            "rename": self._rename,
            "fork": lambda _: submitter.fork(None),
            "archive": lambda _: self._archive(),
            "model": lambda name: self._set("model", name, menus.models),
            "variant": lambda name: self._set("variant", name, menus.variants),
            "agent": lambda name: self._set("agent", name, menus.agents),
            "approve": lambda value: self._one_of("approve", value, APPROVE),
            "sandbox": lambda value: self._one_of("sandbox", value, SANDBOX),
            "continue": lambda _: submitter.submit(TurnContinue(self._id)),
            "queue": self._queue,
            "ps": lambda _: menus.background(),
            "land": lambda _: self._land(),
            "go": lambda _: carry_out_plan(),
            "back": lambda _: menus.turns(),
            "unrevert": lambda _: submitter.submit(Unrevert(self._id)),
            "diff": self._diff,
            "compact": lambda text: submitter.submit(Compact(self._id, text)),
            "transcript": lambda _: self._show("show", "--full", self._id),
            "editor": lambda _: state.start(outside.edit()),
            "quit": lambda _: state.leave(),
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
            self._state.say(f"/{name} takes nothing after it, so it was not run")
        else:
            self._commands[command.name](argument)

    @property
    def _id(self) -> str:
        return self._state.session_id

    def _set(self, name: str, value: str, menu: Callable[[], None]) -> None:
        if value:
            self._submitter.configure(**{name: value})
        else:
            self._submitter.with_catalog(menu)

    def _one_of(self, name: str, value: str, known: tuple[str, ...]) -> None:
        if value and value not in known:
            self._state.say(f"{name} must be one of: {', '.join(known)}")
        else:
            self._set(name, value, lambda: self._menus.one_of(name, known))

    def _new(self, text: str) -> None:
        snapshot = self._state.snapshot
        now = snapshot.settings
        try:
            images, files = attachments(text, snapshot.workspace)
        except UsageError as error:
            self._submitter.failed(f"/new {text}", error)
            return

        def created(result: AnyResult | None) -> None:
            assert isinstance(result, Created)
            session_id = result.session_id
            if text:
                first = UserInput(session_id, text, images, files)
                opens = partial(self._submitter.open, session_id)
                self._submitter.submit(first, written=text, done=lambda _: opens())
            else:
                self._submitter.open(session_id)

        settings = Settings(now.agent, now.model, now.variant)
        op = SessionCreate(snapshot.workspace, settings=settings)
        self._submitter.submit(op, written=text, done=created)

    def _queue(self, text: str) -> None:
        if text:
            self._submitter.input(text, text, text, queue=True)
        else:
            self._menus.queued()

    def _ask_model(self, text: str) -> None:
        self._submitter.input(text, "", "", queue=False)

    def _show(self, *arguments: str) -> None:
        self._state.start(self._outside.show(*arguments))

    def _diff(self, path: str) -> None:
        path = path.removeprefix("@").strip("\"'")
        self._show("diff", *(["--path", path] if path else []), self._id)

    def _status(self) -> None:
        snapshot, look = self._state.snapshot, self._screen.look
        facts = status_facts(snapshot, self._screen.facts())
        rows = explained_rows("Status", facts, look.width, look.theme)
        self._screen.print(rows)

    def _copy(self) -> None:
        text = last_answer(self._state.snapshot.items)
        if text:
            self._screen.tell(copying(text))
            self._state.say(
                "the last answer is in the clipboard, if the terminal allows it (OSC 52)"
            )
        else:
            self._state.say("there is no answer to copy yet")

    def _theme(self, kind: str) -> None:
        screen = self._screen
        if kind not in THEMES:
            entries = [Entry(one, one) for one in THEMES]
            self._state.choose(Menu("theme", entries, self._theme))
            return
        if screen.look.theme.kind == "none":
            self._state.say("the chat began without colours; leave it, and start it with them")
            return
        screen.look.follows_background = kind == "auto"
        if kind == "auto":
            screen.tell(ASK_BACKGROUND)
        else:
            screen.look.be("light" if kind == "light" else "dark")
        self._state.say(f"theme: {kind} from now on; TILLER_THEME={kind} makes it the default")

    def _archive(self) -> None:
        self._submitter.submit(SessionArchive(self._id), done=lambda _: self._state.leave())

    def _land(self) -> None:
        """Land the session's worktree; conflicts become a message that the user may send."""
        state = self._state
        name, workspace = state.snapshot.worktree, state.snapshot.workspace
        if not name:
            state.say("this session works in no worktree")
            return

        def found(result: AnyResult | None) -> None:
            assert isinstance(result, WorktreeListResult)
            tree = worktree_around(result.worktrees, workspace)
            if tree is None:
                state.say(f"the worktree {one_line(name)} is not there any more")
            else:
                self._submitter.submit(WorktreeLand(tree.id), done=landed, failed=failed)

        def landed(result: AnyResult | None) -> None:
            assert isinstance(result, WorktreeLanded)
            state.say(f"landed: {landed_line(result)}")

        def failed(error: TillerError) -> None:
            if isinstance(error, RejectedError) and error.answer.code == "conflict":
                state.editor.put_before(str(error.answer.data["task"]))
            state.say(str(error))

        state.say(f"landing {one_line(name)} …")  # a check may take minutes
        self._submitter.submit(WorktreeList(workspace, name), done=found)

    def _rename(self, title: str) -> None:
        if title:
            self._submitter.submit(SessionConfigure(self._id, title=one_line(title)))
        else:
            self._state.say("which title? /rename TITLE")

    def _help(self) -> None:
        """List the keys and commands; Enter puts a command into the editor."""
        entries = [Entry("", keys, text) for keys, text in KEYS_SHOWN]
        known = [(one.name, one.argument, one.help) for one in COMMANDS]
        known += [(one.name, "", one.description) for one in self._state.catalog.commands]
        entries += [
            Entry(f"/{name}", f"/{name} {argument}".rstrip(), text)
            for name, argument, text in known
        ]

        def taken(command: str) -> None:
            if command:
                self._state.editor.insert_word(command)

        self._state.choose(Menu("keys and commands", entries, taken))
