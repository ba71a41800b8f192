"""The actions of keys and commands. They submit ops, whose effects arrive as events."""

import asyncio
import os
from functools import partial

from tiller_client.chat.asking import Choice
from tiller_client.chat.attaching import is_in_text, quoted
from tiller_client.chat.choosing import Menus
from tiller_client.chat.clipboard import PROGRAMS, Clipboard
from tiller_client.chat.command_actions import CommandActions
from tiller_client.chat.commands import CARRY_OUT, COMMANDS, NAMES, named
from tiller_client.chat.rows import PLANNER, has_plan
from tiller_client.chat.screen import Screen
from tiller_client.chat.state import ChatState
from tiller_client.chat.submitting import Submitter
from tiller_client.chat.terminal.outside import Outside
from tiller_client.command_line.parser import similar
from tiller_client.errors import TillerError, UsageError
from tiller_protocol.items import QueuedInput
from tiller_protocol.ops import (
    Answer,
    QueueEdit,
    SessionConfigure,
    Shell,
)
from tiller_protocol.settings import Settings

BUILDER = "build"
"""The agent of sessions that have chosen none."""

INTERRUPT = "Esc again interrupts the turn"
BACK = "Esc again: go back to an earlier turn"
TAKEN_BACK = f"what waited is in the editor again; Ctrl-C clears it; {BACK}"
LEAVE = "Ctrl-C again leaves"
CLEARED = f"text cleared; Up brings it back; {LEAVE}"
CLEARED_TO_ANSWER = "text cleared; Up brings it back; Ctrl-C again interrupts the turn"
STOPPED = f"the turn is interrupted; {LEAVE}"
STOPPED_WITH_TEXT = "the turn is interrupted; Ctrl-C again clears the text"
NO_IMAGE = f"there is no image in the clipboard, or none of {', '.join(PROGRAMS)} to read it"


