"""Faults of what goes in: the loop, its calls, the queue, submissions."""

from fault import SESSION, TURN, Fault

LOOP = (
    Fault(
        "G10 input is in the queue or in history: one commit",
        TURN + "loop.py",
        "_add_inputs",
        "await A.emit(*B)",
        "await A.emit(B[0])\nawait A.committed()\nawait A.emit(*B[1:])",
    ),
    Fault(
        "G10 steering comes before the next request",
        TURN + "loop.py",
        "run_turn",
        "await _take_steering(A, B)",
        "pass",
    ),
    Fault(
        "G10 the turn decides with the mailbox closed or not at all",
        TURN + "loop.py",
        "_take_follow_ups",
        "A.mailbox.close()",
        "await A.committed()\nA.mailbox.close()",
    ),
    Fault(
        "G10 steering that comes as the turn would rest is steering",
        TURN + "loop.py",
        "run_turn",
        "A.calls or B.has_steering",
        "A.calls",
    ),
    Fault(
        "B20 follow-ups one at a time",
        TURN + "loop.py",
        "_take_follow_ups",
        "A.take_follow_ups(B)",
        'A.take_follow_ups("all")',
    ),
    Fault(
        "B8 the last step gets no tools",
        TURN + "loop.py",
        "_begin_step",
        "tools=() if A else B",
        "tools=B",
    ),
    Fault(
        "G6 the limit of the turn's own context counts",
        TURN + "loop.py",
        "_BudgetTracker._out_of_steps",
        "A >= B.max_steps",
        "A > B.max_steps",
    ),
    Fault(
        "G4 the request after an overflow is built anew",
        TURN + "loop.py",
        "_take_step",
        "items=A.for_request(), attempt",
        "attempt",
    ),
)

CALLS = (
    Fault(
        "G9 a call that writes runs alone",
        TURN + "dispatch.py",
        "CallDispatcher._next_group",
        'A.effect == "write"',
        "not A.effect",
    ),
    Fault(
        "G9 a call that writes waits for those that began early",
        TURN + "dispatch.py",
        "CallDispatcher._next_group",
        "if A and (B or C):",
        "if A and B:",
    ),
    Fault(
        "G9 nothing begins early behind a call that writes",
        TURN + "dispatch.py",
        "CallDispatcher.offer",
        'A = B.effect == "write"',
        "A = False",
    ),
    Fault(
        "B16 calls that have not begun are skipped when the user steers",
        TURN + "dispatch.py",
        "CallDispatcher.run",
        "A or (B and C.user_steers)",
        "A",
    ),
    Fault(
        "G4 a result is in history",
        TURN + "dispatch.py",
        "CallDispatcher._complete",
        "A.replace(B)",
        "pass",
    ),
    Fault(
        "G11 a call that writes is in the log before it begins",
        TURN + "call.py",
        "run_call",
        'if A.effect == "write":\n    await B.committed()',
        'if A.effect == "write":\n    pass',
    ),
    Fault(
        "B33 a stream that failed leaves no call behind",
        TURN + "dispatch.py",
        "CallDispatcher.drop",
        "A.scope.cancel()",
        "pass",
    ),
    Fault(
        "B7 a response that was cut off runs nothing",
        TURN + "step.py",
        "_take_step",
        'A.finish_reason == "length"',
        'A.finish_reason == "content_filter"',
    ),
    Fault(
        "G7 what a failed attempt began is completed",
        TURN + "assembly.py",
        "_discarded",
        'return (A(B(C, state="discarded")),)',
        "return ()",
    ),
)

