"""The file of the log: its modes, its lock, and errors when it can't be used (B51, T10)."""

import random
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
import trio
import trio.testing

from store.rows import batch_of, body_of, session_row, submission_row
from tiller_daemon.store.base import LogError, RequestRow
from tiller_daemon.store.checking import check_log
from tiller_daemon.store.log import open_log
from tiller_daemon.store.schema import (
    SCHEMA_VERSION,
    SESSION_FIELDS,
    VERSIONS_WITH_COLUMNS,
    checksum,
)
from tiller_protocol.snapshot import SessionSummary

MUCH = 1 << 30


async def fill(path: Path, sessions: int = 3, events: int = 40) -> None:
    async with open_log(path) as log:
        for number in range(sessions):
            name = f"s{number}"
            submission = submission_row(f"sub{number}")
            requests = (RequestRow(f"r{number}", name, "once", "mail"),)
            await log.append(
                batch_of(name, 1, events, submission=submission, requests=requests, bytes_min=200)
            )


def files_in(directory: Path) -> list[str]:
    return sorted(found.name for found in directory.iterdir())


async def failure(path: Path) -> LogError:
    with pytest.raises(LogError) as raised:
        async with open_log(path):
            pass
    assert str(path) in raised.value.message
    return raised.value


async def test_only_the_owner_can_read_the_file_and_the_directory(tmp_path: Path) -> None:
    """G14."""
    path = tmp_path / "state" / "deep" / "tiller.db"
    async with open_log(path) as log:
        await log.append(batch_of("a", 1, 1))
        modes = {found.name: found.stat().st_mode & 0o777 for found in path.parent.iterdir()}
        assert set(modes.values()) == {0o600}
        assert path.parent.stat().st_mode & 0o777 == 0o700


async def test_the_id_of_a_log_stays_and_no_two_logs_share_one(tmp_path: Path) -> None:
    seen: list[str] = []
    for name in ("a.db", "a.db", "b.db"):
        async with open_log(tmp_path / name) as log:
            seen.append(log.log_id)
            assert log.path == str(tmp_path / name)
    assert seen[0] == seen[1] != seen[2]


async def test_a_closed_log_rejects_writes_and_leaves_one_complete_file(tmp_path: Path) -> None:
    path = tmp_path / "tiller.db"
    async with open_log(path) as log:
        await log.append(batch_of("a", 1, 2))
    with pytest.raises(LogError) as raised:
        await log.append(batch_of("a", 3, 3))
    assert raised.value.kind == "closed"
    assert files_in(tmp_path) == ["tiller.db"]


async def test_closing_commits_queued_batches_first(tmp_path: Path) -> None:
    path = tmp_path / "tiller.db"
    async with trio.open_nursery() as nursery, open_log(path) as log:
        for number in range(50):
            nursery.start_soon(log.append, batch_of(f"s{number}", 1, 1))
        await trio.testing.wait_all_tasks_blocked(0.0)
    async with open_log(path) as log:
        assert await log.count() == 50


@pytest.mark.promise("T10")
async def test_a_second_process_is_kept_out_while_the_log_is_open(tmp_path: Path) -> None:
    """T10: two connections can damage the file, also with two runtime directories."""
    path = tmp_path / "tiller.db"
    other = f"import sqlite3; sqlite3.connect({str(path)!r}, timeout=0).execute('BEGIN IMMEDIATE')"
    command = [sys.executable, "-c", other]
    async with open_log(path):
        found = await trio.to_thread.run_sync(
            lambda: subprocess.run(command, capture_output=True, check=False)
        )
    assert b"database is locked" in found.stderr


@pytest.mark.nightly
async def test_a_log_that_another_process_has_open_is_refused_with_advice(tmp_path: Path) -> None:
    path = tmp_path / "tiller.db"
    await fill(path)
    holder = hold_open(path)
    try:
        assert holder.stdout is not None
        assert await trio.to_thread.run_sync(holder.stdout.readline) == b"held\n"
        error = await failure(path)
        assert (error.kind, "another process has it open" in error.message) == ("io", True)
    finally:
        holder.communicate(b"\n")


def hold_open(path: Path) -> subprocess.Popen[bytes]:
    script = (
        f"import sqlite3; c = sqlite3.connect({str(path)!r}); c.execute('BEGIN EXCLUSIVE');"
        " print('held', flush=True); input()"
    )
    command = [sys.executable, "-c", script]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


@pytest.mark.parametrize(("other", "step"), [("newer", 1), ("older", -3)])
async def test_a_log_of_another_version_is_refused_and_left_as_it_is(
    tmp_path: Path, other: str, step: int
) -> None:
    path = tmp_path / "tiller.db"
    await fill(path)
    set_version(path, SCHEMA_VERSION + step)
    before = path.read_bytes()
    error = await failure(path)
    assert (error.kind, f"install the {other} tillerd" in error.message) == (other, True)
    assert path.read_bytes() == before


