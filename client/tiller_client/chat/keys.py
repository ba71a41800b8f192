"""The keys of the chat and their actions."""

import time
from collections.abc import Callable

from prompt_toolkit.filters import Condition
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys

from tiller_client.chat.actions import Actions
from tiller_client.chat.commands import runs_at_once
from tiller_client.chat.completing import completed_word
from tiller_client.chat.screen import Screen
from tiller_client.chat.state import ChatState
from tiller_client.chat.terminal.keyboard import LINE_BREAK
from tiller_client.chat.terminal.sequences import FOCUS_IN, FOCUS_OUT, LONE_ESC

COMMAND_KEYS = {
    ("escape", "m"): "model",
    ("escape", "v"): "variant",
    ("escape", "q"): "queue",
    ("escape", "g"): "go",
    ("c-t",): "transcript",
    ("c-g",): "editor",
}
"""The keys that run a command."""


def bindings(state: ChatState, screen: Screen, actions: Actions) -> KeyBindings:
    """The bindings of a chat's keys."""
    keys = KeyBindings()
    # If several bindings apply to a key, the last one counts.
    _add_editing(keys, state, screen, actions)
    _add_turn(keys, state, screen, actions)
    for pressed, command in COMMAND_KEYS.items():
        keys.add(*pressed)(_runs(actions, command))
    _add_answers(keys, state, actions)
    _add_menu(keys, state)
    return keys


def _runs(actions: Actions, command: str) -> Callable[[KeyPressEvent], None]:
    return lambda _event: actions.run(command)


def _add_menu(keys: KeyBindings, state: ChatState) -> None:
    """Bind all keys to the menu while it is open."""
    is_open = Condition(lambda: state.menu is not None)

    @keys.add("up", filter=is_open, eager=True)
    @keys.add("c-p", filter=is_open, eager=True)
    def _up(_event: KeyPressEvent) -> None:
        assert state.menu
        state.menu.move(-1)

    @keys.add("down", filter=is_open, eager=True)
    @keys.add("c-n", filter=is_open, eager=True)
    def _down(_event: KeyPressEvent) -> None:
        assert state.menu
        state.menu.move(1)

    @keys.add("enter", filter=is_open, eager=True)
    def _take(_event: KeyPressEvent) -> None:
        assert state.menu
        menu, state.menu = state.menu, None
        if not menu.entries:
            menu.take(menu.typed)
        elif menu.chosen is not None:
            menu.take(menu.chosen.value)
        if state.menu is not None:
            state.menu.above = menu

    @keys.add("c-c", filter=is_open, eager=True)
    @keys.add("c-d", filter=is_open, eager=True)
    def _close(_event: KeyPressEvent) -> None:
        state.menu = None

    @keys.add(LONE_ESC, filter=is_open, eager=True)
    def _back(_event: KeyPressEvent) -> None:
        assert state.menu
        state.menu = state.menu.above

    @keys.add("c-a", filter=is_open, eager=True)
    @keys.add("c-r", filter=is_open, eager=True)
    def _act(event: KeyPressEvent) -> None:
        assert state.menu
        act = state.menu.acts.get(event.key_sequence[0].key)
        menu = state.menu
        if act is not None and menu.chosen is not None:
            act.do(menu.chosen)
            if state.menu is not menu:
                state.menu.above = menu

    @keys.add("backspace", filter=is_open, eager=True)
    def _erase(_event: KeyPressEvent) -> None:
        assert state.menu
        state.menu.type(state.menu.typed[:-1])

    @keys.add(Keys.Any, filter=is_open, eager=True)
    def _type(event: KeyPressEvent) -> None:
        assert state.menu
        if event.data.isprintable():
            state.menu.type(state.menu.typed + event.data)


def _add_answers(keys: KeyBindings, state: ChatState, actions: Actions) -> None:
    """Bind letters, which choose an answer, and Enter, which gives it; see `asking`."""

    def about_request() -> bool:
        empty = state.editor.is_empty
        return state.menu is None and state.asking.takes_keys(
            time.monotonic(), editor_is_empty=empty
        )

    asked = Condition(about_request)
    chosen = Condition(lambda: about_request() and state.asking.chosen is not None)

    @keys.add(Keys.Any, filter=asked)
    def _press(event: KeyPressEvent) -> None:
        text = state.asking.press(event.data)
        if text:
            state.editor.buffer.insert_text(text)

    @keys.add("up", filter=asked)
    def _up(_event: KeyPressEvent) -> None:
        state.asking.move(-1)

    @keys.add("down", filter=asked)
    def _down(_event: KeyPressEvent) -> None:
        state.asking.move(1)

    @keys.add("enter", filter=chosen)
    def _give(_event: KeyPressEvent) -> None:
        actions.answer(state.asking.confirm())


