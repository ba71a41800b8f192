"""Putting files back, killed at any of its system calls; all else of it is in `test_snapshots`."""

import os
from itertools import count
from pathlib import Path

from support.interrupted_edits import UNREACHED, in_child
from tiller_daemon.workspace.restoring import (
    EXECUTABLE,
    LINK,
    PLAIN,
    Entry,
    Move,
    blob_id,
    put_back,
)

OLD, NEW = b"old\n", b"new\n"


def entry(mode: int, content: bytes) -> Entry:
    return Entry(mode, blob_id(content))


MOVES = (
    Move("a", entry(PLAIN, OLD), entry(EXECUTABLE, NEW)),
    Move("gone", entry(PLAIN, OLD), None),
    Move("link", entry(PLAIN, OLD), entry(LINK, NEW)),
    Move("made", None, entry(PLAIN, NEW)),
)
CONTENTS = {blob_id(content): content for content in (OLD, NEW)}


def put(work: Path) -> None:
    work.mkdir(exist_ok=True)
    for path in work.iterdir():
        path.unlink()
    for move in MOVES:
        if move.expected:
            (work / move.path).write_bytes(OLD)


def tree(work: Path) -> dict[str, bytes]:
    return {
        path.name: os.fsencode(path.readlink()) if path.is_symlink() else path.read_bytes()
        for path in work.iterdir()
    }


def test_g11_a_kill_at_any_system_call_is_undone_and_leaves_nothing_beside_the_files(tmp_path):
    work = tmp_path / "work"
    put(work)
    before = tree(work)
    halves = 0
    for number in count():
        put(work)
        ended = in_child(lambda: len(put_back(work, MOVES, CONTENTS)), "kill", number)
        if ended == UNREACHED:
            break
        halves += tree(work) != before
        back = [move.reversed() for move in MOVES]
        in_child(lambda moves=back: len(put_back(work, moves, CONTENTS)), "kill", number % 30)
        put_back(work, back, CONTENTS)
        assert tree(work) == before, f"call {number}"
    assert halves > 20
    assert set(tree(work)) == {"a", "link", "made"}
