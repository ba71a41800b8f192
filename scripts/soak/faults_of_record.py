"""Faults in the record: the outbox, endings, recovery, history, requests."""

from fault import SESSION, TURN, Fault

OUTBOX = (
    Fault(
        "G1 nothing is published before it is in the log",
        SESSION + "outbox.py",
        "Outbox._write",
        "A = session_row(B)",
        "A = session_row(B)\n"
        "for event, body in zip(events, bodies, strict=True):\n"
        "    self._publish(event.session_id, body)",
        "tests/session/calls/test_network.py"
        "::test_a_rule_that_lets_a_command_out_leaves_nothing_to_ask",
    ),
    Fault(
        "G1 a power failure loses no answer",
        SESSION + "outbox.py",
        "Outbox._write",
        "A = B is not None or not all(map(C, D))",
        "A = not all(map(C, D))",
        "tests/sim/test_guarantees.py"
        "::test_g1_log_first_a_power_failure_loses_nothing_but_the_end_of_a_stream",
    ),
    Fault(
        "G1 a power failure loses no call that has begun",
        SESSION + "outbox.py",
        "_may_be_lost",
        "case ItemDelta() | StepStarted():",
        "case ItemDelta() | StepStarted() | ToolCallUpdated():",
        "tests/sim/test_guarantees.py"
        "::test_g1_log_first_a_power_failure_loses_nothing_but_the_end_of_a_stream",
    ),
    Fault(
        "G1 only one task writes at a time",
        SESSION + "outbox.py",
        "Outbox.commit",
        "if A:",
        "if False:",
        "tests/sim/test_guarantees_of_history.py"
        "::test_g4_b44_what_a_model_is_sent_is_what_the_log_adds_up_to",
    ),
    Fault(
        "G1 `committed` waits until everything that was put before is in the log",
        SESSION + "outbox.py",
        "Outbox._write",
        "self._puts_committed = A",
        "self._puts_committed = self._puts",
        "tests/session/test_cost.py::test_an_interrupted_step_costs_what_was_counted",
    ),
    Fault(
        "G2 a delta is not joined with an earlier delta across other events",
        SESSION + "outbox.py",
        "Outbox.put",
        "A.clear()",
        "pass",
        equivalent="a delta is then joined with an earlier delta of its own item, across events of "
        "other items; the order within an item and the folded state stay the same",
    ),
    Fault(
        "G2 an event that the log refused is not published",
        SESSION + "outbox.py",
        "Outbox._write",
        "A()\nraise",
        "pass",
        "tests/session/test_requests.py"
        "::test_a_log_that_fails_is_said_and_the_answer_can_be_sent_again",
    ),
)

CUT_OFF = (
    Fault(
        "B51 who watches a turn is told that its end can't be stored",
        SESSION + "queries.py",
        "Queries._replay",
        'raise RejectionError("unavailable", A, {"turn_ended": True})',
        "pass",
        "tests/session/test_errors.py"
        "::test_a_turn_is_known_to_have_ended_while_its_end_can_not_be_stored",
    ),
    Fault(
        "B51 a session whose turn was cut off is not shown as busy",
        SESSION + "queries.py",
        "Queries._readable",
        'A.status = "idle"',
        "pass",
        "tests/session/test_errors.py"
        "::test_a_turn_is_known_to_have_ended_while_its_end_can_not_be_stored",
    ),
    Fault(
        "B51 history says why a turn was cut off, even if its end was lost",
        SESSION + "loaded_sessions.py",
        "LoadedSessions._run_session",
        "A.is_working",
        "A.snapshot.turn",
        "tests/session/test_errors.py::test_a_turn_whose_last_events_could_not_be_stored_says_so",
    ),
    Fault(
        "B51 the model is told that the log could not be written",
        TURN + "closing.py",
        "cause_of",
        "A.code == LOG_FAILED",
        "False",
        "tests/session/test_errors.py"
        "::test_the_model_is_told_that_the_log_failed_not_that_the_daemon_stopped",
    ),
)

