"""Faults in how frontends find the daemon, and in which directories are homes."""

from fault import Fault

RUNTIME = "client/tiller_client/connecting/runtime.py"
TESTS = "tests/e2e/test_finding_the_daemon.py"

FAULTS = (
    Fault(
        "a frontend finds the daemon of its state directory, wherever its sockets are",
        RUNTIME,
        "runtime_of",
        "A if B and C else places.runtime",
        "places.runtime",
        f"{TESTS}::test_a_verb_without_the_variable_uses_the_daemon_that_runs",
    ),
    Fault(
        "a frontend uses only sockets of its own user's daemon",
        RUNTIME,
        "_read_record",
        "A.st_uid != os.getuid() or A.st_mode & FOR_OTHERS",
        "False",
        f"{TESTS}::test_g14_a_record_that_others_can_write_is_not_followed",
    ),
    Fault(
        "a frontend does not look for a daemon where the last one has crashed",
        RUNTIME,
        "runtime_of",
        "A and A.is_locked",
        "A",
        f"{TESTS}::test_a_record_of_a_daemon_that_was_killed_is_not_followed",
    ),
    Fault(
        "one daemon at a time has the state directory",
        "daemon/tiller_daemon/transport/lock_file.py",
        "LockFile._flock",
        "return A(B, fcntl.LOCK_EX | fcntl.LOCK_NB)",
        "return None",
        f"{TESTS}::test_a_second_daemon_in_another_runtime_directory_leaves_at_once",
    ),
    Fault(
        "no directory that contains the own home or a system path is another user's home",
        "daemon/tiller_daemon/sandbox/known_paths.py",
        "other_homes",
        "A.is_relative_to(B) for A in kept",
        "False for A in kept",
        "tests/sandbox/test_other_homes.py::test_a_directory_around_or_inside_the_own_home_is_none",
    ),
)
