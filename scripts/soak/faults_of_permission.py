"""Faults in the permissions of commands: their enclosures, and the network in enclosures."""

from fault import SESSION, Fault

NETWORK = "daemon/tiller_daemon/policy/shell/network.py"
PROTECTED = "daemon/tiller_daemon/sandbox/protected.py"
QUARANTINE = "daemon/tiller_daemon/sandbox/quarantine.py"
IN_QUARANTINE = "tests/sandbox/test_quarantine.py::"

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
        "no command in a sandbox opens a file as set-user-id",
        "daemon/tiller_daemon/sandbox/seccomp.py",
        "_refuse_set_id",
        "_Check(flags + 1, (0,), A)",
        "_Check(flags + 1, (0,), 0)",
        "tests/sandbox/test_set_id.py::test_no_command_makes_a_set_id_file",
    ),
    Fault(
        "B60 a link among hooks is protected where it leads",
        PROTECTED,
        "_executed_by_git",
        "A.is_symlink()",
        "False",
        "tests/e2e/test_linked_hooks.py"
        "::test_b60_a_build_can_not_write_a_hook_that_git_reaches_by_a_link",
    ),
    Fault(
        "B60 no build writes a hook of another repository in the workspace",
        PROTECTED,
        "kept_of_git",
        "(A, *(find_git(B.parent) for B in nested))",
        "(A,)",
        "tests/e2e/test_git_in_builds.py"
        "::test_b60_a_build_writes_no_hook_of_another_repository_in_the_workspace",
    ),
    Fault(
        "B60 where a protected file has another name, builds need approval",
        PROTECTED,
        "_linked",
        "A.st_nlink > 1",
        "False",
        "tests/sandbox/test_home.py::test_where_a_protected_file_has_another_name_builds_ask",
    ),
    Fault(
        "B60 dotfiles that a home links to are not a workspace for builds",
        PROTECTED,
        "UserHome._problem_of_links",
        "entry.is_symlink()",
        "False",
        "tests/sandbox/test_home.py"
        "::test_in_a_workspace_that_is_part_of_a_home_builds_ask_and_so_do_the_editing_tools",
    ),
    Fault(
        "B60 a git directory elsewhere counts only if it names the work tree",
        "daemon/tiller_daemon/sandbox/git_repository.py",
        "_find",
        "_belongs(A, B)",
        "True",
        "tests/sandbox/test_git_repository.py"
        "::test_a_git_directory_elsewhere_counts_only_if_it_names_the_work_tree",
    ),
    Fault(
        "B60 an entry in a closed directory is renamed all the same",
        QUARANTINE,
        "put_aside",
        "_reopen(A)",
        "raise",
        IN_QUARANTINE + "test_no_repository_that_a_build_makes_is_opened_by_the_users_git",
    ),
    Fault(
        "B60 a directory that a build has closed is put aside",
        "daemon/tiller_daemon/sandbox/scan.py",
        "Scanner.scan_again",
        "A not in B.closed",
        "False",
        IN_QUARANTINE + "test_no_repository_that_a_build_makes_is_opened_by_the_users_git",
    ),
    Fault(
        "B60 no link stays in a git directory",
        QUARANTINE,
        "_odd_below",
        "not stat.S_ISREG(A)",
        "False",
        IN_QUARANTINE + "test_what_an_approved_git_command_leaves_in_a_git_directory_is_data",
    ),
    Fault(
        "a rename replaces nothing",
        QUARANTINE,
        "_rename",
        "os.stat(A, dir_fd=B, follow_symlinks=False)",
        "raise FileNotFoundError",
        IN_QUARANTINE + "test_a_rename_follows_no_link_and_replaces_nothing",
    ),
    Fault(
        "B60 the next daemon puts aside what a killed daemon's command made",
        QUARANTINE,
        "quarantine",
        "_write_record(A, _Record(B, C))",
        "None",
        IN_QUARANTINE + "test_the_next_daemon_puts_aside_what_a_killed_daemons_command_made",
    ),
    Fault(
        "a commit that is checked out keeps all its files",
        QUARANTINE,
        "_top_level",
        'A.git_use == "work_tree"',
        "False",
        IN_QUARANTINE
        + "test_what_a_commit_contains_is_checked_out_and_a_commit_itself_changes_nothing",
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
        "a command whose sandbox could not be set up does not count as run",
        "daemon/tiller_daemon/processes/command.py",
        "run_command",
        "A._replace(has_run=False)",
        "A",
        "tests/tools/commands/test_bash.py"
        "::test_a_command_whose_sandbox_can_not_be_set_up_did_not_run",
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
)
