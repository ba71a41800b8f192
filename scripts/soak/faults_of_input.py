"""Faults in the handling of input: the loop, its calls, the queue, submissions."""

from fault import SESSION, TURN, Fault

LOOP = (
    Fault(
        "G10 input moves from the queue to history in one commit",
        TURN + "loop.py",
        "_add_inputs",
        "await A.emit(*B)",
        "await A.emit(B[0])\nawait A.committed()\nawait A.emit(*B[1:])",
        "tests/sim/test_guarantees_of_input.py"
        "::test_g10_steering_is_delivered_or_handed_back_and_never_twice",
    ),
    Fault(
        "G10 steering comes before the next request",
        TURN + "loop.py",
        "run_turn",
        "await _add_inputs(A.mailbox.take_steering(), B, A)",
        "pass",
        "tests/session/test_turns_in_memory.py"
        "::test_b17_steering_while_text_streams_gives_a_second_request",
    ),
    Fault(
        "G10 a turn that finds no follow-up closes its mailbox at once",
        TURN + "loop.py",
        "_take_follow_ups",
        "A.mailbox.close()",
        "await A.committed()\nA.mailbox.close()",
        "tests/sim/test_guarantees_of_input.py"
        "::test_g10_steering_is_delivered_or_handed_back_and_never_twice",
    ),
    Fault(
        "G10 steering that arrives when the turn is about to end still steers the turn",
        TURN + "loop.py",
        "run_turn",
        "A.calls or B or C.has_steering",
        "A.calls or B",
        "tests/session/test_unfinished.py"
        "::test_b7_steering_goes_before_the_rest_of_a_cut_off_answer",
    ),
    Fault(
        "B20 follow-ups are taken one at a time if so configured",
        TURN + "loop.py",
        "_take_follow_ups",
        "A.take_follow_ups(B)",
        'A.take_follow_ups("all")',
        "tests/session/test_turns_in_memory.py::test_b20_follow_ups_wait_until_the_turn_would_rest",
    ),
    Fault(
        "B8 the last step gets no tools",
        TURN + "loop.py",
        "_begin_step",
        "tools=() if A else B",
        "tools=B",
        "tests/session/test_turns_in_memory.py::test_b8_the_last_step_has_a_notice_and_no_tools",
    ),
    Fault(
        "G6 the step limit of the turn's own context applies",
        TURN + "loop.py",
        "_BudgetTracker._out_of_steps",
        "A >= B.max_steps",
        "A > B.max_steps",
        "tests/session/test_resuming.py"
        "::test_b50_a_turn_that_died_in_its_last_step_has_reached_its_limit",
    ),
    Fault(
        "G4 the request after an overflow is rebuilt from history",
        TURN + "loop.py",
        "_take_step",
        "items=A.for_request(), attempt",
        "attempt",
        "tests/session/test_compaction.py"
        "::test_b42_an_overflow_is_compacted_once_and_a_second_one_ends_the_turn",
    ),
)

CALLS = (
    Fault(
        "G9 a call that writes runs alone",
        TURN + "dispatch.py",
        "_candidate",
        'A.effect == "write"',
        "not A.effect",
        "tests/turn/test_early_calls.py::test_b33_g9_a_call_begins_as_soon_as_it_may_and_no_sooner",
    ),
    Fault(
        "G9 a call that writes waits for calls that began early",
        TURN + "dispatch.py",
        "CallDispatcher._next_group",
        "(A.writes and B) or",
        "",
        "tests/session/test_turns_in_memory.py"
        "::test_b24_b25_after_an_interrupt_every_call_has_a_result",
    ),
    Fault(
        "G9 no call begins early if it comes after a call that writes",
        TURN + "dispatch.py",
        "CallDispatcher.offer",
        'A = B.effect == "write"',
        "A = False",
        "tests/turn/test_early_calls.py::test_b33_g9_a_call_begins_as_soon_as_it_may_and_no_sooner",
    ),
    Fault(
        "B16 calls that have not begun are skipped when the user steers",
        TURN + "dispatch.py",
        "CallDispatcher.run",
        "A or (B and C.user_steers)",
        "A",
        "tests/session/test_turns_in_memory.py"
        "::test_b16_steering_skips_the_calls_that_have_not_started",
    ),
    Fault(
        "G4 a call's result is added to history",
        TURN + "dispatch.py",
        "CallDispatcher._complete",
        "A.replace(B)",
        "pass",
        "tests/session/test_turns_in_memory.py"
        "::test_b2_the_second_request_holds_the_call_and_its_result",
    ),
    Fault(
        "G11 a call that writes is in the log before it begins",
        TURN + "call.py",
        "run_call",
        'if A.effect == "write":\n    await B.committed()',
        'if A.effect == "write":\n    pass',
        "tests/sim/test_guarantees.py"
        "::test_g11_recovery_no_side_effect_is_repeated_and_each_is_announced",
    ),
    Fault(
        "B33 a failed stream leaves no call running",
        TURN + "dispatch.py",
        "CallDispatcher.drop",
        "A.scope.cancel()",
        "pass",
        "tests/turn/test_early_calls.py::test_b7_b33_a_response_that_is_cut_off_runs_no_call_on",
    ),
    Fault(
        "B7 no call of a response that was cut off runs",
        TURN + "step.py",
        "_take_step",
        'A.finish_reason == "length"',
        'A.finish_reason == "content_filter"',
        "tests/session/test_turns_in_memory.py::test_b7_a_cut_off_response_runs_no_call",
    ),
    Fault(
        "G7 an item that a failed attempt began is completed",
        TURN + "assembly.py",
        "_discarded",
        'return (A(B(C, state="discarded")),)',
        "return ()",
        "tests/session/test_turns_in_memory.py"
        "::test_the_time_to_the_first_token_is_that_of_the_attempt_that_answered",
    ),
)

