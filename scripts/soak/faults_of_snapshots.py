"""Faults in snapshots and reverts."""

from fault import SESSION, Fault

SNAPSHOTS = "daemon/tiller_daemon/snapshots/"

FAULTS = (
    Fault(
        "B55 history is not reverted without its files",
        SESSION + "reverting.py",
        "put_back",
        "check_workspace(A.workspace, A.session_id)",
        "pass",
        "tests/e2e/test_snapshots.py::test_a_session_whose_workspace_is_gone_can_not_be_reverted",
    ),
    Fault(
        "B55 a file without a snapshot is not said to have been changed",
        SESSION + "reverting.py",
        "files_kept_warnings",
        "A not in B",
        "True",
        "tests/e2e/test_snapshots.py::test_what_no_snapshot_has_is_named_when_it_stays",
    ),
    Fault(
        "a file that was ignored before the step is not removed by a revert",
        SNAPSHOTS + "origins.py",
        "foreign_changes",
        "one.before is None and is_in(one.path, before.left_out)",
        "False",
        "tests/e2e/test_reverts_keep.py",
    ),
    Fault(
        "a file that was moved from a place without snapshots is not removed by a revert",
        SNAPSHOTS + "origins.py",
        "_may_be_moved",
        "times.born_ns < begin_ns",
        "False",
        "tests/e2e/test_reverts_keep.py",
    ),
    Fault(
        "the daemon's own files are in no snapshot",
        SNAPSHOTS + "taking.py",
        "Taker._classify",
        "and not is_in(name, own)",
        "",
        "tests/e2e/test_reverts_keep.py",
    ),
)
