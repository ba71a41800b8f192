"""Faults in a turn's loop: what responses contain, calls to the provider, loops, retries."""

from fault import SESSION, TURN, Fault

UNFINISHED = (
    Fault(
        "B7 an answer is continued twice at most",
        TURN + "unfinished.py",
        "judge",
        "A(B, CUT_OFF) >= CONTINUATIONS_MAX",
        "False",
        "tests/session/test_unfinished.py"
        "::test_b7_an_answer_that_is_cut_off_a_third_time_ends_the_turn_and_says_so",
    ),
    Fault(
        "B7 the parts of an answer are one message for the frontend",
        "protocol/tiller_protocol/fold.py",
        "_record_last_message",
        'A.turn.last_message if is_continued(B, C) else ""',
        '""',
        "tests/session/test_unfinished.py"
        "::test_b7_a_cut_off_answer_is_continued_twice_and_is_one_message_in_history",
    ),
    Fault(
        "B7 the parts of an answer are one message for the model",
        TURN + "history.py",
        "_SentItems._add_message",
        "isinstance(A, AssistantMessage)",
        "False",
        "tests/turn/test_history.py::test_a_message_and_the_rest_of_it_are_sent_as_one",
    ),
    Fault(
        "B4 an empty response does not count as an answer",
        TURN + "unfinished.py",
        "judge",
        "if A.is_empty:",
        "if False:",
        "tests/session/test_unfinished.py::test_b4_an_empty_response_is_asked_about_once_more",
    ),
    Fault(
        "B4 after an empty response, the model is asked only once more",
        TURN + "unfinished.py",
        "_times_asked",
        "times += A.code == B",
        "pass",
        "tests/session/test_unfinished.py::test_b4_a_second_empty_response_fails_the_turn",
    ),
    Fault(
        "B4 reasoning is not sent back if its response has neither text nor a call",
        TURN + "assembly.py",
        "_ResponseAssembly.complete",
        '"completed" if A else "discarded"',
        '"completed"',
        "tests/session/test_unfinished.py"
        "::test_b7_thinking_up_to_the_limit_is_not_sent_back_and_the_model_shall_answer",
    ),
)

HOSTED = (
    Fault(
        "G4 hosted calls are not sent back as the daemon's own calls",
        TURN + "history.py",
        "_SentItems._add",
        "ToolCall(by_provider=True)",
        "ToolCall(by_provider=None)",
        "tests/sim/test_guarantees_of_history.py"
        "::test_calls_of_the_provider_are_shown_to_their_end_and_neither_run_nor_sent_as_calls",
    ),
    Fault(
        "G9 the daemon does not run hosted calls",
        TURN + "assembly.py",
        "Response.calls",
        "if not A.by_provider",
        "",
        "tests/session/test_hosted_tools.py::test_a_hosted_call_is_shown_kept_and_not_run",
    ),
    Fault(
        "G7 a hosted call ends with the attempt that failed",
        TURN + "assembly.py",
        "_ResponseAssembly.discard",
        "A += self._hosted.discard()",
        "self._hosted.discard()",
        "tests/session/test_hosted_tools.py"
        "::test_a_call_of_a_failed_attempt_is_discarded_unless_it_has_a_result",
    ),
    Fault(
        "G7 a hosted call ends with its response",
        TURN + "hosted_calls.py",
        "HostedCalls.end",
        "await self._complete(structs.replace(self._calls[A], output=NO_RESULT))",
        "pass",
        "tests/session/test_hosted_tools.py"
        "::test_a_paused_response_is_continued_before_any_steering",
    ),
    Fault(
        "G4 the result of a hosted call is shown",
        TURN + "hosted_calls.py",
        "HostedCalls._update",
        "A(B, output=C, images=D)",
        "B",
        "tests/session/test_hosted_tools.py::test_a_hosted_call_is_shown_kept_and_not_run",
    ),
    Fault(
        "G10 steering does not come between the parts of one answer",
        TURN + "loop.py",
        "run_turn",
        "not await A.compact_if_full() and not B",
        "not await A.compact_if_full()",
        "tests/sim/test_guarantees_of_input.py"
        "::test_g10_steering_is_delivered_or_handed_back_and_never_twice",
    ),
    Fault(
        "G10 no follow-up comes between the parts of one answer",
        TURN + "loop.py",
        "run_turn",
        "A.calls or B or C.has_steering",
        "A.calls or C.has_steering",
        "tests/sim/test_guarantees_of_input.py"
        "::test_g10_steering_is_delivered_or_handed_back_and_never_twice",
    ),
)