ENDING = (
    Fault(
        "G7 open requests are resolved when a turn ends",
        TURN + "closing.py",
        "_close_requests_and_items",
        '[RequestResolved(A.id, "cancelled") for A in B]',
        "[]",
        "tests/session/test_requests.py"
        "::test_b40_a_request_whose_turn_is_ending_is_cancelled_before_the_log_says_so",
    ),
    Fault(
        "G7 open items are completed when a turn ends",
        TURN + "closing.py",
        "_close_requests_and_items",
        "A.id in B.open_items",
        "A.id in B.open_items[1:]",
        "tests/sim/test_guarantees.py::test_g7_one_ending_for_each_turn_step_item_and_request",
    ),
    Fault(
        "G7 an open step is ended when a turn ends",
        TURN + "closing.py",
        "closing_bodies",
        "if A.step_open:",
        "if A.step_open and A.step > 1:",
        "tests/sim/test_guarantees.py::test_g7_one_ending_for_each_turn_step_item_and_request",
    ),
    Fault(
        "B24 the model is told of an interrupt",
        TURN + "closing.py",
        "closing_bodies",
        'A.outcome == "interrupted"',
        'A.outcome == "failed"',
        "tests/session/test_turns_in_memory.py"
        "::test_b24_b25_after_an_interrupt_every_call_has_a_result",
    ),
    Fault(
        "G11 after a kill, a running call is marked as lost",
        SESSION + "recovery.py",
        "recovery_of",
        "lost=True",
        "lost=False",
        "tests/session/sub_agents/test_sub_agents.py"
        "::test_g7_after_a_kill_owner_and_sub_agent_are_both_closed_and_the_call_is_lost",
    ),
    Fault(
        "G8 a turn ends only after its tasks are gone",
        SESSION + "turns/active_turn.py",
        "ActiveTurn.interrupt",
        'A = Ending("interrupted", B)',
        'A = Ending("interrupted", B)\nself._close(A)',
        "tests/session/sub_agents/test_sub_agents.py"
        "::test_b29_when_the_owner_is_interrupted_its_sub_agents_and_their_calls_end_too",
    ),
    Fault(
        "G5 a turn has ended only when its end is in the log",
        SESSION + "turns/active_turn.py",
        "ActiveTurn._run",
        "A = self._close(B)\nawait C.committed()",
        "A = self._close(B)",
        "tests/session/test_title.py"
        "::test_b11_no_title_is_asked_for_before_the_end_of_the_first_turn_is_in_the_log",
    ),
)

RECOVERY = (
    Fault(
        "G11 steering of a killed turn goes back to the queue",
        SESSION + "recovery.py",
        "recovery_of",
        "if A.queue:",
        "if not A.queue:",
        "tests/session/test_continuing.py::test_what_a_killed_daemon_left_in_the_queue_is_told",
    ),
    Fault(
        "G11 the session continues with the queue that recovery made",
        SESSION + "recovery.py",
        "recovery_of",
        "A.hand_back()",
        "A = InputQueue(snapshot.queue)\nA.hand_back()",
        "tests/sim/test_guarantees_of_input.py"
        "::test_g10_steering_is_delivered_or_handed_back_and_never_twice",
    ),
    Fault(
        "G11 an unfinished turn is closed before the sockets open",
        SESSION + "outbox.py",
        "session_row",
        "unfinished=A is not None",
        "unfinished=False",
        "tests/session/test_resuming.py"
        "::test_b50_the_time_away_is_no_time_of_a_turn_that_is_closed",
    ),
    Fault(
        "B56 a fork shares what is in the log and no more",
        SESSION + "supervisor.py",
        "Supervisor._fork",
        "A = B.fold_pending()\nC = A.seq\nawait B.committed()",
        "await B.committed()\nA = B.fold_pending()\nC = A.seq",
        "tests/session/test_fork.py::test_a_fork_while_the_log_is_slow_shares_only_what_is_in_it",
    ),
    Fault(
        "G4 nothing is open in a new fork",
        "protocol/tiller_protocol/snapshot.py",
        "fork_base",
        "A(B) if B.id in C.open_items else B",
        "B",
        "tests/session/test_fork.py::test_a_fork_in_the_middle_of_a_call_has_a_valid_history",
    ),
)

