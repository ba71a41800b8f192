"""Faults in the permissions of commands: their enclosures, and the network in enclosures."""

from fault import SESSION, Fault

NETWORK = "daemon/tiller_daemon/policy/shell/network.py"
GIT_DIRECTORIES = "daemon/tiller_daemon/sandbox/git_directories.py"
GIT_ELSEWHERE = "tests/sandbox/test_git_elsewhere.py::"
GIT_IN_BUILDS = "tests/e2e/test_git_in_builds.py::"
IN_GIT_CONFIGURATION = "tests/sandbox/test_git_configuration.py::"
KEPT_RULES = (
    "tests/sandbox/test_landlock.py::test_rules_are_kept_until_what_they_are_made_from_has_changed"
)

FAULTS = (
    Fault(
        "B38 only the network permission opens the network",
        SESSION + "calls/tool_call.py",
        "PreparedToolCall._enclose",
        "A.permission == NETWORK",
        "A.permission",
        "tests/session/calls/test_network.py::test_a_rule_for_every_permission_opens_no_network",
    ),
    Fault(
        "B38 if nobody is asked, the network stays closed",
        SESSION + "calls/turn_enclosures.py",
        "TurnEnclosures.network_requirements",
        'A.approve == "ask"',
        "True",
        "tests/session/calls/test_network.py::test_b38_no_line_has_the_network_without_a_verdict",
    ),
    Fault(
        "B38 a rule opens the network only if the rule names the network",
        NETWORK,
        "judge_network",
        "if A.permission == NETWORK",
        'if A.permission in ("*", NETWORK)',
        "tests/session/calls/test_network.py::test_a_rule_for_every_permission_opens_no_network",
    ),
    Fault(
        "B38 a network rule for one command does not cover the other commands of the line",
        NETWORK,
        "_allowing_rule",
        'A(B) != "passes_on" or B.assigns',
        "False",
        "tests/session/calls/test_network.py"
        "::test_one_question_is_about_the_command_and_the_network",
    ),
    Fault(
        "B38 granting a command the network also lets the command run",
        "daemon/tiller_daemon/policy/shell/enclosures.py",
        "_implies",
        "A.granted and",
        "False and",
        "tests/session/calls/test_network.py"
        "::test_one_question_is_about_the_command_and_the_network",
    ),
    Fault(
        "B38 denying the network to one command closes the network to the whole line",
        NETWORK,
        "judge_network",
        "[A for B in C.commands if (A := strict_rule(B, NETWORK, D))]",
        "list[Rule]()",
        "tests/policy/shell/test_network.py::test_a_denial_of_one_command_leaves_nothing_to_ask",
    ),
    Fault(
        "B38 nobody is asked about the network if the network is already open",
        SESSION + "calls/turn_enclosures.py",
        "TurnEnclosures.network_requirements",
        'A.mode == "workspace_write" and not A.network',
        "True",
        "tests/session/calls/test_network.py"
        "::test_where_commands_have_the_network_anyway_no_question_is_about_it",
    ),
    Fault(
        "B38 `always` opens the network only to commands that are known to need it",
        "daemon/tiller_daemon/policy/always.py",
        "always_network_patterns",
        "always_patterns(A) if B else ()",
        "always_patterns(A)",
        "tests/policy/shell/test_network.py::test_always_names_the_program_and_what_it_does",
    ),
    Fault(
        "B38 a command gets the network access that was permitted",
        SESSION + "calls/turn_enclosures.py",
        "TurnEnclosures.enclose",
        "network=A",
        "network=False",
        "tests/session/calls/test_network.py"
        "::test_one_question_is_about_the_command_and_the_network",
    ),
    Fault(
        "B38 a command that only reads has no network",
        "daemon/tiller_daemon/sandbox/confiner.py",
        "Confiner.confined",
        "A.writes and network",
        "network",
        equivalent="`judge_network` already denies the network to every line that seems to read",
    ),
    Fault(
        "B60 a command that runs under Landlock has given up its rights",
        "daemon/tiller_daemon/sandbox/launcher.py",
        "start_restricted",
        "restrict(A, B, C)",
        "None",
        KEPT_RULES,
    ),
    Fault(
        "Landlock's rules are made again after a change in a directory that was listed for them",
        "daemon/tiller_daemon/sandbox/landlock.py",
        "_Made.__init__",
        "make_ruleset(A, look_into)",
        "make_ruleset(A)",
        KEPT_RULES,
    ),
    Fault(
        "no command in a sandbox opens a file as set-user-id",
        "daemon/tiller_daemon/sandbox/seccomp.py",
        "_refuse_set_id",
        "_Check(flags + 1, (0,), A)",
        "_Check(flags + 1, (0,), 0)",
        "tests/sandbox/test_set_id.py::test_no_command_makes_a_set_id_file",
    ),
    Fault(
        "a command that Landlock may have stopped runs again in bubblewrap",
        "daemon/tiller_daemon/sandbox/confinement.py",
        "may_be_refused",
        "any(text in output for text in A)",
        "False",
        "tests/e2e/test_sandbox.py"
        "::test_with_full_access_what_only_reads_starts_quickly_and_is_held_as_by_bubblewrap",
    ),
    Fault(
        "B60 no command writes what is executed at the end of a link",
        "daemon/tiller_daemon/sandbox/confiner.py",
        "Confiner.confinement",
        "filter(is_there, linked)",
        "()",
        "tests/sandbox/test_protected_links.py"
        "::test_b60_no_command_writes_what_is_executed_at_the_end_of_a_link",
    ),
    Fault(
        "B60 a build needs approval if it could replace a link to what is executed",
        "daemon/tiller_daemon/sandbox/protected_links.py",
        "linked_paths",
        "root_of(A, writable) and not _is_in(A.parent, (*protected, *targets))",
        "False",
        "tests/sandbox/test_protected_links.py"
        "::test_where_a_command_could_replace_a_link_only_reading_is_unasked",
    ),
    Fault(
        "B60 permission to write does not cover what is executed at the end of a link",
        "daemon/tiller_daemon/sandbox/confiner.py",
        "Confiner.is_executed",
        "[*self._linked(policy, root, found[0]).targets]",
        "[]",
        "tests/e2e/test_protected_links.py"
        "::test_b60_permission_to_write_does_not_cover_such_a_hook",
    ),
    Fault(
        "B60 no build creates a file that git's configuration includes",
        "daemon/tiller_daemon/sandbox/confiner.py",
        "_absent_files",
        "yield from git.included",
        "pass",
        IN_GIT_CONFIGURATION + "test_b60_no_build_creates_a_file_that_the_configuration_includes",
    ),
    Fault(
        "B60 git includes a file relative to the file that names it",
        "daemon/tiller_daemon/sandbox/git_configuration.py",
        "Setting.included",
        "self.file.parent",
        "self.file.parents[1]",
        IN_GIT_CONFIGURATION + "test_b60_no_build_creates_a_file_that_the_configuration_includes",
    ),
    Fault(
        "B60 no build changes a file that git includes only on another branch",
        "daemon/tiller_daemon/sandbox/git_configuration.py",
        "Setting.included",
        'self.key == "include.path" or on_condition',
        'self.key == "include.path"',
        IN_GIT_CONFIGURATION + "test_b60_no_build_changes_what_only_another_branch_includes",
    ),
    Fault(
        "B60 no build creates a directory of hooks in a directory that is missing too",
        "daemon/tiller_daemon/sandbox/confiner.py",
        "_absent",
        "first_missing(A)",
        "A",
        IN_GIT_CONFIGURATION + "test_b60_no_build_creates_a_hook",
    ),
    Fault(
        "B60 a build needs approval if it could replace a link on the way to a hook",
        "daemon/tiller_daemon/sandbox/protected_links.py",
        "_links",
        "os.path.realpath(top) != str(top)",
        "top.is_symlink()",
        IN_GIT_CONFIGURATION
        + "test_a_build_needs_approval_where_it_could_replace_a_link_on_the_way_to_a_named_path",
    ),
    Fault(
        "B60 a build needs approval while git can't read its configuration",
        GIT_DIRECTORIES,
        "_git_paths",
        "paths._replace(problem=\"git's configuration can't be read\")",
        "paths",
        IN_GIT_CONFIGURATION + "test_a_build_needs_approval_until_git_can_read_its_configuration",
    ),
    Fault(
        "B60 nothing is kept of a configuration that git could not read",
        GIT_DIRECTORIES,
        "_git_paths",
        "failed(A)",
        "pass",
        IN_GIT_CONFIGURATION + "test_a_build_needs_approval_until_git_can_read_its_configuration",
    ),
    Fault(
        "B60 no build creates what the user's configuration of git names",
        GIT_DIRECTORIES,
        "_git_paths",
        "(*read_settings(A, naming=True), *own)",
        "own",
        GIT_ELSEWHERE + "test_b60_no_build_creates_what_the_users_configuration_names",
    ),
    Fault(
        "B60 a build needs approval in a bare repository",
        GIT_DIRECTORIES,
        "_around",
        "is_bare(A)",
        "False",
        GIT_ELSEWHERE + "test_a_build_needs_approval_in_a_bare_repository",
    ),
    Fault(
        "B60 no build writes a hook of another repository in the workspace",
        "daemon/tiller_daemon/sandbox/confiner.py",
        "Confiner.confinement",
        "with_nested(git, root, others)",
        "git",
        GIT_IN_BUILDS + "test_b60_a_build_writes_no_hook_of_another_repository_in_the_workspace",
    ),
    Fault(
        "B60 a nested repository that leads git through a link can't be written",
        GIT_DIRECTORIES,
        "with_nested",
        "any(_resolved(A) != A for A in inside)",
        "False",
        GIT_ELSEWHERE
        + "test_b60_a_nested_repository_that_leads_git_through_a_link_can_not_be_written",
    ),
    Fault(
        "B60 no build writes templates for hooks",
        GIT_DIRECTORIES,
        "_hooks",
        '("core.hookspath", "init.templatedir")',
        '("core.hookspath",)',
        GIT_ELSEWHERE + "test_b60_no_build_writes_templates_for_hooks",
    ),
    Fault(
        "B60 links among the hooks of a nested repository count",
        "daemon/tiller_daemon/sandbox/confiner.py",
        "Confiner._linked",
        "(one for paths in repositories for one in paths.directories)",
        "git.directories",
        GIT_ELSEWHERE + "test_b60_links_among_the_hooks_of_a_nested_repository_count",
    ),
    Fault(
        "B60 a build creates no unusual bare repository",
        "daemon/tiller_daemon/sandbox/scan.py",
        "Scanner._read",
        '{"objects", "refs"} <= folded',
        '{"objects", "refs"} <= {*folders}',
        GIT_IN_BUILDS + "test_b60_a_build_creates_no_unusual_bare_repository",
    ),
    Fault(
        "a reaper runs the next command if the last command left no process",
        "daemon/tiller_daemon/processes/fork_server.py",
        "RunningProgram.close",
        "A and self._left_nothing",
        "False",
        "tests/processes/test_reaper.py::test_a_reaper_runs_the_next_command_if_nothing_was_left",
    ),
    Fault(
        "G8 the daemon learns when the last process of a command has ended",
        "daemon/tiller_daemon/processes/reaper.py",
        "_supervise",
        "if empty and ended:",
        "if ended:",
        "tests/processes/test_reaper.py::test_it_is_known_when_the_last_process_that_a_command_left_has_ended",
    ),
    Fault(
        "G8 closing a program kills the processes that it left",
        "daemon/tiller_daemon/processes/fork_server.py",
        "_read_reaper",
        "self._left_nothing = self.is_empty",
        "self._left_nothing = True",
        "tests/processes/test_reaper.py::test_closing_a_program_kills_what_it_left_in_the_background",
    ),
    Fault(
        "a program that ended while the daemon was suspended counts as started",
        "daemon/tiller_daemon/processes/fork_server.py",
        "_request_start",
        "if A < len(B):",
        "if True:",
        "tests/processes/test_reaper.py"
        "::test_a_program_that_ends_before_the_daemon_runs_again_was_started",
    ),
    Fault(
        "a reaper that ends with an unread request is replaced",
        "daemon/tiller_daemon/processes/fork_server.py",
        "_request_start",
        "except ConnectionError:",
        "except BrokenPipeError:",
        "tests/processes/test_reaper.py::test_a_reaper_that_ends_with_an_unread_request_is_replaced",
    ),
    Fault(
        "where nothing can be created, a command runs without placeholders",
        "daemon/tiller_daemon/sandbox/bubblewrap.py",
        "Bubblewrap._needs_placeholder",
        "and not _is_read_only(A)",
        "",
        "tests/e2e/test_placeholders.py"
        "::test_commands_and_builds_run_in_a_workspace_on_a_read_only_file_system",
    ),
    Fault(
        "a command whose sandbox could not be set up does not count as run",
        "daemon/tiller_daemon/processes/command.py",
        "run_command",
        "A._replace(has_run=False)",
        "A",
        "tests/tools/commands/test_bash.py"
        "::test_a_command_whose_sandbox_can_not_be_set_up_did_not_run",
    ),
    Fault(
        "a killed daemon's placeholders are removed at the next start",
        "daemon/tiller_daemon/app.py",
        "serve",
        "_remove_abandoned(A / B)",
        "pass",
        "tests/e2e/test_placeholders.py"
        "::test_a_killed_daemons_placeholders_are_removed_by_the_next_one",
    ),
    Fault(
        "a placeholder is recorded before it is made",
        "daemon/tiller_daemon/sandbox/temporary_paths.py",
        "TemporaryPaths.used",
        "self._record(A)",
        "pass",
        "tests/sandbox/test_temporary_paths.py"
        "::test_a_path_has_a_record_before_it_exists_and_until_it_is_gone",
    ),
    Fault(
        "what a user has made in place of a killed daemon's placeholder stays",
        "daemon/tiller_daemon/sandbox/temporary_paths.py",
        "remove_abandoned",
        "_is_of(A, B)",
        "os.path.lexists(B)",
        "tests/sandbox/test_temporary_paths.py"
        "::test_what_was_not_made_with_its_record_is_somebody_elses",
    ),
    Fault(
        "an orphan is found while it moves to its reaper",
        "daemon/tiller_daemon/processes/process_table.py",
        "ProcTable.descendants",
        "range(_PASSES)",
        "range(1)",
        "tests/processes/test_slow_deaths.py"
        "::test_orphans_are_found_while_they_move_to_their_reaper",
    ),
    Fault(
        "processes that are still dying don't count as survivors",
        "daemon/tiller_daemon/processes/process_tree.py",
        "ProcessTree.end",
        "A, B = len(C), trio.current_time()",
        "A = len(C)",
        "tests/processes/test_slow_deaths.py"
        "::test_processes_that_die_one_after_the_other_are_no_survivors",
    ),
    Fault(
        "G9 no command removes a directory that another command may write to",
        "daemon/tiller_daemon/sandbox/confinement.py",
        "_missing_made",
        "A in B or not os.path.lexists(A)",
        "not os.path.lexists(A)",
        "tests/sandbox/test_temporary_paths.py"
        "::test_a_command_can_write_to_its_directory_when_one_that_may_not_has_ended",
    ),
    Fault(
        "G9 a read-only directory exists until the last command that needs it has ended",
        "daemon/tiller_daemon/sandbox/bubblewrap.py",
        "Bubblewrap.wrap",
        "[*A, *B]",
        "A",
        "tests/sandbox/test_temporary_paths.py"
        "::test_a_directory_is_there_until_the_last_command_that_needs_it_has_ended",
    ),
)