LOOPS = (
    Fault(
        "B9 `always` covers only the same tool with the same arguments",
        TURN + "decisions.py",
        "repetition_subject",
        'f"{call.name} {arguments}"',
        "call.name",
        "tests/session/test_doom_loop.py::test_b9_always_is_about_that_tool_with_these_arguments",
    ),
    Fault(
        "B9 if nobody can be asked about a repeated call, the turn ends and says why",
        SESSION + "calls/toolbox.py",
        "Toolbox.permit_repetition",
        'A.action == "deny"',
        "False",
        "tests/session/test_doom_loop.py"
        "::test_b9_where_nobody_is_asked_the_ending_says_what_happened",
    ),
)

RETRIES = (
    Fault(
        "B46 if the provider asks for too long a delay, there is no retry",
        TURN + "retry.py",
        "_Attempts.after",
        "(A.retry_after_s or 0.0) <= B.retry_after_s",
        "True",
        "tests/turn/test_retry.py"
        "::test_a_longer_delay_ends_it_and_the_error_says_when_to_come_back",
    ),
    Fault(
        "B46 the total delay of a request is limited",
        TURN + "retry.py",
        "_Attempts.after",
        "self.waited_s += A",
        "pass",
        "tests/turn/test_retry.py::test_the_limits_are_configuration",
    ),
    Fault(
        "B46 if the delay is too long, the error says when to come back",
        TURN + "retry.py",
        "RetriedModel.stream",
        "_with_time_to_return(A, B, C.waited_s, D())",
        "A",
        "tests/turn/test_retry.py"
        "::test_a_longer_delay_ends_it_and_the_error_says_when_to_come_back",
    ),
    Fault(
        "B48 refused connections are included in the number of an attempt",
        TURN + "retry.py",
        "_Attempts.after",
        "self._failures + self._refused + 1",
        "self._failures + 1",
        "tests/turn/test_retry.py::test_a_refused_connection_waits_without_using_the_budget",
    ),
    Fault(
        "B46 retries of a compaction are shown",
        TURN + "compaction.py",
        "ContextWindow._summarise",
        "await A.emit(retry_status(B))",
        "pass",
        "tests/session/test_compaction.py"
        "::test_b46_retries_of_a_compaction_are_status_events_like_any_other",
    ),
    Fault(
        "B46 a wait before a retry extends the deadline of a compaction",
        TURN + "compaction.py",
        "ContextWindow._summarise",
        "A.deadline += B.delay_s",
        "pass",
        "tests/session/test_compaction.py"
        "::test_b46_retries_of_a_compaction_are_status_events_like_any_other",
    ),
)

RESPONSES = (
    Fault(
        "B10 no regular expression of an output schema is evaluated",
        TURN + "output_schema.py",
        "_with_few_references",
        '{**fewer, "pattern": A}',
        "fewer",
        "tests/turn/test_output_schema.py::test_no_regular_expression_of_the_user_is_tried",
    ),
    Fault(
        "B10 no valid message is refused because a regular expression is not evaluated",
        TURN + "output_schema.py",
        "value_problem",
        "A(schema) and any(True for B in C(schema, D))",
        "False",
        "tests/turn/test_output_schema.py"
        "::test_no_valid_value_is_refused_because_a_regular_expression_is_not_tried",
    ),
    Fault(
        "B10 no regular expression of an output schema is compiled",
        TURN + "output_schema.py",
        "schema_problem",
        "A(A.META_SCHEMA)",
        "A(A.META_SCHEMA, format_checker=A.FORMAT_CHECKER)",
        "tests/turn/test_output_schema.py::test_no_regular_expression_is_even_compiled",
    ),
    Fault(
        "a token count that no response can have is unknown",
        "daemon/tiller_daemon/models/base.py",
        "UsageReported.__post_init__",
        "0 <= A <= TOKENS_MAX",
        "True",
        "tests/session/test_implausible_usage.py"
        "::test_a_turn_survives_any_counts_and_its_totals_stay_in_range",
    ),
)

FAULTS = UNFINISHED + HOSTED + LOOPS + RETRIES + RESPONSES
