"""Faults in hooks: skipped moments, answers that do not count, arguments that nobody judges."""

from fault import SESSION, TURN, Fault

RUNNER = "daemon/tiller_daemon/hooks/runner.py"

MOMENTS = (
    Fault(
        "hooks run at the start of a turn",
        TURN + "loop.py",
        "run_turn",
        "A := await _ask_hooks(B, C)",
        'A := ""',
        "tests/e2e/test_hooks.py::test_the_start_of_a_turn_can_be_denied_and_added_to",
    ),
    Fault(
        "text that hooks add at the start of a turn does not keep a user's task from running",
        TURN + "loop.py",
        "run_turn",
        "run_tasks(tasks, A, B)",
        "run_tasks(given_tasks(A.items), A, B)",
        "tests/e2e/test_hooks.py"
        "::test_what_a_hook_adds_keeps_no_sub_agent_from_the_task_that_the_user_gave_it",
    ),
    Fault(
        "B50 the hooks for the start of a turn do not run again when a turn is resumed",
        TURN + "loop.py",
        "run_turn",
        "not A and (B := await _ask_hooks(C, D))",
        "(B := await _ask_hooks(C, D))",
        "tests/e2e/test_resume.py::test_b50_a_turn_that_goes_on_does_not_start_again_for_hooks",
    ),
    Fault(
        "hooks run at the start of a session",
        SESSION + "hooks.py",
        "TurnHooks.turn_started",
        "A.denied or B.before.steps",
        "True",
        "tests/e2e/test_hook_moments.py::test_the_start_of_a_session_adds_to_its_first_turn_alone",
    ),
    Fault(
        "the hooks for the start of a session run only once",
        SESSION + "hooks.py",
        "TurnHooks.turn_started",
        "A.denied or B.before.steps",
        "A.denied",
        "tests/e2e/test_hook_moments.py::test_the_start_of_a_session_adds_to_its_first_turn_alone",
    ),
    Fault(
        "hooks run before a call",
        SESSION + "calls/tool_call.py",
        "PreparedToolCall.permit",
        "A = await B.before(self.call)",
        "A = type(await B.before(self.call))()",
        "tests/e2e/test_hooks.py::test_a_hook_says_no_and_the_model_is_told_who_and_why",
    ),
    Fault(
        "hooks run after a call",
        SESSION + "hooks.py",
        "TurnHooks.after",
        "call.by_user or not hooks",
        "True",
        "tests/e2e/test_hooks.py::test_a_hook_adds_what_the_model_is_told",
    ),
    Fault(
        "hooks run after a call that failed",
        SESSION + "calls/tool_call.py",
        "PreparedToolCall.run",
        "A = await B.after(self.call, str(C), failed=True)",
        'A = ""',
        "tests/e2e/test_hooks.py::test_a_hook_hears_of_a_call_that_failed",
    ),
    Fault(
        "hooks run when nothing is left to do",
        TURN + "loop.py",
        "run_turn",
        "not A.limit and await _must_go_on(B, C, D)",
        "False",
        "tests/e2e/test_hook_moments.py::test_a_hook_makes_the_turn_go_on_and_the_model_hears_why",
    ),
    Fault(
        "hooks run before a compaction",
        TURN + "compaction.py",
        "ContextWindow._replace_by_summary",
        "await A.before_compaction(B)",
        '""',
        "tests/e2e/test_hook_moments.py::test_hooks_add_to_a_compaction_and_after_it",
    ),
    Fault(
        "hooks run after a compaction",
        TURN + "compaction.py",
        "ContextWindow._replace_by_summary",
        "await A.after_compaction(B, C)",
        '""',
        "tests/e2e/test_hook_moments.py::test_hooks_add_to_a_compaction_and_after_it",
    ),
    Fault(
        "hooks run when a request is opened",
        SESSION + "turns/active_turn.py",
        "ActiveTurn._ask",
        "self._hooks().request_opened(request)",
        "pass",
        "tests/e2e/test_hooks.py"
        "::test_a_request_of_a_sub_agent_is_notified_once_though_two_sessions_show_it",
    ),
    Fault(
        "hooks run at the end of a turn",
        SESSION + "turns/active_turn.py",
        "ActiveTurn.run",
        "self._hooks().turn_ended(A)",
        "pass",
        "tests/e2e/test_hooks.py"
        "::test_a_request_of_a_sub_agent_is_notified_once_though_two_sessions_show_it",
    ),
    Fault(
        "hooks run at the end of a sub-agent",
        SESSION + "turns/active_turn.py",
        "ActiveTurn.run",
        "self._hooks().sub_agent_ended(A, B)",
        "pass",
        "tests/e2e/test_hook_moments.py::test_the_end_of_a_sub_agent_is_notified_with_its_owner",
    ),
    Fault(
        "hooks run at the end of a session",
        SESSION + "session_end.py",
        "notify_session_end",
        'hook.on == "session_end"',
        "False",
        "tests/e2e/test_hook_moments.py::test_the_end_of_a_session_is_notified_once",
    ),
)

