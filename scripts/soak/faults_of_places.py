"""Faults in how frontends find the daemon, and the daemon its programs."""

from fault import Fault

ISOLATION = "daemon/tiller_daemon/isolation.py"
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
        "B60 a directory that everybody can write is not trusted",
        ISOLATION,
        "_is_for_programs",
        "not mode & stat.S_IWOTH",
        "True",
        "tests/test_isolation.py::test_the_daemon_finds_no_program_where_commands_may_write",
    ),
    Fault(
        "B60 a link to a program that commands may write is not followed",
        ISOLATION,
        "find_program",
        "is_program(program) and is_trusted(real.parent)",
        "is_program(program)",
        "tests/test_isolation.py::test_a_link_to_a_program_that_commands_may_write_is_not_found",
    ),
)
