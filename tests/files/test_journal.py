"""Journals as files: what is there is read, what is not is no error, and damage is reported."""

from pathlib import Path

import pytest
from msgspec import Struct
from structlog.testing import capture_logs

from tiller_daemon.files.journal import read_journal, write_journal


class Record(Struct):
    """What a journal records here."""

    paths: list[bytes]


RECORD = Record([b"a", b"\xff name that is no text"])


def test_a_journal_is_read_as_it_was_written(tmp_path: Path):
    write_journal(tmp_path / "journal", RECORD)
    with capture_logs() as logged:
        assert read_journal(tmp_path / "journal", Record) == RECORD
        assert read_journal(tmp_path / "none", Record) is None
    assert logged == []


@pytest.mark.parametrize("length", [0, 1, 10, -1])
def test_a_journal_that_is_cut_off_is_none_and_the_log_says_so(tmp_path: Path, length: int):
    path = tmp_path / "journal"
    write_journal(path, RECORD)
    path.write_bytes(path.read_bytes()[:length])
    with capture_logs() as logged:
        assert read_journal(path, Record) is None
    assert [(one["event"], one["journal"]) for one in logged] == [("journal_unreadable", str(path))]
