"""What a known workspace costs, and what a watch misses."""

import mmap
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.stamps import let_stamps_age
from tiller_daemon.isolation import find_program
from tiller_daemon.snapshots.directories import TICK_NS, Stamp, trusted
from tiller_daemon.snapshots.ignore_files import may_match, parse_patterns
from tiller_daemon.snapshots.looks import LEARN_FROM, QUICK_FILES_MAX, Looks
from tiller_daemon.snapshots.shadow_repository import ShadowRepository
from tiller_daemon.snapshots.watch import is_local

needs_watch = pytest.mark.skipif(
    sys.platform != "linux" or not is_local(Path("/tmp").resolve()),
    reason="needs inotify on a local disk",
)

EVENTS_MAX = 16_384
"""What inotify queues by default (`max_queued_events`)."""

GIT = find_program("git")

_started: list[str] = []


def _note_start(event: str, arguments: tuple[object, ...]) -> None:
    if event == "subprocess.Popen":
        _started.append(str(arguments[0]))


sys.addaudithook(_note_start)


@pytest.fixture
def started() -> Iterator[list[str]]:
    """The programs that were started."""
    _started.clear()
    yield _started
    _started.clear()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    place = tmp_path / "w"
    for number in range(20):
        (place / f"d{number % 4}").mkdir(parents=True, exist_ok=True)
        (place / f"d{number % 4}" / f"f{number}").write_text("1")
    (place / ".gitignore").write_text("*.log\nbuild/\n")
    return place


@pytest.fixture
def looks(root: Path, tmp_path: Path) -> Iterator[Looks]:
    shadow = ShadowRepository(tmp_path / "s", root, {"PATH": os.environ["PATH"]})
    let_stamps_age(tmp_path)
    looks = Looks(shadow, lambda *_: False, tuple)
    yield looks
    looks.forget()


async def learn(looks: Looks) -> str:
    for _ in range(LEARN_FROM - 1):
        await looks.take(thorough=True)
    tree = await looks.take(thorough=True)
    assert looks.is_known
    # The watch is enough from here on.
    assert await looks.take(thorough=False) == tree
    return tree


@needs_watch
async def test_a_step_that_makes_one_file_starts_no_git(
    looks: Looks, root: Path, started: list[str]
):
    await learn(looks)
    started.clear()
    before = await looks.take(thorough=False)
    (root / "d1" / "new").write_text("one\ntwo")
    after = await looks.take(thorough=False)
    changes = looks.changes(before, after)
    assert changes
    (change,) = changes
    assert (change.path, change.before, change.added, change.removed) == ("d1/new", None, 2, 0)
    (root / "d1" / "new").write_text("other")
    assert await looks.take(thorough=False) not in (before, after)
    (root / "d1" / "new").unlink()
    assert await looks.take(thorough=False) == before
    assert started == []


async def test_git_decides_about_names_that_an_ignore_file_may_match(
    looks: Looks, root: Path, started: list[str]
):
    before = await learn(looks)
    started.clear()
    (root / "d1" / "x.log").write_text("1")
    (root / "build").mkdir()
    (root / "build" / "x").write_text("1")
    assert await looks.take(thorough=False) == before
    assert started == [GIT]
    (root / "rebuild").write_text("1")
    assert await looks.take(thorough=False) != before
    assert started == [GIT, GIT]


@needs_watch
async def test_changes_that_a_watch_misses_are_found_when_the_turn_ends(
    looks: Looks, root: Path, tmp_path: Path
):
    await learn(looks)
    os.link(root / "d1" / "f1", tmp_path / "elsewhere")
    before = await looks.take(thorough=False)
    (tmp_path / "elsewhere").write_text("other")
    assert await looks.take(thorough=False) == before
    missed = await looks.missed()
    assert missed
    assert missed[0] == before
    assert await looks.missed() is None
    assert await looks.take(thorough=False) == missed[1]