QUEUE = (
    Fault(
        "G10 steering is delivered once",
        SESSION + "input_queue.py",
        "InputQueue.take_steering",
        '[A for A in B if A.delivery != "steer"]',
        "list(B)",
    ),
    Fault(
        "G10 follow-ups come in order",
        SESSION + "input_queue.py",
        "InputQueue.take_follow_ups",
        "A, B = tuple(B[:C]), B[C:]",
        "A, B = tuple(B[-C:]), B[:-C]",
    ),
    Fault(
        "G10 steering that was not taken is handed back",
        SESSION + "input_queue.py",
        "InputQueue.hand_back",
        '[A(B, delivery="queue") for B in C]',
        "list(C)",
    ),
    Fault(
        "B21 what is promoted is next",
        SESSION + "input_queue.py",
        "InputQueue.promote",
        "A.insert(0, B(C, delivery=D))",
        "A.append(B(C, delivery=D))",
    ),
    Fault(
        "G12 the queue is bounded",
        SESSION + "input_queue.py",
        "InputQueue.is_full",
        "return len(A) >= B",
        "return False",
    ),
    Fault(
        "B14 a wrong expected_turn_id changes nothing",
        SESSION + "handlers.py",
        "_take_input",
        "A.expected_turn_id not in (None, B)",
        "A.expected_turn_id is A",
    ),
    Fault(
        "B13 steering for no turn is handed back",
        SESSION + "handlers.py",
        "_input_while_idle",
        'A.delivery == "steer" or A.expected_turn_id is not None',
        "A.expected_turn_id is not None",
    ),
    Fault(
        "G10 at rest what was queued first comes first",
        SESSION + "handlers.py",
        "_input_while_idle",
        'A = B.take_follow_ups("one_at_a_time")[0]',
        "B.remove(len(B.queue) - 1)",
    ),
    Fault(
        "B27 an interrupt for another turn changes nothing",
        SESSION + "handlers.py",
        "_interrupt",
        "A.turn_id not in (None, B)",
        "A.turn_id is A",
    ),
    Fault(
        "B21 an interrupt keeps the queue and says so",
        SESSION + "active_turn.py",
        "ActiveTurn._close",
        'A.hand_back() or (A.queue and B == "interrupted")',
        'A.hand_back() and (A.queue and B == "interrupted")',
    ),
)

SUBMISSIONS = (
    Fault(
        "G3 what is accepted is in the log",
        SESSION + "actor.py",
        "Session._accept",
        "A.put(submission=B)\nawait A.commit(partial(C, D, E))",
        "A.put(submission=B)\nC(D, E)\nawait A.commit(lambda: None)",
    ),
    Fault(
        "G3 a submission is answered after its commit",
        SESSION + "outbox.py",
        "Outbox._write",
        "A = session_row(B)",
        "A = session_row(B)\nif stored:\n    stored()",
    ),
    Fault(
        "G3 the answer is stored with its events",
        SESSION + "outbox.py",
        "Outbox._write",
        "Batch(A, B, C, tuple(D(E)), F)",
        "Batch(A, B, None, tuple(D(E)), F)",
    ),
    Fault(
        "G3 an answered submission is not done again",
        SESSION + "supervisor.py",
        "Supervisor._once",
        "if A := await B(C):",
        "if (A := await B(C)) and not A:",
    ),
    Fault(
        "G3 one submission twice at once is one",
        SESSION + "supervisor.py",
        "Supervisor._once",
        "(A := B.get(C)) is not None",
        "(A := B.get(str(type(C)))) is not None",
    ),
    Fault(
        "G3 after a restart old ids are looked up",
        SESSION + "supervisor.py",
        "Supervisor.run",
        "await A.highest_submission()",
        '""',
    ),
    Fault(
        "G3 an id is not used for two ops",
        SESSION + "supervisor.py",
        "_same_answer",
        "A.digest != B",
        'A.digest == b""',
    ),
    Fault(
        "G5 input that comes while a turn ends waits for its end",
        SESSION + "actor.py",
        "Session._must_defer",
        'return A.steerable or B.delivery != "steer"',
        "return False",
    ),
    Fault(
        "G5 input that waited for the end of a turn is not forgotten",
        SESSION + "actor.py",
        "Session._run_turn",
        "A.send_nowait(B)",
        "pass",
    ),
)

FAULTS = LOOP + CALLS + QUEUE + SUBMISSIONS