QUEUE = (
    Fault(
        "G10 steering is delivered once",
        SESSION + "inputs/input_queue.py",
        "InputQueue.take_steering",
        '[A for A in B if A.delivery != "steer"]',
        "list(B)",
        "tests/session/test_system_prompt.py::test_steering_with_a_command_steers_with_its_text",
    ),
    Fault(
        "G10 follow-ups come in order",
        SESSION + "inputs/input_queue.py",
        "InputQueue.take_follow_ups",
        "A, B = tuple(B[:C]), B[C:]",
        "A, B = tuple(B[-C:]), B[:-C]",
        "tests/session/test_turns_in_memory.py::test_b20_follow_ups_wait_until_the_turn_would_rest",
    ),
    Fault(
        "G10 steering that was not taken is handed back",
        SESSION + "inputs/input_queue.py",
        "InputQueue.hand_back",
        '[A(B, delivery="queue") for B in C]',
        "list(C)",
        "tests/sim/test_guarantees_of_input.py"
        "::test_g10_steering_is_delivered_or_handed_back_and_never_twice",
    ),
    Fault(
        "B21 promoted input comes next",
        SESSION + "inputs/input_queue.py",
        "InputQueue.promote",
        'A.insert(0, B(C(D), delivery="steer"))',
        'A.append(B(C(D), delivery="steer"))',
        "tests/sim/test_guarantees_of_input.py"
        "::test_g10_steering_is_delivered_or_handed_back_and_never_twice",
    ),
    Fault(
        "G12 the queue is bounded",
        SESSION + "inputs/input_queue.py",
        "InputQueue.is_full",
        "return len(A) >= B",
        "return False",
        "tests/session/test_supervisor.py"
        "::test_too_many_submissions_at_once_are_overloaded_and_handed_back",
    ),
    Fault(
        "B14 a wrong expected_turn_id changes nothing",
        SESSION + "handlers.py",
        "_take_input",
        "A.expected_turn_id not in (None, B)",
        "A.expected_turn_id is A",
        "tests/session/test_turns_in_memory.py::test_b13_b14_steering_needs_the_right_turn",
    ),
    Fault(
        "B13 steering without a turn is handed back",
        SESSION + "handlers.py",
        "_input_while_idle",
        'A.delivery == "steer" or A.expected_turn_id is not None',
        "A.expected_turn_id is not None",
        "tests/session/test_turns_in_memory.py::test_b13_b14_steering_needs_the_right_turn",
    ),
    Fault(
        "G10 in an idle session, the oldest queued input starts first",
        SESSION + "handlers.py",
        "_input_while_idle",
        'A = B.take_follow_ups("one_at_a_time")[0]',
        "B.remove(len(B.queue) - 1)",
        "tests/session/test_supervisor.py"
        "::test_queued_input_runs_after_an_interrupt_in_the_order_it_came",
    ),
    Fault(
        "B27 an interrupt for another turn changes nothing",
        SESSION + "handlers.py",
        "_interrupt",
        "A.turn_id not in (None, B)",
        "A.turn_id is A",
        "tests/session/test_turns_in_memory.py"
        "::test_b27_an_interrupt_of_another_turn_changes_nothing",
    ),
    Fault(
        "B21 an interrupt keeps the queue and reports it",
        SESSION + "turns/active_turn.py",
        "ActiveTurn._close",
        "if A:",
        "if not A:",
        "tests/session/test_continuing.py"
        "::test_b21_what_waits_after_an_interrupt_is_told_and_starts_in_order",
    ),
)