@pytest.mark.parametrize("version", VERSIONS_WITH_COLUMNS)
async def test_a_log_with_columns_for_figures_keeps_everything_in_the_new_form(
    tmp_path: Path, version: int
) -> None:
    path = tmp_path / "tiller.db"
    await fill(path)
    figures = (2, 0.5, 1, 300, 1000, "main", "failed")[: len(VERSIONS_WITH_COLUMNS[version])]
    make_columns(path, version, {"s0": figures, "s1": (0, None, 0, 0, 0, "", "")[: len(figures)]})
    check_log(path)
    async with open_log(path) as log:
        for name, known in (("s0", figures), ("s1", ())):
            row = await log.session(name)
            assert row
            assert msgspec.structs.replace(row, summary=b"") == session_row(name, 40)
            summary = msgspec.msgpack.decode(row.summary, type=SessionSummary)
            outcome = known[6] if len(known) > 6 else None
            assert (summary.session_id, summary.head) == (name, 40)
            assert (summary.turns, summary.branch, summary.last_outcome) == (
                (2, "main", outcome) if known else (0, "", None)
            )
        with pytest.raises(LogError, match="the row of session s2"):
            await log.session("s2")


def make_columns(path: Path, version: int, figures: dict[str, tuple[object, ...]]) -> None:
    """Give figures columns of their own, as older releases did; damage the other rows."""
    columns = VERSIONS_WITH_COLUMNS[version]
    own = ", ".join(SESSION_FIELDS[:-1])
    with sqlite3.connect(path) as connection:
        connection.execute("ALTER TABLE sessions DROP COLUMN summary")
        for name in columns:
            connection.execute(f"ALTER TABLE sessions ADD COLUMN {name}")
        for row in connection.execute(f"SELECT {own} FROM sessions").fetchall():
            values = [bool(v) if n in (6, 7) else v for n, v in enumerate(row)]
            known = figures.get(row[0], figures["s0"])
            covered = known if known[-1] or version < 4 else known[:-1]
            stored = checksum(*values, *covered) + (row[0] not in figures)
            settings = ", ".join(f"{name} = ?" for name in columns)
            change = f"UPDATE sessions SET {settings}, checksum = ? WHERE session_id = ?"
            connection.execute(change, (*known, stored, row[0]))
    connection.close()
    set_version(path, version)


@pytest.mark.parametrize("version", ["s", "", b"\xb3"])
async def test_a_damaged_version_is_an_error(tmp_path: Path, version: str | bytes) -> None:
    path = tmp_path / "tiller.db"
    await fill(path)
    set_version(path, version)
    error = await failure(path)
    assert (error.kind, "the table meta" in error.message) == ("corrupt", True)


def set_version(path: Path, version: int | str | bytes) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE meta SET value = ? WHERE key = 'version'", (version,))
    connection.close()


async def test_a_file_that_is_no_log_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    garbage, foreign = tmp_path / "garbage.db", tmp_path / "foreign.db"
    garbage.write_bytes(random.Random(1).randbytes(10_000))
    with sqlite3.connect(foreign) as connection:
        connection.execute("CREATE TABLE mine (x)")
    connection.close()
    for path in (garbage, foreign):
        before = path.read_bytes()
        assert (await failure(path)).kind == "corrupt"
        if path is garbage:
            assert path.read_bytes() == before


async def test_a_link_in_place_of_the_file_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "target").touch()
    (tmp_path / "tiller.db").symlink_to(tmp_path / "target")
    assert (await failure(tmp_path / "tiller.db")).kind == "io"


async def test_a_tail_that_was_half_written_is_dropped_and_the_rest_is_there(
    tmp_path: Path,
) -> None:
    """B51: cut the write-ahead file at any byte; what is left is a prefix of what was committed."""
    path = tmp_path / "tiller.db"
    copy = tmp_path / "copy" / "tiller.db"
    copy.parent.mkdir()
    wal = path.with_name("tiller.db-wal")
    async with open_log(path) as log:
        for seq in range(1, 21):
            await log.append(batch_of("a", seq, seq, bytes_min=500))
        main, tail = path.read_bytes(), wal.read_bytes()
    heads: list[int] = []
    for cut in random.Random(7).sample(range(len(tail)), 40):
        copy.write_bytes(main)
        copy.with_name(wal.name).write_bytes(tail[:cut])
        async with open_log(copy) as log:
            head = await log.head("a")
            events = await log.events("a", 0, 100, MUCH)
            assert events == [body_of("a", seq, 500) for seq in range(1, head + 1)]
            await log.append(batch_of("a", head + 1, head + 1))
            heads.append(head)
    assert max(heads) > min(heads)


