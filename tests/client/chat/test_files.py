"""Paths that complete `@`: which come first, what git ignores, and what a key costs."""

import asyncio
import subprocess
from pathlib import Path
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from support.each import each
from tiller_client.chat.files import WorkspaceFiles, list_files

GIT = ("git", "-c", "user.name=t", "-c", "user.email=t@example.invalid")


def with_files(*paths: str) -> WorkspaceFiles:
    files = WorkspaceFiles(Path("/nonexistent"))
    files.take(paths)
    return files


@each(
    ("query", "paths"),
    [
        ("loop", ["loop", "loop.py", "a/loops.py", "turn/turn_loop.py", "a/xloop.py", "loop/x.py"]),
        ("LOOP.PY", ["src/loop.py", "src/xloop.py"]),
        ("queue", ["inputQueue.ts", "requeue.ts"]),
        ("turn/lo", ["turn/loop.py", "src/turn/loop.py"]),
        ("sact", ["session/actor.py", "s/about/cat.py"]),
        ("wf", ["workspace_files.py", "away/of/it.py"]),
        ("src", ["src/", "lib/src/", "src/a.py"]),
    ],
)
def test_what_people_mean_comes_first(query: str, paths: list[str]):
    found = with_files(*reversed([path for path in paths if not path.endswith("/")]), "lib/src/q")
    best = [path for path in found.matches(query, 50) if path in paths]
    assert best == paths


def has_in_order(text: str, letters: str) -> bool:
    rest = iter(text)
    return all(letter in rest for letter in letters)


PATHS = st.lists(st.text("aAb_/.", min_size=1, max_size=8).map(lambda path: f"x{path}x"))


@given(PATHS, st.text("abx/_.A", min_size=1, max_size=4), st.integers(1, 9))
def test_all_that_have_the_letters_in_order_match_and_a_limit_takes_the_best(paths, query, limit):
    files = with_files(*paths)
    everything = files.matches(query, 1000)
    names = {path[: end + 1] for path in paths for end, c in enumerate(path) if c == "/"}
    expected = [path for path in {*paths, *names} if has_in_order(path.lower(), query.lower())]
    assert sorted(everything) == sorted(expected)
    assert files.matches(query, limit) == everything[:limit]


def test_git_says_what_to_ignore_and_without_it_build_products_are_skipped(tmp_path: Path):
    for name in ("kept.py", "new file.py", "ignored.log", "ü.py", "deep/er/x.py", "venv/y.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / ".gitignore").write_text("*.log\n")
    plain = set(list_files(tmp_path) or ())
    assert plain == {".gitignore", "kept.py", "new file.py", "ignored.log", "ü.py", "deep/er/x.py"}
    subprocess.run([*GIT, "init", "-q"], cwd=tmp_path, check=True)
    subprocess.run([*GIT, "add", "kept.py"], cwd=tmp_path, check=True)
    expected = (plain - {"ignored.log"}) | {"venv/y.py"}
    assert set(list_files(tmp_path) or ()) == expected
    assert set(list_files(tmp_path / "deep") or ()) == {"er/x.py"}


def test_a_refresh_shows_what_is_new_and_a_failed_one_keeps_what_there_was(tmp_path: Path):
    async def play() -> None:
        files = WorkspaceFiles(tmp_path)
        assert files.matches("a", 9) == []
        (tmp_path / "a.py").touch()
        await asyncio.gather(files.refresh(), files.refresh())
        assert files.matches("a", 9) == ["a.py"]
        (tmp_path / "sub").mkdir()
        (tmp_path / "sub" / "b.py").touch()
        await files.refresh()
        assert files.matches("", 9) == ["a.py", "sub/", "sub/b.py"]

    asyncio.run(play())


def test_a_key_ranks_a_part_of_a_large_repository_only():
    """By counts, as times depend on the machine: `scripts/bench/completion.py` prints both."""
    source = Random(5)
    syllables = ("re", "con", "tro", "lle", "vi", "ew", "mo", "del", "te", "st", "a", "x")
    words = ["".join(source.choices(syllables, k=3)) for _ in range(300)]
    paths = ["/".join(source.choices(words, k=5)) + ".py" for _ in range(5_000)]
    files = with_files(*paths)
    for typed in ("r", "re", "rec", "retro", "recontro.p"):
        before = files.scored
        assert len(files.matches(typed, 12)) == 12
        assert files.scored - before <= len(paths) // 2
