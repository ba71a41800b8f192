"""`glob` and `grep` find the very files that a look at everything finds, and no others."""

import subprocess
import tempfile
from pathlib import Path

import pytest
import trio
from hypothesis import given, settings

from support.trees import fits, patterns, plant, trees
from tiller_daemon.tools.search.ripgrep import ALWAYS, find_ripgrep

NO_FILE = "No file matches. Files that git ignores are left out."
NO_LINE = "No line matches. Binary files and files that git ignores are left out."


def listed(place: Path) -> list[str]:
    """All files that are not ignored."""
    done = subprocess.run(
        [find_ripgrep()[0], *ALWAYS, "--files"], cwd=place, capture_output=True, check=False
    )
    return [path.decode() for path in done.stdout.split(b"\0") if path]


@settings(max_examples=100, deadline=None)
@given(tree=trees, pattern=patterns)
@pytest.mark.nightly
def test_a_pattern_finds_what_a_look_at_every_file_finds(bench_in, tree, pattern):
    with tempfile.TemporaryDirectory() as place:
        bench = bench_in(Path(place).resolve())
        plant(bench.workspace, tree)
        wanted = {path for path in listed(bench.workspace) if fits(pattern, path)}
        found = trio.run(lambda: bench.call("glob", pattern=pattern)).output
        assert set(found.split("\n")) == (wanted or {NO_FILE})
        found = trio.run(lambda: bench.call("grep", pattern="", include=pattern)).output
        files = [line for line in found.split("\n") if "\t" not in line]
        assert files == (sorted(wanted) or [NO_LINE])
