"""Faults of what is kept: the outbox, endings, recovery, history, requests."""

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
    ),
    Fault(
        "G1 committed means all that was put before",
        SESSION + "outbox.py",
        "Outbox._write",
        "self._puts_committed = A",
        "self._puts_committed = self._puts",
    ),
    Fault(
        "G2 pieces are joined only with what they follow",
        SESSION + "outbox.py",
        "Outbox.put",
        "A.clear()",
        "pass",
        equivalent="a piece is then joined with an earlier one of its own item, across events of "
        "other items; the order within an item, and what all events add up to, stay the same",
    ),
    Fault(
        "G2 an event that the log refused is not published",
        SESSION + "outbox.py",
        "Outbox._write",
        "A()\nraise",
        "pass",
    ),
)

ENDING = (
    Fault(
        "G7 open requests are resolved when a turn ends",
        TURN + "closing.py",
        "_close_requests_and_items",
        '[RequestResolved(A.id, "cancelled") for A in B]',
        "[]",
    ),
    Fault(
        "G7 open items are completed when a turn ends",
        TURN + "closing.py",
        "_close_requests_and_items",
        "A.id in B.open_items",
        "A.id in B.open_items[1:]",
    ),
    Fault(
        "G7 an open step is ended when a turn ends",
        TURN + "closing.py",
        "closing_bodies",
        "if A.step_open:",
        "if A.step_open and A.step > 1:",
    ),
    Fault(
        "B24 the model is told of an interrupt",
        TURN + "closing.py",
        "closing_bodies",
        'A.outcome == "interrupted"',
        'A.outcome == "failed"',
    ),
    Fault(
        "G11 after a kill what became of a running call is not known",
        SESSION + "recovery.py",
        "recovery_of",
        "lost=True",
        "lost=False",
    ),
    Fault(
        "G8 a turn is ended when its tasks are gone",
        SESSION + "active_turn.py",
        "ActiveTurn.interrupt",
        'A = Ending("interrupted", B)',
        'A = Ending("interrupted", B)\nself._close(A)',
    ),
    Fault(
        "G5 a turn has ended when that is in the log",
        SESSION + "active_turn.py",
        "ActiveTurn._run",
        "A = self._close(B)\nawait C.committed()",
        "A = self._close(B)",
    ),
)

RECOVERY = (
    Fault(
        "G11 steering of a killed turn goes back to the queue",
        SESSION + "recovery.py",
        "recovery_of",
        "if A.queue:",
        "if not A.queue:",
    ),
    Fault(
        "G11 the session works on with the queue that recovery made",
        SESSION + "actor.py",
        "Session._recover",
        "A.restore(B.fold_pending().queue)",
        "pass",
    ),
    Fault(
        "G11 an unfinished turn is closed before the sockets open",
        SESSION + "outbox.py",
        "session_row",
        "unfinished=A is not None",
        "unfinished=False",
    ),
    Fault(
        "B56 a fork shares what is in the log and no more",
        SESSION + "supervisor.py",
        "Supervisor._fork",
        "A = B.fold_pending().seq\nawait B.committed()",
        "await B.committed()\nA = B.fold_pending().seq",
    ),
    Fault(
        "G4 a fork holds nothing open",
        "protocol/tiller_protocol/snapshot.py",
        "fork_base",
        "A(B) if B.id in C.open_items else B",
        "B",
    ),
)

RESUMING = (
    Fault(
        "B50 a turn is not resumed for ever",
        SESSION + "resuming.py",
        "resume",
        "A >= RESUMES_MAX",
        "A > RESUMES_MAX",
    ),
    Fault(
        "B50 what a resumed turn has taken counts",
        SESSION + "freeze.py",
        "freeze_again",
        "steps=A - B, turn_steps=B",
        "turn_steps=B",
    ),
    Fault(
        "B50 the limits of a resumed turn hold",
        TURN + "loop.py",
        "run_turn",
        "A := B.turn_limit(C)",
        "A := B.session_limit()",
    ),
    Fault(
        "B50 the turn of a sub-agent is closed",
        SESSION + "resuming.py",
        "may_be_resumed",
        "A is None or B.owner_id",
        "A is None",
    ),
)

HISTORY = (
    Fault(
        "G4 every call has a result",
        TURN + "history.py",
        "_with_result",
        'A.state in ("completed", "error")',
        'A.state in ("completed", "error", "running", "pending")',
    ),
    Fault(
        "G4 a discarded call is not sent",
        TURN + "history.py",
        "_SentItems._add",
        "not A.discarded",
        "A.id",
    ),
    Fault(
        "B47 a discarded text is not sent",
        TURN + "history.py",
        "_SentItems._add",
        'A.state != "discarded" and',
        "A.id and",
    ),
    Fault(
        "B41 the newest input survives a compaction word for word",
        TURN + "history.py",
        "_SentItems._add",
        "[*(A[B] for B in C.kept), D]",
        "[D]",
    ),
    Fault(
        "B43 a summary that is too large does not count",
        TURN + "compaction.py",
        "ContextWindow._replace_by_summary",
        "if A > SHRINK_SHARE_MAX * B:",
        "if not A:",
    ),
    Fault(
        "B43 compactions that fail end the turn",
        TURN + "compaction.py",
        "ContextWindow._compact",
        "A += 1",
        "A += 0",
    ),
    Fault(
        "B18 after a compaction the model's continuation comes first",
        TURN + "loop.py",
        "run_turn",
        "not await A.compact_if_full()",
        "not await A.compact_if_full() or True",
    ),
    Fault(
        "B44 a reloaded session sends the same bytes",
        TURN + "compaction.py",
        "_apply_pruning",
        "HistoryCompacted(A, B, pruned=C)",
        "HistoryCompacted(A, B)",
    ),
)

REQUESTS = (
    Fault(
        "B37 a no rejects what else is open",
        SESSION + "requests.py",
        "OpenRequests.answer",
        'A(Reply("reject", "", B))',
        "pass",
    ),
    Fault(
        "B36 always resolves what it allows",
        SESSION + "requests.py",
        "OpenRequests.reconsider",
        'A(B, Reply("always"))',
        "pass",
    ),
    Fault(
        "B40 the first answer wins",
        SESSION + "requests.py",
        "OpenRequests.answer",
        "A.answered.is_set()",
        "not A.turn_id",
    ),
)

FAULTS = OUTBOX + ENDING + RECOVERY + RESUMING + HISTORY + REQUESTS
