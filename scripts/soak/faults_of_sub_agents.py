"""Faults in sub-agents: in the background, with declared paths, and for the user's tasks."""

from fault import SESSION, TURN, Fault

SUB_AGENTS = SESSION + "sub_agents/"
SCOPE = "daemon/tiller_daemon/tools/write_scope.py"
ENCLOSURES = SESSION + "calls/turn_enclosures.py"
CONFINER = "daemon/tiller_daemon/sandbox/confiner.py"
IN_SCOPES = "tests/session/sub_agents/test_commands_in_scopes.py::"
E2E = "tests/e2e/test_write_scopes.py::"

BACKGROUND = (
    Fault(
        "G7 the end of a background sub-agent and its report are one commit",
        SUB_AGENTS + "background_tasks.py",
        "BackgroundTasks._wait",
        "await A.deliver(B)",
        "self.record_end(task)\nawait self._outbox.committed()\nawait A.deliver(B)",
        "tests/session/sub_agents/test_background_tasks.py"
        "::test_the_end_and_its_report_are_one_commit",
    ),
    Fault(
        "G7 a report that arrives during a turn steers the turn",
        SESSION + "background/delivering.py",
        "deliver_end",
        'A.queue.put(structs.replace(B, delivery="steer"))',
        "pass",
        "tests/session/sub_agents/test_background_tasks.py"
        "::test_the_report_steers_a_turn_that_runs_and_skips_none_of_its_calls",
    ),
    Fault(
        "G7 a report starts a turn only together with the end of its sub-agent",
        SESSION + "background/delivering.py",
        "deliver_end",
        "A.tasks.record_end(B)",
        "pass",
        "tests/session/sub_agents/test_background_tasks.py"
        "::test_the_end_and_its_report_are_one_commit",
    ),
    Fault(
        "G7 the model is told that a background sub-agent was ended",
        SESSION + "background/delivering.py",
        "deliver_end",
        'A.put(B, *notice_events("background_ended", C(D), E))',
        "pass",
        "tests/session/sub_agents/test_background_tasks.py"
        "::test_its_user_ends_it_like_a_background_command",
    ),
    Fault(
        "G7 the model is told which sub-agents were lost with the daemon",
        SUB_AGENTS + "background_tasks.py",
        "lost_bodies",
        'A += notice_events("background_lost", B, C())',
        "pass",
        "tests/session/sub_agents/test_background_tasks.py"
        "::test_after_a_kill_it_is_lost_and_the_model_is_told_once",
    ),
    Fault(
        "B29 interrupting the turn does not end background sub-agents",
        SESSION + "turns/active_turn.py",
        "ActiveTurn.interrupt",
        "A._scope.cancel()",
        "A._scope.cancel()\nA._session.tasks.cancel_all()",
        "tests/session/sub_agents/test_background_tasks.py"
        "::test_an_interrupt_of_the_turn_leaves_it_alone",
    ),
    Fault(
        "G8 a background sub-agent is listed before it begins",
        SUB_AGENTS + "background_tasks.py",
        "BackgroundTasks.begin",
        "A.record(B)",
        "pass",
        "tests/session/sub_agents/test_write_scopes.py"
        "::test_in_the_background_the_paths_are_its_own_until_its_report",
    ),
    Fault(
        "B29 the spending of a background sub-agent is counted only once",
        "protocol/tiller_protocol/fold.py",
        "_change_background",
        "A.get(B.id)",
        "None",
        "tests/session/sub_agents/test_background_tasks.py"
        "::test_what_it_spends_counts_for_the_session_and_the_turn_that_runs",
    ),
)

TASKS_OF_USER = (
    Fault(
        "B16 new input does not skip a task that the user has given",
        TURN + "user_tasks.py",
        "run_tasks",
        "skips=False",
        "skips=True",
        "tests/session/sub_agents/test_user_tasks.py"
        "::test_new_input_keeps_no_task_of_the_user_from_running",
    ),
    Fault(
        "G10 input and its tasks are one commit",
        TURN + "loop.py",
        "_add_inputs",
        "*map(ItemStarted, A)",
        "",
        "tests/session/sub_agents/test_user_tasks.py::test_a_mention_steers_and_follows_up_as_well",
    ),
)

