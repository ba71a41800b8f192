"""Faults in `tiller chat`: its output, input, questions and drawing."""

from fault import Fault

CHAT = "client/tiller_client/chat/"
IN_A_TERMINAL = "tests/e2e/chat/test_chat.py::"
STATES = "tests/e2e/chat/test_screens.py::test_a_person_sees_it"
OF_ASKING = "tests/client/chat/test_asking.py::"
OF_EDITOR = "tests/client/chat/test_editor.py::"
OF_ITEMS = "tests/client/chat/test_reading_items.py::"
OF_MARKDOWN = "tests/client/chat/test_reading_markdown.py::"
OF_NOTIFYING = "tests/client/chat/test_notifying.py::"
OF_PACE = "tests/client/chat/test_pace.py::"
OF_PAINTER = "tests/client/chat/test_painter.py::"

DRAWING = (
    Fault(
        "events draw at most 30 frames a second",
        CHAT + "terminal/pace.py",
        "Pace._wait_s",
        "max(0.0, A + B - C())",
        "0.0",
        OF_PACE + "test_events_draw_no_frame_before_the_last_one_is_old_enough",
    ),
    Fault(
        "events draw no frame before the terminal has shown the previous frame",
        CHAT + "terminal/pace.py",
        "Pace.may_draw",
        "A if B else 1",
        "100",
        OF_PACE + "test_events_draw_one_frame_until_the_terminal_has_answered",
    ),
    Fault(
        "only changed rows are written again",
        CHAT + "terminal/painter.py",
        "Painter._difference",
        "self._rows[A] == B",
        "False",
        OF_PAINTER + "test_what_is_on_the_screen_already_is_not_written_again",
    ),
    Fault(
        "the live part is erased at the end",
        CHAT + "terminal/painter.py",
        "Painter.erase",
        "if self._rows:",
        "if False:",
        IN_A_TERMINAL + "test_a_turn_is_written_read_and_stays_in_the_scrollback",
    ),
    Fault(
        "streaming text is laid out again when the terminal's width changes",
        CHAT + "conversation.py",
        "Conversation._feed",
        "self._stream.width = A",
        "pass",
        IN_A_TERMINAL + "test_what_streams_is_laid_out_anew_when_the_terminal_gets_narrower",
    ),
    Fault(
        "prompt-toolkit lays out no screen, because nobody would see it",
        CHAT + "app.py",
        "Chat.__init__",
        "self.app.renderer = A(B(), C)",
        "pass",
        "tests/e2e/chat/test_start.py"
        "::test_the_first_frame_is_drawn_before_what_reads_keys_is_imported",
    ),
)

READING = (
    Fault(
        "text from a model or tool is made safe before it reaches the terminal",
        CHAT + "reading/style.py",
        "safe",
        "sanitized(A)",
        "A",
        OF_MARKDOWN + "test_any_text_at_all_is_safe",
    ),
    Fault(
        "an interrupt is shown only once",
        CHAT + "conversation.py",
        "Conversation._release",
        "if A[B.code] != C:",
        "if True:",
        STATES,
    ),
    Fault(
        "images are drawn only in final lines",
        CHAT + "reading/items.py",
        "item_lines",
        "if A.now is not None:",
        "if False:",
        OF_ITEMS + "test_an_image_is_drawn_only_into_lines_that_are_final",
    ),
)