class Actions:
    """All actions of the user on the session."""

    def __init__(self, state: ChatState, screen: Screen, submitter: Submitter) -> None:
        self._state = state
        self._screen = screen
        self._submitter = submitter
        self.outside = Outside(state, screen)
        self.menus = Menus(state, submitter, self.outside.read)
        self.clipboard = Clipboard()
        self._agent_asked = ""
        """The agent that a key has chosen, until the session has it."""
        self._agent_before = BUILDER
        """The agent before the one that plans."""
        self._commands = CommandActions(
            state, screen, submitter, self.menus, self.outside, self.carry_out_plan
        )

    def send(self, *, queue: bool) -> None:
        """Send the text in the editor as an answer, a chat command, a shell command or input."""
        state = self._state
        if state.asking.typing is not None:
            self.answer(state.asking.finish(state.editor.take()))
            return
        text = state.editor.whole().strip()
        if text and not queue and state.asking.takes_text and named(_command(text)) is None:
            self.answer(Choice("", "", "answer", text), written=state.editor.take())
            return
        if text in ("exit", "quit"):
            state.leave()
        elif text == "!":
            state.say("to run a command, type it after the !")
        elif text.startswith("!"):
            self._submitter.submit(Shell(self._id, text[1:].strip()), written=state.editor.take())
        elif name := _command(text):
            self._run(name, text)
        elif text and state.asking.is_late(text):
            state.say(f"the question is gone, so {text} was not sent; Enter sends it as a message")
        elif text:
            typed = state.editor.buffer.text
            self._submitter.input(text, state.editor.take(), typed, queue=queue)

    def run(self, name: str, rest: str = "") -> None:
        """Run a chat command."""
        self._commands.run(name, rest)

    def answer(self, choice: Choice | None, *, written: str = "") -> None:
        """Answer the open request."""
        request = self._state.asking.request
        if choice is not None and request is not None:
            self._state.asking.answered()
            self._submitter.submit(
                Answer(request.id, choice.decision, choice.text), written=written
            )

    def interrupt_or_go_back(self) -> None:
        """Interrupt the running turn; the second time, choose a turn to go back to.

        While a request is open, an Esc may be meant for the request, so only a second Esc
        interrupts.
        """
        state = self._state
        said, is_asked = state.notes.said_before, state.asking.request is not None
        if said in (BACK, TAKEN_BACK):
            self.menus.turns()
        elif is_asked and said != INTERRUPT:
            state.say(INTERRUPT)
        else:
            state.say(TAKEN_BACK if state.is_busy and self._interrupt() else BACK)

    def _interrupt(self) -> bool:
        """Interrupt the turn, and take back the inputs that wait, so that the next one goes first.

        Return whether any input waits.
        """
        state = self._state
        self._submitter.interrupt()
        waiting = [one for one in state.snapshot.queue if is_in_text(one, state.snapshot.workspace)]
        texts: list[str] = []

        def ended(one: QueuedInput, _: object) -> None:
            if one is waiting[-1]:
                state.editor.put_before("\n".join(texts))
                state.changed()

        def removed(one: QueuedInput, _: object) -> None:
            texts.append(one.text)
            ended(one, None)

        for one in waiting:
            op = QueueEdit(self._id, one.id, "remove")
            # If it fails, the turn has taken the input.
            self._submitter.submit(op, done=partial(removed, one), failed=partial(ended, one))
        return self._submitter.recall_unanswered() or bool(waiting)

    def clear_or_leave(self) -> None:
        """Interrupt the running turn, or clear the editor, or leave if this was the last key."""
        state = self._state
        state.asking.cancel()
        said = state.notes.said_before
        if state.asking.request is not None and not state.editor.is_empty:
            state.editor.take()
            state.say(CLEARED_TO_ANSWER)
        elif state.is_busy and said not in (STOPPED, STOPPED_WITH_TEXT, CLEARED):
            has_text = self._interrupt() or not state.editor.is_empty
            state.say(STOPPED_WITH_TEXT if has_text else STOPPED)
        elif not state.editor.is_empty:
            state.editor.take()
            state.say(CLEARED)
        elif said in (LEAVE, STOPPED, CLEARED):
            state.leave()
        else:
            state.say(LEAVE)

    def open_or_fold(self) -> None:
        """Show thoughts and outputs whole, those on the screen once more; or fold later ones."""
        state = self._state
        look = self._screen.look
        look.opened = not look.opened
        if look.opened and (lines := state.conversation.opened(self._screen.painter.size[1])):
            self._screen.print(lines[1:])
        how = "shown whole" if look.opened else "folded"
        state.say(f"thoughts and outputs are {how} from now on")

    async def paste_image(self) -> None:
        """Attach the image in the clipboard to the text."""
        path = await asyncio.to_thread(self.clipboard.take_image)
        if path is None:
            self._state.say(NO_IMAGE)
        else:
            self._state.editor.insert_word(quoted(path))
            self._state.changed()

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
            self._submitter.failed("", error)

        op = SessionConfigure(self._id, Settings(agent=asked))
        self._submitter.submit(op, done=answered, failed=failed)

    def carry_out_plan(self) -> None:
        """Let the agent before the one that planned carry out its plan."""
        if has_plan(self._state.snapshot):
            agent = self._agent_before if self._agent == PLANNER else self._agent
            op = SessionConfigure(self._id, Settings(agent=agent))
            self._submitter.submit(
                op, done=lambda _: self._submitter.input(CARRY_OUT, "", "", queue=False)
            )
        else:
            self._state.say(
                "the last turn made no plan; Shift-Tab switches to the agent that plans"
            )

    @property
    def _agent(self) -> str:
        return self._agent_asked or self._state.snapshot.settings.agent or BUILDER

    @property
    def _id(self) -> str:
        return self._state.session_id

    def _run(self, name: str, text: str) -> None:
        typed = self._state.editor.buffer.text
        written = self._state.editor.take()
        if name in NAMES:
            self.run(name, _argument(text))
        elif name in self._custom():
            self._submitter.input(text, written, typed, queue=False)
        else:
            run = partial(self._run_custom, name, text, written, typed)
            self._submitter.with_catalog(run, written=written)

    def _run_custom(self, name: str, text: str, written: str, typed: str) -> None:
        if name in self._custom():
            self._submitter.input(text, written, typed, queue=False)
        elif named(name) is not None:
            self.run(name, _argument(text))
        elif os.path.lexists(f"/{name}"):
            self._submitter.input(text, written, typed, queue=False)  # It begins with a path.
        else:
            suggestion = similar(name, [one.name for one in COMMANDS] + self._custom())
            hint = f"did you mean /{suggestion}?" if suggestion else "see /help"
            self._submitter.failed(written, UsageError(f"there is no command /{name}; {hint}"))

    def _custom(self) -> list[str]:
        return [one.name for one in self._state.catalog.commands]


def _argument(text: str) -> str:
    return "".join(text.split(None, 1)[1:]).strip()


def _command(text: str) -> str:
    """The name of the command that a text begins with; empty for a path or any other text."""
    if not text.startswith("/"):
        return ""
    name = text[1:].split(None, 1)[0] if text[1:].strip() else ""
    return "" if "/" in name else name
