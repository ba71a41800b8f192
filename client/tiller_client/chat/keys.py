"""The keys of the chat and their actions."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from prompt_toolkit.filters import Condition
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys

from tiller_client.chat.commands import runs_at_once
from tiller_client.chat.completing import completed_word
from tiller_client.chat.terminal.keyboard import LINE_BREAK
from tiller_client.chat.terminal.sequences import FOCUS_IN, FOCUS_OUT, LONE_ESC

if TYPE_CHECKING:
    from tiller_client.chat.app import Chat

KEYS_SHOWN = (
    ("Enter", "send, or steer the running turn"),
    ("Tab", "complete a /command or an @file; else queue: the turn takes the text at its end"),
    ("Alt-Enter, Ctrl-J", "a new line; also Shift-Enter, or \\ and Enter"),
    ("Esc", "close what is open; if nothing is open, interrupt the turn"),
    ("Esc Esc", "revert to an earlier point, or fork from it"),
    ("Ctrl-C", "interrupt the turn, or clear the text; press again to leave"),
    ("Ctrl-D", "leave"),
    ("Up, Down", "the row above or below, and what you wrote before"),
    ("Ctrl-V", "attach the image in the clipboard"),
    ("Shift-Tab", "the agent that plans, or back to the agent before it"),
    ("Alt-G", "after a plan: let the agent before it carry out the plan"),
    ("Alt-M, Alt-V", "choose the model, or its variant"),
    ("Alt-Q", "change what is queued"),
    ("Ctrl-O", "show thoughts and outputs whole, those on the screen once more; or fold them"),
    ("Ctrl-T", "the whole transcript, in a pager"),
    ("Ctrl-G", "write in $EDITOR"),
    ("Ctrl-R", "search what you wrote before"),
    ("!COMMAND", "run your own shell command"),
)

COMMAND_KEYS = {
    ("escape", "m"): "model",
    ("escape", "v"): "variant",
    ("escape", "q"): "queue",
    ("escape", "g"): "go",
    ("c-t",): "transcript",
    ("c-g",): "editor",
}
"""The keys that run a command."""


def bindings(chat: "Chat") -> KeyBindings:
    """The bindings of a chat's keys."""
    keys = KeyBindings()
    # If several bindings apply to a key, the last one counts.
    _add_editing(keys, chat)
    _add_turn(keys, chat)
    for pressed, command in COMMAND_KEYS.items():
        keys.add(*pressed)(_runs(chat, command))
    _add_answers(keys, chat)
    _add_menu(keys, chat)
    return keys


def _runs(chat: "Chat", command: str) -> Callable[[KeyPressEvent], None]:
    return lambda _event: chat.actions.run(command)


def _add_menu(keys: KeyBindings, chat: "Chat") -> None:
    """Bind all keys to the menu while it is open."""
    is_open = Condition(lambda: chat.menu is not None)

    @keys.add("up", filter=is_open, eager=True)
    @keys.add("c-p", filter=is_open, eager=True)
    def _up(_event: KeyPressEvent) -> None:
        assert chat.menu
        chat.menu.move(-1)

    @keys.add("down", filter=is_open, eager=True)
    @keys.add("c-n", filter=is_open, eager=True)
    def _down(_event: KeyPressEvent) -> None:
        assert chat.menu
        chat.menu.move(1)

    @keys.add("enter", filter=is_open, eager=True)
    def _take(_event: KeyPressEvent) -> None:
        assert chat.menu
        menu, chat.menu = chat.menu, None
        if not menu.entries:
            menu.take(menu.typed)
        elif menu.chosen is not None:
            menu.take(menu.chosen.value)

    @keys.add("c-c", filter=is_open, eager=True)
    @keys.add("c-d", filter=is_open, eager=True)
    @keys.add(LONE_ESC, filter=is_open, eager=True)
    def _close(_event: KeyPressEvent) -> None:
        chat.menu = None

    @keys.add("c-a", filter=is_open, eager=True)
    @keys.add("c-r", filter=is_open, eager=True)
    def _act(event: KeyPressEvent) -> None:
        assert chat.menu
        act = chat.menu.acts.get(event.key_sequence[0].key)
        if act is not None and chat.menu.chosen is not None:
            act.do(chat.menu.chosen)

    @keys.add("backspace", filter=is_open, eager=True)
    def _erase(_event: KeyPressEvent) -> None:
        assert chat.menu
        chat.menu.type(chat.menu.typed[:-1])

    @keys.add(Keys.Any, filter=is_open, eager=True)
    def _type(event: KeyPressEvent) -> None:
        assert chat.menu
        if event.data.isprintable():
            chat.menu.type(chat.menu.typed + event.data)


