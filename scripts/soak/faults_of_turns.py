"""Faults of a turn's loop: responses that are no answer, calls of the provider, loops, retries."""

from fault import SESSION, TURN, Fault

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
        "protocol/tiller_protocol/fold.py",
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
        '"completed" if A else "discarded"',
        '"completed"',
    ),
)

HOSTED = (
    Fault(
        "G4 calls of the provider are not sent as calls of ours",
        TURN + "history.py",
        "_SentItems._add",
        "ToolCall(by_provider=True)",
        "ToolCall(by_provider=None)",
    ),
    Fault(
        "G9 calls of the provider do not run here",
        TURN + "assembly.py",
        "Response.calls",
        "if not A.by_provider",
        "",
    ),
    Fault(
        "G7 a call of the provider ends with the attempt that failed",
        TURN + "assembly.py",
        "_ResponseAssembly.discard",
        "A += self._hosted.discard()",
        "self._hosted.discard()",
    ),
    Fault(
        "G7 a call of the provider ends with its response",
        TURN + "hosted_calls.py",
        "HostedCalls.end",
        "await self._complete(structs.replace(self._calls[A], output=NO_RESULT))",
        "pass",
    ),
    Fault(
        "G4 the result of a call of the provider is shown",
        TURN + "hosted_calls.py",
        "HostedCalls._update",
        "A(B, output=C, images=D)",
        "B",
    ),
    Fault(
        "G10 steering does not come between the parts of one answer",
        TURN + "loop.py",
        "run_turn",
        "not await A.compact_if_full() and not B",
        "not await A.compact_if_full()",
    ),
    Fault(
        "G10 no follow-up comes between the parts of one answer",
        TURN + "loop.py",
        "run_turn",
        "A.calls or B or C.has_steering",
        "A.calls or C.has_steering",
    ),
)

LOOPS = (
    Fault(
        "B9 always is about one call only",
        TURN + "decide.py",
        "repetition_subject",
        'f"{call.name} {arguments}"',
        "call.name",
    ),
    Fault(
        "B9 a loop about which nobody is asked is told from a no",
        SESSION + "calls/toolbox.py",
        "Toolbox.permit_repetition",
        'A.action == "deny"',
        "False",
    ),
)

RETRIES = (
    Fault(
        "B46 a delay that is too long ends the request",
        TURN + "retry.py",
        "_Attempts.after",
        "(A.retry_after_s or 0.0) <= B.retry_after_s",
        "True",
    ),
    Fault(
        "B46 the delays of a request have a limit together",
        TURN + "retry.py",
        "_Attempts.after",
        "self.waited_s += A",
        "pass",
    ),
    Fault(
        "B46 whoever can't wait is told when to come back",
        TURN + "retry.py",
        "stream_with_retry",
        "_with_time_to_return(A, B, C.waited_s, D())",
        "A",
    ),
    Fault(
        "B48 attempts are counted although connections are refused",
        TURN + "retry.py",
        "_Attempts.after",
        "self._failures + self._refused + 1",
        "self._failures + 1",
    ),
    Fault(
        "B46 retries of a compaction are shown",
        TURN + "compaction.py",
        "_summarise",
        "await A.emit(retry_status(B))",
        "pass",
    ),
    Fault(
        "B46 a compaction has time to wait",
        TURN + "compaction.py",
        "_summarise",
        "A.deadline += B.delay_s",
        "pass",
    ),
)

FAULTS = UNFINISHED + HOSTED + LOOPS + RETRIES