DECLARED = (
    Fault(
        "G9 tasks whose paths overlap run one after another",
        TURN + "dispatch.py",
        "_fit",
        "not A.overlaps(B)",
        "True",
        "tests/session/sub_agents/test_write_scopes.py"
        "::test_tasks_work_at_once_if_their_paths_do_not_overlap_and_in_order_otherwise",
    ),
    Fault(
        "G9 tasks whose paths do not overlap run at the same time",
        TURN + "dispatch.py",
        "_fit",
        "not A.overlaps(B)",
        "False",
        "tests/session/sub_agents/test_write_scopes.py"
        "::test_tasks_work_at_once_if_their_paths_do_not_overlap_and_in_order_otherwise",
    ),
    Fault(
        "G9 a sub-agent changes only what its task declares",
        SESSION + "calls/write_limits.py",
        "WriteLimits._refusal_of_path",
        "A is not None and not B.covers(C)",
        "False",
        "tests/session/sub_agents/test_write_scopes.py"
        "::test_what_belongs_to_others_is_changed_by_none_and_what_is_declared_goes_down",
    ),
    Fault(
        "G9 a sub-agent's own tasks may declare only paths that it may change itself",
        SESSION + "calls/write_limits.py",
        "WriteLimits._refusal_of_task",
        "A is not None and not B.covers_all(C)",
        "False",
        "tests/session/sub_agents/test_write_scopes.py"
        "::test_paths_that_can_not_be_given_are_an_error_that_says_why",
    ),
    Fault(
        "G9 a nested sub-agent without a scope of its own inherits its owner's scope",
        SUB_AGENTS + "delegation.py",
        "Delegation._inherited",
        "A or B.scope",
        "A",
        "tests/sim/test_sub_agents.py"
        "::test_g9_lock_nothing_is_changed_by_two_at_once_nor_where_no_task_declares_it",
    ),
    Fault(
        "G9 a background sub-agent claims its scope",
        SUB_AGENTS + "background_tasks.py",
        "BackgroundTasks.begin",
        "if A:",
        "if False:",
        "tests/session/sub_agents/test_write_scopes.py"
        "::test_in_the_background_the_paths_are_its_own_until_its_report",
    ),
    Fault(
        "G9 the claims in a session also apply to the session's sub-agents",
        SESSION + "turns/active_turn.py",
        "ActiveTurn.claims",
        "run.owner.claims",
        "Claims()",
        "tests/session/sub_agents/test_write_scopes.py"
        "::test_what_belongs_to_others_is_changed_by_none_and_what_is_declared_goes_down",
    ),
    Fault(
        "B55 a patch has only the files of its own turn",
        SESSION + "turns/turn_changes.py",
        "own_changes",
        "if A(B(C.path))",
        "",
        "tests/session/test_turn_changes.py"
        "::test_each_turn_has_the_files_that_it_changed_and_gives_back_no_other",
    ),
    Fault(
        "B55 no call of a step begins before the step's first snapshot is complete",
        SESSION + "turns/turn_changes.py",
        "TurnChanges.before",
        "async with A:",
        "if True:",
        "tests/session/test_turn_changes.py"
        "::test_no_call_begins_before_the_look_that_another_one_takes_is_complete",
    ),
)

