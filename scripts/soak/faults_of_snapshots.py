"""Faults in snapshots: changes that stamps and a watch would miss, and reverts."""

from fault import SESSION, Fault

SNAPSHOTS = "daemon/tiller_daemon/snapshots/"

FAULTS = (
    Fault(
        "B55 history is not reverted without its files",
        SESSION + "reverting.py",
        "put_back",
        "check_workspace(A.workspace)",
        "pass",
        "tests/e2e/test_snapshots.py::test_a_session_whose_workspace_is_gone_can_not_be_reverted",
    ),
    Fault(
        "B55 a file without a snapshot is not said to have been changed",
        SESSION + "reverting.py",
        "files_kept_warnings",
        "A not in B.without_snapshot",
        "True",
        "tests/e2e/test_snapshots.py::test_what_no_snapshot_has_is_named_when_it_stays",
    ),
    Fault(
        "changes are found even if the queue of file events overflowed",
        SNAPSHOTS + "watch.py",
        "Watch.changed",
        "overflown = overflown or bool(mask & _OVERFLOW)",
        "pass",
        "tests/snapshots/test_hidden_changes.py"
        "::test_a_directory_that_was_made_again_among_too_many_events_is_still_watched",
    ),
    Fault(
        "a directory that was removed and made again is watched",
        SNAPSHOTS + "watch.py",
        "Watch.changed",
        "if mask & _ENDED:",
        "if mask & _ENDED and False:",
        "tests/snapshots/test_hidden_changes.py"
        "::test_a_directory_that_was_made_again_is_still_watched",
    ),
    Fault(
        "a change to an ignore file is noticed",
        SNAPSHOTS + "known_workspace.py",
        "KnownWorkspace._check",
        "stamp_at(path + IGNORE_FILE) != directory.ignore_stamp",
        "False",
        "tests/snapshots/test_hidden_changes.py::test_another_rule_in_an_ignore_file_is_seen",
    ),
    Fault(
        "a directory that becomes a repository, or stops being a repository, is noticed",
        SNAPSHOTS + "surroundings.py",
        "Surroundings.are_the_same",
        "_identity_at(path) == identity",
        "True",
        "tests/snapshots/test_hidden_changes.py::test_a_repository_that_is_none_any_more_is_seen",
    ),
    Fault(
        "changes made while the workspace is first read are found",
        SNAPSHOTS + "known_workspace.py",
        "KnownWorkspace.__init__",
        "self._all_seen = True",
        "self._all_seen = False",
        "tests/snapshots/test_hidden_changes.py"
        "::test_what_changes_while_the_files_become_known_is_in_the_next_snapshot",
    ),
    Fault(
        "a directory that replaces the workspace is recognised as another directory",
        SNAPSHOTS + "known_workspace.py",
        "KnownWorkspace.check",
        "(here.st_ino, here.st_dev) != (self.top.inode, self.device)",
        "False",
        "tests/snapshots/test_hidden_changes.py"
        "::test_a_change_above_the_workspace_puts_another_one_in_its_place",
    ),
    Fault(
        "a young stamp is not trusted",
        SNAPSHOTS + "directories.py",
        "trusted",
        "read_ns - tick_ns",
        "read_ns",
        "tests/snapshots/test_known_workspace.py"
        "::test_a_stamp_is_trusted_once_the_clock_has_ticked",
    ),
    Fault(
        "no snapshot refers to content that was removed",
        SNAPSHOTS + "looks.py",
        "Looks.drop",
        "self._not_in_index = {}",
        "pass",
        "tests/snapshots/test_hidden_changes.py"
        "::test_snapshots_go_on_after_a_session_with_the_latest_content_was_deleted",
    ),
)
