"""Which diagnostics are new after a change, and their text."""

from tiller_daemon.lsp.diagnostics import (
    MESSAGE_CHARS_MAX,
    SHOWN_MAX,
    format_diagnostics,
    new_errors,
)
from tiller_daemon.lsp.messages import Diagnostic, Position, Range


def error(line: int, message: str = "bad", severity: int = 1) -> Diagnostic:
    return Diagnostic(Range(Position(line, 4)), message, severity, "code")


def test_an_error_that_only_moved_is_not_new() -> None:
    before, after = "a\nwrong\n", "new\nnew\na\nwrong\n"
    assert new_errors([error(1)], before, [error(3)], after) == []


def test_a_second_error_of_the_same_kind_is_new() -> None:
    before, after = "wrong\n", "wrong\nwrong\nother\n"
    report = [error(0), error(1), error(2)]
    assert new_errors([error(0)], before, report, after) == [error(1), error(2)]


def test_an_error_on_a_changed_line_is_reported_again() -> None:
    assert new_errors([error(0)], "wrong\n", [error(0)], "wrong still\n") == [error(0)]


def test_warnings_are_not_reported_after_a_change() -> None:
    assert new_errors([], "", [error(0, severity=2)], "x\n") == []


def test_a_line_number_out_of_range_is_harmless() -> None:
    assert new_errors([error(7)], "", [error(2**31), error(-1)], "x\n")


def test_diagnostics_are_sorted_by_position_and_bounded_with_errors_first() -> None:
    many = [error(n, severity=2) for n in range(SHOWN_MAX)] + [error(99, "x" * 1000), error(98)]
    lines = format_diagnostics(many).splitlines()
    assert len(lines) == SHOWN_MAX + 1
    assert lines[-1] == "  … 2 more"
    assert lines[0] == "  1:5 warning: bad (code)"
    assert lines[-3] == "  99:5 error: bad (code)"
    assert len(lines[-2]) < MESSAGE_CHARS_MAX + 40


def test_a_message_of_many_lines_is_one() -> None:
    assert format_diagnostics([error(0, "type X\n  is not\tY\x1b[2J")]).count("\n") == 0
