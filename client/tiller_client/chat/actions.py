"""The actions of keys and commands. They submit ops, whose effects arrive as events."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING

from tiller_client.chat.asking import Choice
from tiller_client.chat.attaching import attachments, is_in_text, quoted
from tiller_client.chat.choosing import Menus
from tiller_client.chat.clipboard import PROGRAMS
from tiller_client.chat.command_actions import CommandActions
from tiller_client.chat.commands import CARRY_OUT, COMMANDS, NAMES, named
from tiller_client.chat.live_session import Done, Failed
from tiller_client.chat.rows import PLANNER, has_plan
from tiller_client.chat.terminal.outside import Outside
from tiller_client.command_line.parser import similar
from tiller_client.errors import TillerError, UsageError
from tiller_protocol.answers import AnyResult, CatalogResult, Created
from tiller_protocol.items import QueuedInput
from tiller_protocol.ops import (
    Answer,
    AnyOp,
    Catalog,
    Interrupt,
    QueueEdit,
    SessionConfigure,
    SessionFork,
    Shell,
    UserInput,
)
from tiller_protocol.settings import Settings

if TYPE_CHECKING:
    from tiller_client.chat.app import Chat

BUILDER = "build"
"""The agent of sessions that have chosen none."""

INTERRUPT = "Esc again interrupts the turn"
BACK = "Esc again: go back to an earlier turn"
TAKEN_BACK = f"what waited is in the editor again; Ctrl-C clears it; {BACK}"
LEAVE = "Ctrl-C again leaves"
CLEARED = f"text cleared; Up brings it back; {LEAVE}"
STOPPED = f"the turn is interrupted; {LEAVE}"
STOPPED_WITH_TEXT = "the turn is interrupted; Ctrl-C again clears the text"
NO_IMAGE = f"there is no image in the clipboard, or none of {', '.join(PROGRAMS)} to read it"


class Actions:
    """All actions of the user on the session."""

    def __init__(self, chat: "Chat") -> None:
        self._chat = chat
        self.menus = Menus(chat)
        self.outside = Outside(chat)
        self._agent_asked = ""
        """The agent that a key has chosen, until the session has it."""
        self._agent_before = BUILDER
        """The agent before the one that plans."""
        self._commands = CommandActions(chat, self)

    def send(self, *, queue: bool) -> None:
        """Send the text in the editor as an answer, a chat command, a shell command or input."""
        chat = self._chat
        if chat.asking.typing is not None:
            self.answer(chat.asking.finish(chat.editor.take()))
            return
        text = chat.editor.whole().strip()
        if text and not queue and chat.asking.takes_text and named(_command(text)) is None:
            self.answer(Choice("", "", "answer", text), written=chat.editor.take())
            return
        if text in ("exit", "quit"):
            chat.leave()
        elif text == "!":
            chat.say("to run a command, type it after the !")
        elif text.startswith("!"):
            self.submit(Shell(self._id, text[1:].strip()), written=chat.editor.take())
        elif name := _command(text):
            self._run(name, text)
        elif text and chat.asking.is_late(text):
            chat.say(f"the question is gone, so {text} was not sent; Enter sends it as a message")
        elif text:
            typed = chat.editor.buffer.text
            self.input(text, chat.editor.take(), typed, queue=queue)

    def run(self, name: str, rest: str = "") -> None:
        """Run a chat command."""
        self._commands.run(name, rest)

    def answer(self, choice: Choice | None, *, written: str = "") -> None:
        """Answer the open request."""
        request = self._chat.asking.request
        if choice is not None and request is not None:
            self._chat.asking.answered()
            self.submit(Answer(request.id, choice.decision, choice.text), written=written)

    def interrupt_or_go_back(self) -> None:
        """Interrupt the running turn; the second time, choose a turn to go back to.

        While a request is open, an Esc may be meant for the request, so only a second Esc
        interrupts.
        """
        chat = self._chat
        said, is_asked = chat.notes.said_before, chat.asking.request is not None
        if said in (BACK, TAKEN_BACK):
            self.menus.turns()
        elif is_asked and said != INTERRUPT:
            chat.say(INTERRUPT)
        else:
            chat.say(TAKEN_BACK if chat.is_busy and self._interrupt() else BACK)

    def _interrupt(self) -> bool:
        """Interrupt the turn, and take back the inputs that wait, so that the next one goes first.

        Return whether any input waits.
        """
        chat = self._chat
        self.submit(Interrupt(self._id))
        waiting = [one for one in chat.snapshot.queue if is_in_text(one, chat.snapshot.workspace)]
        texts: list[str] = []

        def ended(one: QueuedInput, _: object) -> None:
            if one is waiting[-1]:
                chat.editor.put_before("\n".join(texts))
                chat.app.invalidate()

        def removed(one: QueuedInput, _: object) -> None:
            texts.append(one.text)
            ended(one, None)

        for one in waiting:
            op = QueueEdit(self._id, one.id, "remove")
            # If it fails, the turn has taken the input.
            self.submit(op, done=partial(removed, one), failed=partial(ended, one))
        return bool(waiting)

    def clear_or_leave(self) -> None:
        """Interrupt the running turn, or clear the editor, or leave if this was the last key."""
        chat = self._chat
        chat.asking.cancel()
        said = chat.notes.said_before
        if chat.is_busy and said not in (STOPPED, STOPPED_WITH_TEXT, CLEARED):
            has_text = self._interrupt() or not chat.editor.is_empty
            chat.say(STOPPED_WITH_TEXT if has_text else STOPPED)
        elif not chat.editor.is_empty:
            chat.editor.take()
            chat.say(CLEARED)
        elif said in (LEAVE, STOPPED, CLEARED):
            chat.leave()
        else:
            chat.say(LEAVE)

    def open_or_fold(self) -> None:
        """Show thoughts and outputs whole, those on the screen once more; or fold later ones."""
        chat = self._chat
        look = chat.screen.look
        look.opened = not look.opened
        if look.opened and (lines := chat.conversation.opened(chat.screen.painter.size[1])):
            chat.print(lines[1:])
        how = "shown whole" if look.opened else "folded"
        chat.say(f"thoughts and outputs are {how} from now on")

    async def paste_image(self) -> None:
        """Attach the image in the clipboard to the text."""
        path = await asyncio.to_thread(self._chat.clipboard.take_image)
        if path is None:
            self._chat.say(NO_IMAGE)
        else:
            self._chat.editor.insert_word(quoted(path))
            self._chat.app.invalidate()

    def plan_or_back(self) -> None:
        """Switch to the agent that plans, or back to the agent before it."""
        now = self._agent
        if now != PLANNER:
            self._agent_before = now
        self._agent_asked = asked = self._agent_before if now == PLANNER else PLANNER

        def answered(_: object) -> None:
            if self._agent_asked == asked:
                self._agent_asked = ""

        def failed(error: TillerError) -> None:
            answered(error)
            self.failed("", error)

        op = SessionConfigure(self._id, Settings(agent=asked))
        self.submit(op, done=answered, failed=failed)

    def carry_out_plan(self) -> None:
        """Let the agent before the one that planned carry out its plan."""
        if has_plan(self._chat.snapshot):
            agent = self._agent_before if self._agent == PLANNER else self._agent
            op = SessionConfigure(self._id, Settings(agent=agent))
            self.submit(op, done=lambda _: self.input(CARRY_OUT, "", "", queue=False))
        else:
            self._chat.say("the last turn made no plan; Shift-Tab switches to the agent that plans")

    @property
    def _agent(self) -> str:
        return self._agent_asked or self._chat.snapshot.settings.agent or BUILDER

    def submit(
        self,
        op: AnyOp,
        *,
        written: str = "",
        done: Done | None = None,
        failed: Failed | None = None,
    ) -> None:
        """Submit an op; if it fails, put `written`, the user's text, back into the editor.

        Without `failed`, the user is told why it failed.
        """
        failed = failed or partial(self.failed, written)
        self._chat.session.submit(op, done or (lambda _: None), failed)

    def configure(self, **fields: object) -> None:
        """Change the session's settings, from the next turn on."""
        self.submit(SessionConfigure(self._id, Settings(**fields)))  # type: ignore[arg-type]

    def open(self, session_id: str) -> None:
        """Show another session."""
        self._chat.next_session = session_id
        self._chat.leave()

    def fork(self, at: int | None) -> None:
        """Fork the session, at an event or at its end, and switch to the fork."""

        def created(result: AnyResult | None) -> None:
            assert isinstance(result, Created)
            self.open(result.session_id)

        self.submit(SessionFork(self._id, at), done=created)

    @property
    def _id(self) -> str:
        return self._chat.session.id

    def start(self, work: Coroutine[object, object, None]) -> None:
        """Do something that takes longer than a key may take."""
        self._chat.app.create_background_task(work)

    def with_catalog(self, call: Callable[[], None], *, written: str = "") -> None:
        """Load the current catalog, as the configuration may have changed, then `call`."""

        def loaded(result: AnyResult | None) -> None:
            assert isinstance(result, CatalogResult)
            self._chat.catalog = result
            call()

        self.submit(Catalog(self._chat.snapshot.workspace), written=written, done=loaded)

    def _run(self, name: str, text: str) -> None:
        typed = self._chat.editor.buffer.text
        written = self._chat.editor.take()
        if name in NAMES:
            self.run(name, _argument(text))
        elif name in self._custom():
            self.input(text, written, typed, queue=False)
        else:
            run = partial(self._run_custom, name, text, written, typed)
            self.with_catalog(run, written=written)

    def _run_custom(self, name: str, text: str, written: str, typed: str) -> None:
        if name in self._custom():
            self.input(text, written, typed, queue=False)
        elif named(name) is not None:
            self.run(name, _argument(text))
        else:
            suggestion = similar(name, [one.name for one in COMMANDS] + self._custom())
            hint = f"did you mean /{suggestion}?" if suggestion else "see /help"
            self.failed(written, UsageError(f"there is no command /{name}; {hint}"))

    def input(self, text: str, written: str, typed: str, *, queue: bool) -> None:
        """Send an input, with the files that are named in what was typed, not in a long paste."""
        try:
            images, files = attachments(typed, self._chat.snapshot.workspace)
        except UsageError as error:
            self.failed(written, error)
            return
        # An input that waits since an interrupt or a failure must not go before a new one.
        idle = "start" if self._chat.snapshot.queue and not self._chat.is_busy else "auto"
        delivery = "queue" if queue else idle
        self.submit(UserInput(self._id, text, images, files, delivery), written=written)

    def failed(self, written: str, error: TillerError) -> None:
        """Tell the user why something failed, and give back the user's text."""
        if not written:
            self._chat.say(str(error))
        elif self._chat.editor.is_empty:
            self._chat.editor.put(written)
            self._chat.say(f"not sent: {error}")
        else:
            self._chat.say(f"not sent (Up brings your text back): {error}")

    def _custom(self) -> list[str]:
        return [one.name for one in self._chat.catalog.commands]


def _argument(text: str) -> str:
    return "".join(text.split(None, 1)[1:]).strip()


def _command(text: str) -> str:
    """The name of the command that a text begins with; empty for a path or any other text."""
    if not text.startswith("/"):
        return ""
    name = text[1:].split(None, 1)[0] if text[1:].strip() else ""
    return "" if "/" in name else name