SCOPES = (
    Fault(
        "G9 a path is not in a place only because its name begins with the place's name",
        SCOPE,
        "is_below",
        'name == place or name.startswith(f"{place}/")',
        "name.startswith(place)",
        "tests/session/sub_agents/test_write_scopes.py::test_a_scope_has_no_place_within_another_and_covers_what_was_named",
    ),
    Fault(
        "G9 the scope of the whole workspace covers nothing outside the workspace",
        SCOPE,
        "is_below",
        'not A.startswith("/")',
        "True",
        "tests/session/sub_agents/test_write_scopes.py::test_a_scope_has_no_place_within_another_and_covers_what_was_named",
    ),
    Fault(
        "G9 no task declares a path outside the workspace",
        "daemon/tiller_daemon/tools/task.py",
        "_scope",
        "not A.inside",
        "False",
        "tests/session/sub_agents/test_write_scopes.py"
        "::test_paths_that_can_not_be_given_are_an_error_that_says_why",
    ),
    Fault(
        "B60 no task declares a protected path",
        "daemon/tiller_daemon/tools/task.py",
        "_scope",
        "is_protected(A)",
        "False",
        "tests/session/sub_agents/test_write_scopes.py"
        "::test_paths_that_can_not_be_given_are_an_error_that_says_why",
    ),
    Fault(
        "G9 commands write only within the scope of their task",
        ENCLOSURES,
        "TurnEnclosures.enclose",
        "scope=A.scope and A.scope.roots",
        "scope=None",
        IN_SCOPES + "test_a_command_can_write_in_the_paths_of_its_task_alone",
    ),
    Fault(
        "G9 commands do not write to files that a background sub-agent has claimed",
        ENCLOSURES,
        "TurnEnclosures.enclose",
        "taken=A",
        "taken=()",
        IN_SCOPES + "test_a_command_can_not_write_what_a_background_sub_agent_has_claimed",
    ),
    Fault(
        "G9 no rule lets a command out of the sandbox while write limits are set",
        ENCLOSURES,
        "TurnEnclosures.enclose",
        "A = min(A, Enclosure.SESSION)",
        "pass",
        IN_SCOPES + "test_a_command_can_write_in_the_paths_of_its_task_alone",
    ),
    Fault(
        "G9 the mode full_access does not lift write limits",
        CONFINER,
        "Confiner.holds",
        'limited or A is not B.SESSION or C.mode != "full_access"',
        'A is not B.SESSION or C.mode != "full_access"',
        IN_SCOPES + "test_a_command_can_write_in_the_paths_of_its_task_alone",
    ),
    Fault(
        "G9 a path in a scope is not writable if it leads through a link",
        "daemon/tiller_daemon/sandbox/confiner.py",
        "_in_place",
        "os.path.realpath(A) == str(A)",
        "True",
        IN_SCOPES + "test_a_place_that_became_a_link_can_not_be_written",
    ),
    Fault(
        "G9 commands of sub-agents with a scope do not write to the git directory",
        CONFINER,
        "Confiner.confined",
        "A is not Enclosure.SESSION or B is not None",
        "A is not Enclosure.SESSION",
        "tests/sandbox/test_sandbox.py"
        "::test_only_a_git_command_that_a_person_allowed_writes_to_git_directories",
    ),
    Fault(
        "G9 without a sandbox, no command runs while write limits are set",
        ENCLOSURES,
        "TurnEnclosures.not_enforced",
        "if A is None:",
        "if False:",
        IN_SCOPES + "test_without_a_sandbox_no_command_runs_under_limits",
    ),
    Fault(
        "G9 a sandbox that can't enforce a claim runs no commands that write",
        ENCLOSURES,
        "TurnEnclosures.not_enforced",
        "A.loosest_unasked < Enclosure.BUILD",
        "False",
        IN_SCOPES + "test_a_sandbox_that_can_not_keep_a_claim_from_commands_runs_none_that_write",
    ),
    Fault(
        "G9 no MCP tool that writes runs while write limits are set",
        SESSION + "calls/write_limits.py",
        "WriteLimits.refusal",
        "if A.server:",
        "if False:",
        IN_SCOPES + "test_no_tool_of_a_server_writes_under_limits",
    ),
    Fault(
        "G9 no task declares files that a background sub-agent has claimed",
        SESSION + "calls/write_limits.py",
        "WriteLimits._refusal_of_task",
        "A.scope.overlaps(B)",
        "False",
        "tests/session/sub_agents/test_write_scopes.py"
        "::test_in_the_background_the_paths_are_its_own_until_its_report",
    ),
    Fault(
        "G9 nobody else changes files that a background sub-agent has claimed",
        SESSION + "calls/write_limits.py",
        "WriteLimits._refusal_of_path",
        "A.scope.overlaps(WriteScope((B,), ()))",
        "False",
        "tests/session/sub_agents/test_write_scopes.py"
        "::test_what_belongs_to_others_is_changed_by_none_and_what_is_declared_goes_down",
    ),
    Fault(
        "G9 a claim ends with its sub-agent",
        SUB_AGENTS + "background_tasks.py",
        "BackgroundTasks._forget",
        "A.end(B)",
        "pass",
        "tests/session/sub_agents/test_write_scopes.py::test_in_the_background_the_paths_are_its_own_until_its_report",
    ),
    Fault(
        "G9 no sub-agent claims files that a background command may still change",
        SUB_AGENTS + "delegation.py",
        "Delegation._run_in_background",
        "A := B.writing_to(C)",
        "A := ()",
        E2E + "test_nobody_else_changes_what_a_sub_agent_in_the_background_may_change",
    ),
)

FAULTS = BACKGROUND + TASKS_OF_USER + DECLARED + SCOPES