@pytest.mark.promise("B51")
async def test_no_flipped_bit_is_ever_read_as_if_it_were_true(tmp_path: Path) -> None:
    """B51: an event, an answer or a row is as it was written, or an error that names the file."""
    original, path = tmp_path / "original.db", tmp_path / "tiller.db"
    await fill(original)
    whole = original.read_bytes()
    source = random.Random(20)
    found = 0
    for _ in range(150):
        place = source.randrange(100, len(whole))
        damaged = bytearray(whole)
        damaged[place] ^= 1 << source.randrange(8)
        path.write_bytes(damaged)
        for tail in path.parent.glob("tiller.db-*"):
            tail.unlink()
        found += await count_errors(path)
    assert found > 40


async def count_errors(path: Path) -> int:
    errors: list[str] = []
    try:
        async with open_log(path) as log:
            for number in range(3):
                name = f"s{number}"
                try:
                    rows = await log.events(name, 0, 1000, MUCH)
                    assert rows in ([], [body_of(name, seq, 200) for seq in range(1, 41)])
                    assert await log.session(name) in (None, session_row(name, 40))
                    answer = await log.submission(f"sub{number}")
                    assert answer in (None, submission_row(f"sub{number}"))
                    request = await log.requests(f"r{number}")
                    assert request in ([], [RequestRow(f"r{number}", name, "once", "mail")])
                except LogError as error:
                    errors.append(error.kind)
            for row in await log.sessions(workspace=None, archived=False, limit=9, after=None):
                assert row == session_row(row.session_id, 40)
    except LogError as error:
        errors.append(error.kind)
    assert set(errors) <= {"corrupt", "newer", "older"}
    return len(errors)


@pytest.mark.promise("B51")
async def test_a_damaged_session_stops_no_other(tmp_path: Path) -> None:
    """B51: the error names the event; the other sessions are read and written."""
    path = tmp_path / "tiller.db"
    await fill(path)
    whole = path.read_bytes()
    path.write_bytes(whole.replace(body_of("s1", 20), b"S" + body_of("s1", 20)[1:]))
    async with open_log(path) as log:
        with pytest.raises(LogError, match="event 20 of session s1") as raised:
            await log.events("s1", 0, 1000, MUCH)
        assert raised.value.kind == "corrupt"
        assert len(await log.events("s1", 0, 19, MUCH)) == 19
        for name in ("s0", "s2"):
            assert len(await log.events(name, 0, 1000, MUCH)) == 40
            await log.append(batch_of(name, 41, 41))


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (
            "events SET body = 'other' WHERE session_id = 's1' AND seq = 20",
            "event 20 of session s1",
        ),
        ("sessions SET title = 'other' WHERE session_id = 's2'", "the row of session s2"),
        ("submissions SET answer = 'other' WHERE submission_id = 'sub0'", "submission sub0"),
        ("requests SET who = 'other' WHERE request_id = 'r1'", "the row of request r1"),
    ],
)
@pytest.mark.promise("B51")
async def test_a_check_finds_the_row_that_is_not_as_it_was_written(
    tmp_path: Path, change: str, what: str
) -> None:
    path = tmp_path / "tiller.db"
    await fill(path)
    check_log(path)
    with sqlite3.connect(path) as connection:
        connection.execute(f"UPDATE {change}")
    connection.close()
    with pytest.raises(LogError, match=what):
        check_log(path)


async def test_a_missing_event_is_an_error_and_no_gap(tmp_path: Path) -> None:
    """G2: index and events that disagree are never handed out as if they were whole."""
    path = tmp_path / "tiller.db"
    await fill(path)
    with sqlite3.connect(path) as connection:
        connection.execute("DELETE FROM events WHERE session_id = 's1' AND seq = 7")
        connection.execute("DELETE FROM events WHERE session_id = 's2' AND seq > 38")
    connection.close()
    async with open_log(path) as log:
        for name, after, missing in (("s1", 0, 7), ("s1", 6, 7), ("s2", 38, 39)):
            with pytest.raises(LogError, match=f"event {missing} of session {name}"):
                await log.events(name, after, 1000, MUCH)
        assert len(await log.events("s1", 7, 1000, MUCH)) == 33


async def test_a_backup_of_the_closed_file_opens_as_the_same_log(tmp_path: Path) -> None:
    await fill(tmp_path / "tiller.db")
    shutil.copy(tmp_path / "tiller.db", tmp_path / "copy.db")
    async with open_log(tmp_path / "copy.db") as log:
        assert await log.head("s2") == 40
