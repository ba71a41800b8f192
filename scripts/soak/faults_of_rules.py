"""Faults in the judgement of command lines, lasting rules, requests, and notices about modes."""

from fault import SESSION, Fault

RULES = "daemon/tiller_daemon/config/lasting_rules.py"
OF_CONFIG = "tests/config/test_lasting_rules.py::"
OF_SESSION = "tests/session/test_lasting_rules.py::"
OF_PERMISSION = "tests/session/calls/test_permission.py::"
OF_ACP = "tests/client/acp/test_approval.py::"
ACP = "client/tiller_client/acp/"
OF_MODE = "tests/session/test_mode_reminder.py::"

LINES = (
    Fault(
        "a command line whose function may call itself without end needs approval",
        "daemon/tiller_daemon/policy/shell/command_line.py",
        "_parse",
        'problem = problem or f"its function `{name}` may call itself without end"',
        "pass",
        "tests/policy/shell/test_enclosures.py"
        "::test_a_fork_bomb_needs_approval_although_each_of_its_commands_is_harmless",
    ),
    Fault(
        "a rule for a directory of secrets protects the files in it",
        "daemon/tiller_daemon/policy/globs.py",
        "matcher",
        'A.endswith("*")',
        "False",
        "tests/policy/test_readable.py::test_what_is_secret_by_custom_is_not",
    ),
)

LASTING = (
    Fault(
        "no part of a lasting rule is written into the project",
        RULES,
        "LastingRules._save",
        "make_directory(A)",
        "make_directory(A)\n"
        "for place in workspaces:\n"
        '    (Path(place) / ".tiller.rules").write_bytes(msgspec.json.encode(content))',
        OF_SESSION + "test_it_is_not_a_rule_of_the_session_and_survives_the_daemon",
    ),
    Fault(
        "a lasting rule does not become a rule of the session",
        SESSION + "requests.py",
        "OpenRequests.answer",
        'A if B.resolution == "always" else ()',
        "A",
        OF_SESSION + "test_it_is_not_a_rule_of_the_session_and_survives_the_daemon",
    ),
    Fault(
        "a lasting rule is stored before its request is resolved",
        SESSION + "requests.py",
        "OpenRequests.answer",
        "keep(A)",
        "pass",
        OF_SESSION + "test_it_holds_in_every_session_of_the_directory_until_it_is_revoked",
    ),
    Fault(
        "if a lasting rule can't be stored, the request stays open",
        SESSION + "rules.py",
        "_keep_rules",
        'raise RejectionError("unavailable", A) from None',
        "pass",
        OF_SESSION + "test_a_rule_that_can_not_be_kept_leaves_the_request_open",
    ),
    Fault(
        "a revoked lasting rule is removed",
        RULES,
        "LastingRules.remove",
        "self._save({A: B for A, B in C.items() if B})",
        "pass",
        OF_CONFIG + "test_rules_are_kept_and_removed_as_in_a_list_for_each_place",
    ),
    Fault(
        "a new lasting rule applies at once to running turns",
        SESSION + "turns/active_turn.py",
        "ActiveTurn._rules",
        "self._session.services.user.lasting_rules.of(A)",
        "self.__dict__.setdefault(\n"
        '    "lasting", self._session.services.user.lasting_rules.of(A)\n'
        ")",
        OF_SESSION + "test_what_is_granted_and_revoked_while_a_turn_runs_counts_at_once",
    ),
    Fault(
        "a revoked rule of the session no longer applies to the running turn",
        SESSION + "rules.py",
        "revoke_session_rule",
        "A.revoke(B)",
        "pass",
        OF_SESSION + "test_what_is_granted_and_revoked_while_a_turn_runs_counts_at_once",
    ),
    Fault(
        "a lasting rule applies only in its directory",
        RULES,
        "LastingRules.of",
        "A.get(B(C), ())",
        "[one for those in A.values() for one in those]",
        OF_SESSION + "test_it_holds_in_every_session_of_the_directory_until_it_is_revoked",
    ),
    Fault(
        "a lasting rule allows no more than was granted",
        SESSION + "rules.py",
        "_keep_rules",
        "StoredRule(A.permission, A.pattern, B, C)",
        'StoredRule(A.permission, "*", B, C)',
        OF_SESSION + "test_it_holds_in_every_session_of_the_directory_until_it_is_revoked",
    ),
    Fault(
        "a lasting rule overrides no denial",
        "daemon/tiller_daemon/policy/shell/enclosures.py",
        "last_match",
        'A is None or B.action == "deny"',
        "A is None",
        OF_SESSION + "test_it_answers_a_question_of_any_layer_and_overrides_no_denial",
    ),
    Fault(
        "no lasting rule is offered for a call that repeats itself",
        SESSION + "calls/permission.py",
        "Permission._request",
        'A and B == "approval"',
        "A",
        OF_SESSION + "test_a_call_that_repeats_itself_can_not_be_allowed_for_good",
    ),
    Fault(
        "a new lasting rule resolves open requests of other sessions",
        SESSION + "supervisor.py",
        "Supervisor._effect",
        "A.reconsider()",
        "pass",
        OF_SESSION
        + "test_open_requests_of_other_sessions_in_the_directory_need_no_answer_any_more",
    ),
    Fault(
        "G14 a file of lasting rules that others can write is ignored",
        RULES,
        "LastingRules._read_file",
        "A.stat().st_mode & stat.S_IWOTH",
        "False",
        OF_CONFIG + "test_a_file_that_others_can_write_does_not_count",
    ),
    Fault(
        "an edit of the lasting rules takes effect at once",
        RULES,
        "LastingRules._read_file",
        "look_at(A)",
        "pass",
        OF_CONFIG + "test_an_edit_of_the_file_counts_at_once",
    ),
)

