"""Faults of sub-agents in the background, and of tasks that the user gives."""

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

FAULTS = BACKGROUND + TASKS_OF_USER
