"""Faults of sub-agents: in the background, with declared paths, and for tasks of the user."""

from fault import SESSION, TURN, Fault

SUB_AGENTS = SESSION + "sub_agents/"

BACKGROUND = (
    Fault(
        "G7 the end in the background and its report are one commit",
        SUB_AGENTS + "background_tasks.py",
        "BackgroundTasks._wait",
        "await A.deliver(B)",
        "self.record_end(task)\nawait self._outbox.committed()\nawait A.deliver(B)",
    ),
    Fault(
        "G7 a report that comes while a turn runs steers it",
        SESSION + "delivering.py",
        "deliver_end",
        'A.queue.put(structs.replace(B, delivery="steer"))',
        "pass",
    ),
    Fault(
        "G7 a report starts a turn only if its end is recorded as well",
        SESSION + "delivering.py",
        "deliver_end",
        "A.tasks.record_end(B)",
        "pass",
    ),
    Fault(
        "G7 a sub-agent that was ended is told of",
        SESSION + "delivering.py",
        "deliver_end",
        "A.put(B, *end_notice(C, D))",
        "pass",
    ),
    Fault(
        "G7 the model is told of what was lost with the daemon",
        SESSION + "recovery.py",
        "recovery_of",
        "A += lost_notices(B, C)",
        "pass",
    ),
    Fault(
        "B29 an interrupt of the turn leaves the background alone",
        SESSION + "active_turn.py",
        "ActiveTurn.interrupt",
        "A._scope.cancel()",
        "A._scope.cancel()\nA._session.tasks.cancel_all()",
    ),
    Fault(
        "G8 what works in the background is listed before it begins",
        SUB_AGENTS + "background_tasks.py",
        "BackgroundTasks.begin",
        "A.record(B)",
        "pass",
    ),
    Fault(
        "B29 a session pays for its background once",
        "protocol/tiller_protocol/fold.py",
        "_change_background",
        "A.get(B.id)",
        "None",
    ),
)

TASKS_OF_USER = (
    Fault(
        "B16 new input skips no task of the user",
        TURN + "user_tasks.py",
        "run_tasks",
        "skips=False",
        "skips=True",
    ),
    Fault(
        "G10 input and its tasks are one commit",
        TURN + "loop.py",
        "_add_inputs",
        "*map(ItemStarted, A)",
        "",
    ),
)

DECLARED = (
    Fault(
        "G9 tasks whose paths overlap work one after another",
        TURN + "dispatch.py",
        "_fit",
        "not A.overlaps(B)",
        "True",
    ),
    Fault(
        "G9 tasks whose paths do not overlap work at the same time",
        TURN + "dispatch.py",
        "_fit",
        "not A.overlaps(B)",
        "False",
    ),
    Fault(
        "G9 a sub-agent changes only what its task declares",
        SESSION + "calls/write_limits.py",
        "WriteLimits._refusal_of_path",
        "A is not None and not B.covers(C)",
        "False",
    ),
    Fault(
        "G9 a sub-agent gives away only what it may change itself",
        SESSION + "calls/write_limits.py",
        "WriteLimits._refusal_of_task",
        "A is not None and not B.covers_all(C)",
        "False",
    ),
    Fault(
        "G9 sub-agents below one with paths have its limits",
        SUB_AGENTS + "delegation.py",
        "Delegation._inherited",
        "A or B.scope",
        "A",
    ),
    Fault(
        "G9 what a background sub-agent may change is its own while it works",
        SUB_AGENTS + "background_tasks.py",
        "BackgroundTasks.begin",
        "if A:",
        "if False:",
    ),
    Fault(
        "G9 sub-agents of the session have its claims to respect, too",
        SUB_AGENTS + "sub_agent_run.py",
        "SubAgentRun.claims",
        "return A.claims",
        "return Claims()",
    ),
    Fault(
        "B55 a patch has only the files of its own turn",
        SESSION + "turn_changes.py",
        "own_changes",
        "if A(B(C.path))",
        "",
    ),
    Fault(
        "B55 no call of a step begins before the step's first snapshot is complete",
        SESSION + "turn_changes.py",
        "TurnChanges.before",
        "async with A:",
        "if True:",
    ),
)

FAULTS = BACKGROUND + TASKS_OF_USER + DECLARED