def _add_answers(keys: KeyBindings, chat: "Chat") -> None:
    """Bind letters, which choose an answer, and Enter, which gives it; see `asking`."""

    def about_request() -> bool:
        empty = chat.editor.is_empty
        return chat.menu is None and chat.asking.takes_keys(time.monotonic(), editor_is_empty=empty)

    asked = Condition(about_request)
    chosen = Condition(lambda: about_request() and chat.asking.chosen is not None)

    @keys.add(Keys.Any, filter=asked)
    def _press(event: KeyPressEvent) -> None:
        text = chat.asking.press(event.data)
        if text:
            chat.editor.buffer.insert_text(text)

    @keys.add("up", filter=asked)
    def _up(_event: KeyPressEvent) -> None:
        chat.asking.move(-1)

    @keys.add("down", filter=asked)
    def _down(_event: KeyPressEvent) -> None:
        chat.asking.move(1)

    @keys.add("enter", filter=chosen)
    def _give(_event: KeyPressEvent) -> None:
        chat.actions.answer(chat.asking.confirm())


def _add_editing(keys: KeyBindings, chat: "Chat") -> None:
    """Bind the keys for writing and sending a text."""
    buffer = chat.editor.buffer

    @keys.add("enter")
    def _send(event: KeyPressEvent) -> None:
        if event.data == LINE_BREAK and not chat.editor.is_empty:
            buffer.insert_text("\n")
            return
        taken = chat.editor.take_completion()
        if taken is not None and not runs_at_once(taken.text):
            return
        if buffer.document.text_before_cursor.endswith("\\"):
            buffer.delete_before_cursor()
            buffer.insert_text("\n")
            return
        chat.actions.send(queue=False)

    _add_lines(keys, chat)


def _add_lines(keys: KeyBindings, chat: "Chat") -> None:
    """Bind the keys for writing several lines and for recalling earlier texts."""
    buffer = chat.editor.buffer
    completing = Condition(lambda: buffer.complete_state is not None)

    @keys.add("escape", "enter")
    @keys.add("c-j")
    def _newline(_event: KeyPressEvent) -> None:
        buffer.insert_text("\n")

    @keys.add("up", filter=~completing)
    def _up(_event: KeyPressEvent) -> None:
        if not chat.editor.move(-1, chat.screen.look.width):
            buffer.history_backward()

    @keys.add("down", filter=~completing)
    def _down(_event: KeyPressEvent) -> None:
        if not chat.editor.move(1, chat.screen.look.width):
            buffer.history_forward()

    @keys.add("tab")
    def _complete_or_queue(_event: KeyPressEvent) -> None:
        if buffer.complete_state:
            buffer.complete_next()
        elif completed_word(buffer.document.text_before_cursor):
            buffer.start_completion(select_first=True)
        elif chat.is_busy:
            chat.actions.send(queue=True)

    @keys.add("s-tab", filter=completing)
    def _complete_back(_event: KeyPressEvent) -> None:
        buffer.complete_previous()

    @keys.add(Keys.BracketedPaste)
    def _paste(event: KeyPressEvent) -> None:
        chat.editor.paste(event.data)

    @keys.add("c-v")
    def _paste_image(_event: KeyPressEvent) -> None:
        chat.app.create_background_task(chat.actions.paste_image())

    @keys.add("c-r")
    def _search(_event: KeyPressEvent) -> None:
        chat.actions.menus.written_before()


def _add_turn(keys: KeyBindings, chat: "Chat") -> None:
    """Bind the keys that act on the turn and the session, and that change what is shown."""
    buffer = chat.editor.buffer
    completing = Condition(lambda: buffer.complete_state is not None)

    @keys.add(LONE_ESC)
    def _escape(_event: KeyPressEvent) -> None:
        if buffer.complete_state is not None:
            buffer.cancel_completion()
        elif not chat.asking.cancel():
            chat.actions.interrupt_or_go_back()

    @keys.add("c-c")
    def _clear(_event: KeyPressEvent) -> None:
        chat.actions.clear_or_leave()

    @keys.add("c-d")
    def _leave(_event: KeyPressEvent) -> None:
        if chat.editor.is_empty:
            chat.leave()
        else:
            buffer.delete()

    @keys.add("s-tab", filter=~completing)
    def _agent(_event: KeyPressEvent) -> None:
        chat.actions.plan_or_back()

    @keys.add("c-o")
    def _open(_event: KeyPressEvent) -> None:
        chat.actions.open_or_fold()

    @keys.add("c-l")
    def _redraw(_event: KeyPressEvent) -> None:
        chat.screen.painter.erase()
        chat.app.invalidate()

    @keys.add("c-z")
    def _suspend(_event: KeyPressEvent) -> None:
        chat.app.create_background_task(chat.actions.outside.suspend())

    @keys.add(FOCUS_IN)
    @keys.add(FOCUS_OUT)
    def _focus(event: KeyPressEvent) -> None:
        chat.notes.no_key_came()
        chat.screen.notifier.has_focus = event.key_sequence[0].key is FOCUS_IN