WRITING = (
    Fault(
        "pasted text that is folded is sent in full",
        CHAT + "editor.py",
        "Editor.whole",
        "_FOLD.sub(lambda fold: A.get(B[1], C[0]), D)",
        "D",
        OF_EDITOR + "test_what_was_pasted_is_sent_whole",
    ),
    Fault(
        "large pasted text is folded",
        CHAT + "editor.py",
        "Editor.paste",
        "A < B and len(C) < D",
        "True",
        OF_EDITOR + "test_what_was_pasted_is_sent_whole",
    ),
    Fault(
        "replaced text can be brought back",
        CHAT + "editor.py",
        "Editor.put",
        "self.take()",
        "self.buffer.reset()",
        OF_EDITOR + "test_a_text_that_is_replaced_can_be_brought_back",
    ),
    Fault(
        "Tab queues",
        CHAT + "keys.py",
        "_add_lines._complete_or_queue",
        "queue=True",
        "queue=False",
        IN_A_TERMINAL + "test_enter_steers_and_tab_queues_while_a_turn_is_running",
    ),
    Fault(
        "the menu can move queued input",
        CHAT + "choosing.py",
        "Menus._edit",
        'cast("_QueueAction", A)',
        '"remove"',
        IN_A_TERMINAL + "test_what_is_queued_is_moved_removed_or_sent_now",
    ),
    Fault(
        "input from other sessions is in the chat's history",
        CHAT + "app.py",
        "Chat._load",
        "if A else []",
        "if False else []",
        IN_A_TERMINAL + "test_what_was_written_in_another_session_is_in_the_history",
    ),
    Fault(
        "a message that can't be sent returns to the editor",
        CHAT + "actions.py",
        "Actions.failed",
        "self._chat.editor.put(A)",
        "pass",
        IN_A_TERMINAL + "test_a_message_that_can_not_be_sent_comes_back_to_the_editor",
    ),
    Fault(
        "menus show the current catalog",
        CHAT + "actions.py",
        "Actions.with_catalog.loaded",
        "self._chat.catalog = A",
        "pass",
        IN_A_TERMINAL + "test_a_menu_shows_what_there_is_now",
    ),
    Fault(
        "Esc interrupts the turn",
        CHAT + "actions.py",
        "Actions._interrupt",
        "self.submit(Interrupt(A))",
        "pass",
        IN_A_TERMINAL + "test_escape_interrupts_and_again_goes_back_to_a_turn",
    ),
    Fault(
        "what waited when a turn is interrupted comes back into the editor",
        CHAT + "actions.py",
        "Actions._interrupt.ended",
        'chat.editor.put_before("\\n".join(A))',
        "pass",
        "tests/e2e/chat/test_interrupting.py"
        "::test_what_waits_at_an_interrupt_comes_back_and_the_next_message_goes_first",
    ),
    Fault(
        "a message goes before those that wait since an interrupt",
        CHAT + "actions.py",
        "Actions.input",
        '"start" if A and not B else "auto"',
        '"auto"',
        "tests/e2e/chat/test_interrupting.py"
        "::test_a_message_goes_before_what_waits_since_an_interrupt_from_elsewhere",
    ),
    Fault(
        "a key that comes after the deadline of an Esc is no key with Alt",
        CHAT + "terminal/keyboard.py",
        "Keyboard._read",
        "if A and not B(C) and D() >= E:",
        "if False:",
        "tests/client/chat/test_sequences.py"
        "::test_an_escape_is_decided_at_its_deadline_whatever_comes_next",
    ),
    Fault(
        "keys that are typed before the chat can read them are kept",
        CHAT + "terminal/keyboard.py",
        "type_ahead",
        "store_typeahead(A, B)",
        "pass",
        IN_A_TERMINAL + "test_what_is_typed_while_the_chat_starts_is_sent_once_and_whole",
    ),
    Fault(
        "a text pasted without bracketed paste is one message",
        CHAT + "terminal/keyboard.py",
        "Keyboard.read_keys",
        "_with_line_breaks(A)",
        "A",
        OF_PACE + "test_an_enter_that_text_follows_at_once_is_a_line_break",
    ),
    Fault(
        "a text pasted without bracketed paste is read to its end",
        CHAT + "terminal/keyboard.py",
        "Keyboard.read_keys",
        "self._more_follows()",
        "False",
        OF_PACE + "test_a_pasted_text_is_read_to_its_end_however_it_is_split",
    ),
)