@needs_watch
async def test_what_others_changed_after_the_last_step_is_not_found_when_the_turn_ends(
    looks: Looks, root: Path
):
    before = await learn(looks)
    (root / "d2" / "f2").write_text("by the user")
    assert await looks.missed() is None
    assert await looks.take(thorough=False) != before


async def test_a_mapping_that_is_closed_is_seen(looks: Looks, root: Path):
    before = await learn(looks)
    with (root / "d1" / "f1").open("r+b") as stream, mmap.mmap(stream.fileno(), 0) as mapped:
        mapped[0] = ord("x")
    assert await looks.take(thorough=False) != before


async def test_more_events_than_the_system_keeps_lose_no_change(looks: Looks, root: Path):
    before = await learn(looks)
    for number in range(EVENTS_MAX // 4 + 1):
        # Different events in turn, as equal ones are joined.
        (root / "d1" / f"n{number}").touch()
        (root / "d1" / f"n{number}").unlink()
    (root / "d3" / "f3").write_text("other")
    assert await looks.take(thorough=False) != before


async def test_many_changes_are_left_to_git_and_then_known(
    looks: Looks, root: Path, started: list[str]
):
    before = await learn(looks)
    for number in range(QUICK_FILES_MAX * 3):
        (root / "d1" / f"n{number}").write_text(str(number))
    after = await looks.take(thorough=False)
    for number in range(QUICK_FILES_MAX * 3):
        (root / "d1" / f"n{number}").unlink()
    assert await looks.take(thorough=False) == before != after
    assert started


@pytest.mark.parametrize(("age_ns", "is_trusted"), [(TICK_NS - 1, False), (TICK_NS + 1, True)])
def test_a_stamp_is_trusted_once_the_clock_has_ticked(age_ns: int, *, is_trusted: bool):
    now_ns = 1_000_000_000_123_456_789
    stamp: Stamp = (now_ns - 10**12, now_ns - age_ns, 1, 1, 1)
    assert (trusted(stamp, now_ns) == stamp) is is_trusted
    assert trusted((stamp[0], now_ns // 10**9 * 10**9, 1, 1, 1), now_ns) is None


@pytest.mark.parametrize(
    ("pattern", "matches", "misses"),
    [
        ("*.log", "d/a.log", "d/a.txt"),
        ("/build/", "build", "bui"),
        ("a*b?c", "axbyc", "ab"),
        ("x[ab]y", "xay", "y"),
        ("**", "anything", None),
        ("\\#a", "#a", None),
        ("foo \r", "foo", "fo"),
    ],
)
def test_only_names_that_surely_do_not_match_are_decided_without_git(
    pattern: str, matches: str, misses: str | None
):
    patterns = parse_patterns(f"# no pattern\n!not\n\n{pattern}\n".encode())
    assert may_match(matches, [patterns])
    assert misses is None or not may_match(misses, [patterns])


def test_git_ignores_nothing_that_surely_does_not_match(tmp_path: Path):
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    names = ("a", "ab", "a.b", "d/a", "d/e/ab", "[a]", "a b", "#a", "!a")
    lines = ("a", "*", "?", "a*", "*b", "d/", "/a", "d/**", "**/ab", "[a]", "\\[a\\]", "\\#a", "!a")
    for line in (*lines, "a b", "a\\ b ", "d/*/ab", "[!b]", "a.?", "\\!a"):
        (tmp_path / ".gitignore").write_text(line)
        asked = subprocess.run(
            ["git", "check-ignore", "--no-index", "--stdin"],
            cwd=tmp_path,
            input="".join(f"./{name}\n" for name in names),
            capture_output=True,
            text=True,
        )
        patterns = parse_patterns(line.encode())
        ignored = {name.removeprefix("./") for name in asked.stdout.split("\n") if name}
        assert all(may_match(name, [patterns]) for name in ignored), (line, ignored)
