"""Faults of a turn's loop: what it does after a response that is no answer."""

from fault import TURN, Fault

UNFINISHED = (
    Fault(
        "B7 an answer is continued twice at most",
        TURN + "unfinished.py",
        "judge",
        "A(B, CUT_OFF) >= CONTINUATIONS_MAX",
        "False",
    ),
    Fault(
        "B7 the parts of an answer are one message for the frontend",
        "protocol/tiller_protocol/snapshot.py",
        "_record_last_message",
        'A.turn.last_message if is_continued(B, C) else ""',
        '""',
    ),
    Fault(
        "B7 the parts of an answer are one message for the model",
        TURN + "history.py",
        "_SentItems._add_message",
        "isinstance(A, AssistantMessage)",
        "False",
    ),
    Fault(
        "B4 an empty response is no answer",
        TURN + "unfinished.py",
        "judge",
        "if A.is_empty:",
        "if False:",
    ),
    Fault(
        "B4 only one empty response is passed over",
        TURN + "unfinished.py",
        "_times_asked",
        "times += A.code == B",
        "pass",
    ),
    Fault(
        "B4 reasoning that leads to nothing is not sent",
        TURN + "assembly.py",
        "_ResponseAssembly.complete",
        '"completed" if any(map(_is_said, A)) else "discarded"',
        '"completed"',
    ),
)

FAULTS = UNFINISHED