ASKING = (
    Fault(
        "a key answers a request only after the request has been visible for a while",
        CHAT + "asking.py",
        "Asking.takes_keys",
        "A and B - self._seen_at >= C",
        "A",
        OF_ASKING
        + "test_keys_are_not_about_a_request_that_was_not_seen_or_while_a_text_is_written",
    ),
    Fault(
        "no key answers a request while the editor contains text",
        CHAT + "asking.py",
        "Asking.takes_keys",
        "A and B - self._seen_at >= C",
        "B - self._seen_at >= C",
        OF_ASKING
        + "test_keys_are_not_about_a_request_that_was_not_seen_or_while_a_text_is_written",
    ),
    Fault(
        "a key pressed before the terminal showed a request does not answer the request",
        CHAT + "terminal/pace.py",
        "Pace.written",
        "elif not A:",
        "if True:",
        "tests/client/chat/test_screen.py::test_keys_are_about_a_request_once_the_terminal_shows_it",
    ),
    Fault(
        "after a second letter, both letters are text",
        CHAT + "asking.py",
        "Asking.press",
        "None if A else B",
        "B",
        OF_ASKING + "test_a_text_that_begins_with_a_letter_of_an_answer_stays_whole",
    ),
    Fault(
        "a letter counts as text only if it was pressed, not if an arrow chose its answer",
        CHAT + "asking.py",
        "Asking.press",
        "if self.chosen and A else",
        "if self.chosen else",
        OF_ASKING + "test_a_text_after_an_answer_chosen_by_an_arrow_stays_whole",
    ),
    Fault(
        "a text that was begun before a question does not answer it",
        CHAT + "asking.py",
        "Asking.key_came",
        "if A:",
        "if True:",
        OF_ASKING
        + "test_only_a_text_that_was_begun_while_the_question_was_on_the_screen_answers_it",
    ),
    Fault(
        "a choice made for one request does not apply to the next request",
        CHAT + "asking.py",
        "Asking.show",
        "self.chosen = self.typing = None",
        "pass",
        OF_ASKING + "test_what_was_chosen_for_a_request_answers_no_other_one",
    ),
    Fault(
        "a letter typed too late for a request is held back once",
        CHAT + "asking.py",
        "Asking.is_late",
        "return A in B",
        "return False",
        OF_ASKING + "test_a_letter_for_a_request_that_was_answered_elsewhere_is_held_back_once",
    ),
    Fault(
        "each letter gives the answer that its label names",
        CHAT + "asking.py",
        "choices",
        'Choice("n", "no, and stop", "reject")',
        'Choice("n", "no, and stop", "once")',
        OF_ASKING + "test_the_choices_are_those_that_the_request_has",
    ),
)

KNOWING = (
    Fault(
        "the bell rings if the terminal is not in focus",
        CHAT + "terminal/notifying.py",
        "Notifier.take",
        "if not self.has_focus:",
        "if False:",
        OF_NOTIFYING + "test_somebody_who_looks_elsewhere_is_called_once",
    ),
    Fault(
        "the bell does not ring if the terminal is in focus",
        CHAT + "terminal/notifying.py",
        "Notifier.take",
        "if not self.has_focus:",
        "if True:",
        OF_NOTIFYING + "test_nobody_is_called_who_sees_it",
    ),
    Fault(
        "the status says how much of the context is used",
        CHAT + "status.py",
        "_parts",
        "if A.context_tokens and A.context_window:",
        "if False:",
        STATES,
    ),
    Fault(
        "the status says that there is no daemon",
        CHAT + "live_session.py",
        "_watch",
        'A.away(B if C else "")',
        'A.away("")',
        IN_A_TERMINAL + "test_a_daemon_that_was_stopped_is_said_and_awaited",
    ),
    Fault(
        "a session whose directory is gone can be read",
        CHAT + "live_session.py",
        "LiveSession.look_up",
        "return None",
        "raise",
        IN_A_TERMINAL + "test_a_session_can_be_read_after_its_directory_is_gone",
    ),
)

FAULTS = (*DRAWING, *READING, *WRITING, *ASKING, *KNOWING)
