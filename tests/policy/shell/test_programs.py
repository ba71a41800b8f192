"""The table of programs: one record for each program, and one meaning for each subcommand."""

from collections import Counter

from tiller_daemon.policy.shell.programs import TABLE, UNKNOWN, find_program


def test_every_program_has_one_record():
    names = Counter(name for group in TABLE for name in group.split())
    assert [name for name, count in names.items() if count > 1] == []


def test_no_subcommand_both_reads_and_builds():
    for group, program in TABLE.items():
        assert not set(program.reads.split()) & set(program.builds.split()), group


def test_a_program_without_a_record_is_unknown():
    assert find_program("curl") is UNKNOWN
    assert find_program("git").uses_of("push") == ()