GOING_ON = (
    Fault(
        "G12 hooks can't make a turn continue forever",
        SESSION + "hooks.py",
        "TurnHooks.turn_done",
        "self._continued >= CONTINUED_MAX",
        "False",
        "tests/e2e/test_hook_moments.py::test_g12_hooks_can_not_make_a_turn_go_on_for_ever",
    ),
    Fault(
        "a hook is told how often hooks have made the turn continue",
        SESSION + "hooks.py",
        "TurnHooks.turn_done",
        "continued=self._continued",
        "continued=0",
        "tests/e2e/test_hook_moments.py::test_a_hook_makes_the_turn_go_on_and_the_model_hears_why",
    ),
    Fault(
        "hooks can't extend a turn beyond its last permitted step",
        TURN + "loop.py",
        "run_turn",
        "not A.limit and await _must_go_on(B, C, D)",
        "await _must_go_on(B, C, D)",
        "tests/e2e/test_hook_moments.py"
        "::test_the_last_step_of_a_turn_is_the_last_whatever_hooks_want",
    ),
    Fault(
        "hooks are not asked whether a turn must continue if input is waiting",
        TURN + "loop.py",
        "_must_go_on",
        "if A.queue:",
        "if False:",
        "tests/e2e/test_hook_moments.py::test_hooks_are_asked_when_no_input_waits_any_more",
    ),
    Fault(
        "steering that arrives while hooks run is delivered as steering",
        TURN + "loop.py",
        "_must_go_on",
        "bool(A) or B.has_steering",
        "bool(A)",
        "tests/e2e/test_hook_moments.py::test_steering_that_comes_while_hooks_run_is_before_input_that_waits",
    ),
    Fault(
        "a hook that gives no reason does not make the turn continue",
        RUNNER,
        "_check",
        'A.denies and B.on == "turn_done" and not A.reason',
        "False",
        "tests/e2e/test_hook_moments.py::test_a_hook_without_a_reason_does_not_make_the_turn_go_on",
    ),
)

JUDGED = (
    Fault(
        "the rules judge a call as a hook has rewritten it",
        SESSION + "calls/tool_call.py",
        "PreparedToolCall._rewrite",
        "self._set(A, *B.examine(C, D))",
        "self._set(A, B.examine(C, D)[0], self._requirements)",
        "tests/e2e/test_hook_moments.py"
        "::test_rewritten_arguments_are_judged_by_the_rules_and_asked_about",
    ),
    Fault(
        "B60 the limits of the turn apply to a call that a hook has rewritten",
        SESSION + "calls/tool_call.py",
        "PreparedToolCall.permit",
        "self._rewrite(A) or await self._check()",
        "self._rewrite(A)",
        "tests/e2e/test_hook_moments.py::test_a_hook_makes_no_agent_write_that_only_reads",
    ),
    Fault(
        "a later hook judges a call as an earlier hook has rewritten it",
        RUNNER,
        "HookRunner.ask",
        "A = with_arguments(A, B)",
        "pass",
        "tests/e2e/test_hook_moments.py"
        "::test_a_later_hook_judges_what_an_earlier_one_has_made_of_a_call",
    ),
    Fault(
        "B60 a project's hook can't rewrite a call",
        RUNNER,
        "_check",
        "isinstance(A, ProjectHook)",
        "False",
        "tests/e2e/test_hook_moments.py::test_b60_a_hook_of_a_project_can_not_rewrite",
    ),
    Fault(
        "no call begins before its hook has been asked",
        SESSION + "calls/tool_call.py",
        "PreparedToolCall.permit_early",
        "A.observes(B)",
        "False",
        "tests/e2e/test_hooks.py"
        "::test_a_call_that_only_reads_does_not_begin_before_its_hook_was_asked",
    ),
    Fault(
        "a hook that fails denies if it is configured to",
        RUNNER,
        "HookRunner.ask",
        'A.on_failure == "deny"',
        "False",
        "tests/hooks/test_runner.py::test_a_failure_is_reported_and_denies_only_if_configured",
    ),
    Fault(
        "B60 hooks of a project run in the sandbox",
        RUNNER,
        "HookRunner._run",
        "A.confined if B else None",
        "None",
        "tests/e2e/test_project_hooks.py"
        "::test_b60_a_projects_hook_runs_in_the_sandbox_with_a_clean_environment",
    ),
    Fault(
        "B60 without a sandbox no hook of a project runs",
        RUNNER,
        "HookRunner._run",
        "A and B.problem",
        "False",
        "tests/e2e/test_project_hooks.py"
        "::test_where_no_sandbox_works_no_projects_hook_runs_and_it_is_said_once",
    ),
    Fault(
        "G12 the number of hooks in the background is limited",
        RUNNER,
        "HookRunner.notify",
        "A is None or B >= BACKGROUND_MAX",
        "A is None",
        "tests/hooks/test_runner.py::test_notifications_run_in_the_background_and_are_bounded",
    ),
)

FAULTS = MOMENTS + GOING_ON + JUDGED