RESUMING = (
    Fault(
        "B50 the number of times that a turn is resumed is limited",
        SESSION + "turns/resuming.py",
        "resume",
        "A >= RESUMES_MAX",
        "A > RESUMES_MAX",
        "tests/session/test_resuming.py::test_b50_a_turn_is_resumed_so_often_and_no_more",
    ),
    Fault(
        "B50 the steps that a resumed turn took earlier still count",
        SESSION + "context/freeze.py",
        "freeze_again",
        "steps=A - B, turn_steps=B",
        "turn_steps=B",
        "tests/session/test_resuming.py::test_b50_a_turn_is_resumed_so_often_and_no_more",
    ),
    Fault(
        "B50 a resumed turn keeps its limits",
        TURN + "loop.py",
        "run_turn",
        "A := B.turn_limit(C)",
        "A := B.session_limit()",
        "tests/session/test_resuming.py"
        "::test_b50_a_turn_that_died_in_its_last_step_has_reached_its_limit",
    ),
    Fault(
        "B50 an unfinished turn of a sub-agent is closed, not resumed",
        SESSION + "turns/resuming.py",
        "may_be_resumed",
        "A is None or B.owner_id",
        "A is None",
        "tests/session/test_resuming.py::test_b50_the_turn_of_a_sub_agent_does_not_go_on",
    ),
)

HISTORY = (
    Fault(
        "G4 every call has a result",
        TURN + "history.py",
        "_with_result",
        'A.state in ("completed", "error")',
        'A.state in ("completed", "error", "running", "pending")',
        "tests/turn/test_history.py::test_a_call_without_a_result_gets_one",
    ),
    Fault(
        "G4 a discarded call is not sent",
        TURN + "history.py",
        "_SentItems._add",
        "not A.discarded",
        "A.id",
        "tests/turn/test_history.py::test_nothing_discarded_or_empty_is_sent",
    ),
    Fault(
        "B47 a discarded text is not sent",
        TURN + "history.py",
        "_SentItems._add",
        'A.state != "discarded" and',
        "A.id and",
        "tests/turn/test_history.py::test_nothing_discarded_or_empty_is_sent",
    ),
    Fault(
        "B41 the newest input survives a compaction word for word",
        TURN + "history.py",
        "_SentItems._add",
        "[*(A[B] for B in C.kept), D]",
        "[D]",
        "tests/session/test_compaction.py"
        "::test_b41_a_full_context_is_compacted_before_the_next_turn",
    ),
    Fault(
        "B43 a summary that is too large is not used",
        TURN + "compaction.py",
        "ContextWindow._replace_by_summary",
        "if A > SHRINK_SHARE_MAX * B:",
        "if not A:",
        "tests/session/test_compaction.py"
        "::test_b43_a_bad_summary_falls_back_to_pruning_then_to_a_clear_error",
    ),
    Fault(
        "B43 repeated failures to compact end the turn",
        TURN + "compaction.py",
        "ContextWindow._compact",
        "A += 1",
        "A += 0",
        "tests/session/test_compaction.py"
        "::test_b43_after_two_failed_compactions_a_turn_ends_though_pruning_made_room",
    ),
    Fault(
        "B18 after a compaction the model's continuation comes first",
        TURN + "loop.py",
        "run_turn",
        "not await A.compact_if_full()",
        "not await A.compact_if_full() or True",
        "tests/session/test_compaction.py"
        "::test_b41_b18_in_mid_turn_the_continuation_comes_before_the_steering",
    ),
    Fault(
        "B44 a reloaded session sends the same bytes",
        TURN + "compaction.py",
        "_apply_pruning",
        "HistoryCompacted(A, B, pruned=C)",
        "HistoryCompacted(A, B)",
        "tests/session/test_compaction.py"
        "::test_b44_old_output_is_pruned_and_a_reloaded_session_sends_the_same",
    ),
)

REQUESTS = (
    Fault(
        "B37 a rejection without a reason also rejects the turn's other open requests",
        SESSION + "requests.py",
        "OpenRequests.answer",
        'A(B, Reply("reject", "", C))',
        "pass",
        "tests/session/test_turns_in_memory.py"
        "::test_b37_reject_without_a_reason_ends_the_turn_blocked",
    ),
    Fault(
        "B36 `always` also resolves the other requests that it allows",
        SESSION + "requests.py",
        "OpenRequests.reconsider",
        'A(B, Reply("always"))',
        "pass",
        "tests/session/test_turns_in_memory.py"
        "::test_b36_always_resolves_other_requests_that_now_match",
    ),
    Fault(
        "B40 the first answer wins",
        SESSION + "requests.py",
        "OpenRequests.answer",
        "A.answered.is_set()",
        "not A.turn_id",
        "tests/session/test_requests.py::test_b40_an_answer_right_behind_a_withdrawal_is_too_late",
    ),
)

FAULTS = OUTBOX + CUT_OFF + ENDING + RECOVERY + RESUMING + HISTORY + REQUESTS