CONTINUING = (
    Fault(
        "G10 turn_continue begins with the oldest queued input",
        SESSION + "handlers.py",
        "_continue",
        'A.take_follow_ups("one_at_a_time")[0]',
        "A.take(len(A.queue) - 1)",
        "tests/session/test_continuing.py::test_a_refused_continuation_changes_nothing",
    ),
    Fault(
        "G10 turn_continue takes queued input before it continues without input",
        SESSION + "handlers.py",
        "_continue",
        "if A.queue:",
        "if A.queue and not B.items:",
        "tests/session/test_continuing.py::test_a_refused_continuation_changes_nothing",
    ),
    Fault(
        "G10 a turn_continue that is refused takes nothing from the queue",
        SESSION + "turns/starting.py",
        "start_turn",
        "A.restore(B().queue)",
        "pass",
        "tests/session/test_continuing.py::test_a_refused_continuation_changes_nothing",
    ),
    Fault(
        "G10 new input joins the queue behind older input",
        SESSION + "handlers.py",
        "_input_while_idle",
        'A.delivery != "start" and B',
        'A.delivery == "queue" and B',
        "tests/session/test_continuing.py"
        "::test_new_input_comes_behind_what_waits_unless_it_is_to_start",
    ),
    Fault(
        "B21 in an idle session, promote starts a turn with the promoted input",
        SESSION + "handlers.py",
        "_edit_queue",
        "start_turn(A, B.take(C), D(), E)",
        "start_turn(A, B.take(0), D(), E)",
        "tests/session/test_continuing.py"
        "::test_promote_at_rest_starts_with_that_one_and_the_others_follow",
    ),
    Fault(
        "B21 the end of a turn says how many inputs wait",
        TURN + "closing.py",
        "closing_bodies",
        "A = len(B)",
        "A = 0",
        "tests/sim/test_guarantees_of_input.py"
        "::test_g10_steering_is_delivered_or_handed_back_and_never_twice",
    ),
    Fault(
        "B21 queued input that no turn will take is reported as waiting",
        SESSION + "inputs/input_queue.py",
        "InputQueue.changed",
        "bool(A) and not B",
        "bool(A) and B",
        "tests/session/test_continuing.py"
        "::test_an_edit_at_rest_starts_nothing_and_says_that_it_waits",
    ),
    Fault(
        "G5 a turn_continue that arrives while a turn is ending waits until the turn has ended",
        SESSION + "actor.py",
        "_may_start_turn",
        'UserInput() | TurnContinue() | QueueEdit(action="promote")',
        "UserInput()",
        "tests/session/test_continuing.py::test_going_on_while_a_turn_ends_waits_for_its_end",
    ),
)

SUBMISSIONS = (
    Fault(
        "G3 an accepted submission is in the log",
        SESSION + "actor.py",
        "Session._accept",
        "A.put(submission=B.row(C))\nawait A.commit(partial(D, B, C))",
        "A.put(submission=B.row(C))\nD(B, C)\nawait A.commit(lambda: None)",
        "tests/session/test_requests.py"
        "::test_a_log_that_fails_is_said_and_the_answer_can_be_sent_again",
    ),
    Fault(
        "G3 a submission is answered after its commit",
        SESSION + "outbox.py",
        "Outbox._write",
        "A = session_row(B)",
        "A = session_row(B)\nif stored:\n    stored()",
        "tests/session/test_requests.py"
        "::test_a_log_that_fails_is_said_and_the_answer_can_be_sent_again",
    ),
    Fault(
        "G3 the answer is stored with its events",
        SESSION + "outbox.py",
        "Outbox._write",
        "Batch(A, B, C, tuple(D(E)), F)",
        "Batch(A, B, None, tuple(D(E)), F)",
        "tests/session/test_turns_in_memory.py"
        "::test_b22_the_same_submission_has_one_effect_and_one_answer",
    ),
    Fault(
        "G3 an answered submission is not carried out again",
        SESSION + "supervisor.py",
        "Supervisor._once",
        "if A := await B(C):",
        "if (A := await B(C)) and not A:",
        "tests/session/test_turns_in_memory.py"
        "::test_b22_the_same_submission_has_one_effect_and_one_answer",
    ),
    Fault(
        "G3 two copies of a submission that arrive together take effect once",
        SESSION + "supervisor.py",
        "Supervisor._once",
        "(A := B.get(C)) is not None",
        "(A := B.get(str(type(C)))) is not None",
        "tests/sim/test_guarantees.py"
        "::test_g3_submit_once_a_resend_gets_the_same_answer_and_no_second_effect",
    ),
    Fault(
        "G3 ids from before a restart are looked up",
        SESSION + "supervisor.py",
        "Supervisor.run",
        "await A.highest_submission()",
        '""',
        "tests/e2e/test_durability.py"
        "::test_b22_the_same_submission_has_the_same_answer_after_a_restart",
    ),
    Fault(
        "G3 an id is not used for two ops",
        SESSION + "supervisor.py",
        "_same_answer",
        "A.digest != B",
        'A.digest == b""',
        "tests/session/test_turns_in_memory.py"
        "::test_b22_the_same_submission_has_one_effect_and_one_answer",
    ),
    Fault(
        "G5 input that arrives while a turn is ending waits until the turn has ended",
        SESSION + "actor.py",
        "Session._must_defer",
        'return A.steerable or not isinstance(B, UserInput) or B.delivery != "steer"',
        "return False",
        "tests/session/test_shell.py::test_a_command_is_not_steered_and_input_waits_for_its_end",
    ),
    Fault(
        "G5 input that waited for the end of a turn is not forgotten",
        SESSION + "actor.py",
        "Session._run_turn",
        "A.send_nowait(B)",
        "pass",
        "tests/session/test_shell.py::test_a_command_is_not_steered_and_input_waits_for_its_end",
    ),
)

FAULTS = LOOP + CALLS + QUEUE + CONTINUING + SUBMISSIONS