MODE = (
    Fault(
        "the model is told when a change of agents changes whether it may write",
        SESSION + "context/mode_reminder.py",
        "mode_notices",
        "A is None or B == C",
        "True",
        OF_MODE + "test_a_plan_is_handed_to_the_agent_that_may_write_and_back_it_only_reads",
    ),
    Fault(
        "the model is told of a change of agents only once",
        SESSION + "context/mode_reminder.py",
        "mode_notices",
        "A is None or B == C",
        "A is None",
        OF_MODE + "test_a_plan_is_handed_to_the_agent_that_may_write_and_back_it_only_reads",
    ),
    Fault(
        "whether there is a notice depends only on turns in which the model took a step",
        SESSION + "context/mode_reminder.py",
        "mode_notices",
        "if A.step",
        "",
        OF_MODE + "test_there_is_a_notice_exactly_if_the_last_turn_with_a_step_differs",
    ),
    Fault(
        "the notice about the agent is in the log",
        SESSION + "turns/starting.py",
        "_start_turn",
        "for A in (B, *C):",
        "for A in (B,):",
        OF_MODE + "test_a_plan_is_handed_to_the_agent_that_may_write_and_back_it_only_reads",
    ),
    Fault(
        "the notice about the agent is in the model request",
        SESSION + "turns/starting.py",
        "_start_turn",
        "[*A.items, B, *C, *D]",
        "[*A.items, B, *D]",
        OF_MODE + "test_a_plan_is_handed_to_the_agent_that_may_write_and_back_it_only_reads",
    ),
    Fault(
        "after a restart, the daemon knows whether the model could write",
        "protocol/tiller_protocol/fold.py",
        "_mark",
        "A.agent, A.read_only",
        "A.agent, False",
        OF_MODE + "test_forks_reverts_and_restarts_know_what_the_model_could_do_last",
    ),
    Fault(
        "a plan is handed over",
        SESSION + "context/mode_reminder.py",
        "mode_notices",
        "A += _handed_over(B, C)",
        "pass",
        OF_MODE + "test_a_plan_is_handed_to_the_agent_that_may_write_and_back_it_only_reads",
    ),
    Fault(
        "a plan that the model no longer sees is quoted",
        SESSION + "context/mode_reminder.py",
        "_handed_over",
        "PLAN_ABOVE if A in B else PLAN_QUOTED",
        "PLAN_ABOVE",
        OF_MODE + "test_a_plan_that_a_compaction_has_removed_is_quoted_with_its_steps",
    ),
)

REQUESTS = (
    Fault(
        "what is too large to show is refused",
        SESSION + "calls/permission.py",
        "Permission.obtain",
        "not _can_be_shown(A)",
        "False",
        OF_PERMISSION + "test_what_is_too_large_to_show_is_refused",
    ),
    Fault(
        "a request has the warnings of all permissions",
        SESSION + "calls/permission.py",
        "Permission._request",
        "A.warning for A in (B, *C) if A.warning",
        "A.warning for A in (B,) if A.warning",
        OF_PERMISSION + "test_a_request_begins_with_all_warnings_and_names_all_permissions",
    ),
    Fault(
        "a command's output is quoted only briefly",
        SESSION + "calls/escalation.py",
        "quoting",
        "[:SAID_CHARS_MAX]",
        "[:]",
        OF_PERMISSION + "test_output_comes_last_and_short_in_the_question_about_the_outside",
    ),
    Fault(
        "a part of a cut diff is not shown as a diff",
        ACP + "diffs.py",
        "hunks_of",
        "A.old_left or A.new_left",
        "False",
        OF_ACP + "test_a_diff_that_is_not_whole_is_shown_as_text",
    ),
    Fault(
        "no text in a compared file is invisible",
        ACP + "approval.py",
        "_content",
        "list(map(_visible, A))",
        "list(A)",
        OF_ACP + "test_nothing_that_is_asked_is_invisible",
    ),
)

FAULTS = LINES + LASTING + MODE + REQUESTS