def _add_editing(keys: KeyBindings, state: ChatState, screen: Screen, actions: Actions) -> None:
    """Bind the keys for writing and sending a text."""
    buffer = state.editor.buffer

    @keys.add("enter")
    def _send(event: KeyPressEvent) -> None:
        if event.data == LINE_BREAK and not state.editor.is_empty:
            buffer.insert_text("\n")
            return
        taken = state.editor.take_completion()
        if taken is not None and not runs_at_once(taken.text):
            return
        if buffer.document.text_before_cursor.endswith("\\"):
            buffer.delete_before_cursor()
            buffer.insert_text("\n")
            return
        actions.send(queue=False)

    _add_lines(keys, state, screen, actions)


def _add_lines(keys: KeyBindings, state: ChatState, screen: Screen, actions: Actions) -> None:
    """Bind the keys for writing several lines and for recalling earlier texts."""
    buffer = state.editor.buffer
    completing = Condition(lambda: buffer.complete_state is not None)

    @keys.add("escape", "enter")
    @keys.add("c-j")
    def _newline(_event: KeyPressEvent) -> None:
        buffer.insert_text("\n")

    @keys.add("up", filter=~completing)
    def _up(_event: KeyPressEvent) -> None:
        if not state.editor.move(-1, screen.look.width):
            buffer.history_backward()

    @keys.add("down", filter=~completing)
    def _down(_event: KeyPressEvent) -> None:
        if not state.editor.move(1, screen.look.width):
            buffer.history_forward()

    @keys.add("tab")
    def _complete_or_queue(_event: KeyPressEvent) -> None:
        if buffer.complete_state:
            buffer.complete_next()
        elif completed_word(buffer.document.text_before_cursor):
            buffer.start_completion(select_first=True)
        elif state.is_busy:
            actions.send(queue=True)

    @keys.add("s-tab", filter=completing)
    def _complete_back(_event: KeyPressEvent) -> None:
        buffer.complete_previous()

    @keys.add(Keys.BracketedPaste)
    def _paste(event: KeyPressEvent) -> None:
        state.editor.paste(event.data)

    @keys.add("c-v")
    def _paste_image(_event: KeyPressEvent) -> None:
        state.start(actions.paste_image())

    @keys.add("c-r")
    def _search(_event: KeyPressEvent) -> None:
        actions.menus.written_before()


def _add_turn(keys: KeyBindings, state: ChatState, screen: Screen, actions: Actions) -> None:
    """Bind the keys that act on the turn and the session, and that change what is shown."""
    buffer = state.editor.buffer
    completing = Condition(lambda: buffer.complete_state is not None)

    @keys.add(LONE_ESC)
    def _escape(_event: KeyPressEvent) -> None:
        if buffer.complete_state is not None:
            buffer.cancel_completion()
        elif not state.asking.cancel():
            actions.interrupt_or_go_back()

    @keys.add("c-c")
    def _clear(_event: KeyPressEvent) -> None:
        actions.clear_or_leave()

    @keys.add("c-d")
    def _leave(_event: KeyPressEvent) -> None:
        if state.editor.is_empty:
            state.leave()
        else:
            buffer.delete()

    @keys.add("s-tab", filter=~completing)
    def _agent(_event: KeyPressEvent) -> None:
        actions.plan_or_back()

    @keys.add("c-o")
    def _open(_event: KeyPressEvent) -> None:
        actions.open_or_fold()

    @keys.add("c-l")
    def _redraw(_event: KeyPressEvent) -> None:
        screen.painter.erase()
        state.changed()

    @keys.add("c-z")
    def _suspend(_event: KeyPressEvent) -> None:
        state.start(actions.outside.suspend())

    @keys.add(FOCUS_IN)
    @keys.add(FOCUS_OUT)
    def _focus(event: KeyPressEvent) -> None:
        state.notes.no_key_came()
        screen.notifier.has_focus = event.key_sequence[0].key is FOCUS_IN
