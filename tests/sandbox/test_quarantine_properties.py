"""Whatever a command does, nothing that programs execute stays, and nothing is lost."""

import os
import shutil
import tempfile
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

from hypothesis import given, settings
from hypothesis import strategies as st

from tiller_daemon.sandbox.known_paths import is_executed, is_product
from tiller_daemon.sandbox.quarantine import DISABLED, Watch, quarantine
from tiller_daemon.sandbox.scan import Scanner

NAMES: Final = (
    "a", "b", ".git", ".envrc", ".vscode", ".venv", ".x", "mise.toml", "HEAD", ".GIT",
    ".envrc.disabled", "a.code-workspace", "\udcff", ".\n",
)  # fmt: skip

paths = st.lists(st.sampled_from(NAMES), min_size=1, max_size=3).map(lambda parts: Path(*parts))
steps = st.one_of(
    st.tuples(st.just("file"), paths, st.integers()),
    st.tuples(st.just("folder"), paths),
    st.tuples(st.just("link"), paths, st.sampled_from(["../out", "a", ".", "/nonexistent"])),
    st.tuples(st.just("pipe"), paths),
    st.tuples(st.just("move"), paths, paths),
    st.tuples(st.just("mode"), paths, st.sampled_from([0, 0o111, 0o311, 0o555, 0o755])),
    st.tuples(st.just("remove"), paths),
)


def do(root: Path, step: tuple[object, ...]) -> None:
    """Do one step of a command, which may fail."""
    kind, path, *more = step
    assert isinstance(path, Path)
    place = root / path
    # A command in a sandbox writes nothing outside.
    if not os.path.realpath(place.parent).startswith(str(root)):
        return
    with suppress(OSError, shutil.Error):
        match kind:
            case "file":
                with os.fdopen(os.open(place, os.O_CREAT | os.O_EXCL | os.O_WRONLY), "w") as file:
                    file.write(f"content {more[0]}")
            case "folder":
                place.mkdir(parents=True)
            case "link":
                place.symlink_to(str(more[0]))
            case "pipe":
                os.mkfifo(place)
            case "move":
                target = root / str(more[0])
                if not os.path.lexists(target):
                    place.rename(target)
            case "mode":
                if not place.is_symlink():
                    place.chmod(int(str(more[0])))
            case _:
                if place.is_dir() and not place.is_symlink():
                    place.rmdir()


def contents(root: Path) -> list[str]:
    """The content of every file, wherever it is."""
    found: list[str] = []
    for folder, _, files in os.walk(root):
        found += [
            Path(folder, name).read_text()
            for name in files
            if Path(folder, name).is_file() and not Path(folder, name).is_symlink()
        ]
    return sorted(found)


@settings(max_examples=30)  # Each asks git several times.
@given(st.lists(steps, max_size=12), st.lists(steps, max_size=25))
def test_no_new_name_that_programs_execute_stays_and_no_content_is_lost(
    before: list[tuple[object, ...]], after: list[tuple[object, ...]]
) -> None:
    place = Path(tempfile.mkdtemp()).resolve()
    try:
        root, out = place / "w", place / "out"
        for folder in (root, out):
            folder.mkdir()
        (out / "precious").write_text("precious")
        for step in before:
            do(root, step)
        for folder, names, _ in os.walk(root):
            for name in names:
                if not Path(folder, name).is_symlink():
                    Path(folder, name).chmod(0o755)
        scanner = Scanner(root, lambda _: False)
        found = scanner.scan()
        there = {path.name for path in root.iterdir()}
        watch = Watch(root, is_build=True, writable=(root,))
        said: list[str] = []
        planted: set[Path] = set()
        again = partial(scanner.scan_again, found)
        with quarantine(watch, None, found.repositories, again, planted, said.append):
            for step in after:
                do(root, step)
            left = contents(root)
        new = {path.name for path in root.iterdir()} - there
        assert [n for n in new if is_unsafe(n)] == [], said
        assert sorted(path.name for path in out.iterdir()) == ["precious"]
        assert contents(root) == left
        assert repositories(root) - {*found.repositories} == set()
    finally:
        shutil.rmtree(place)


def repositories(root: Path) -> set[Path]:
    """The `.git` in subdirectories that git would find from above or from inside."""
    found: set[Path] = set()
    for folder, names, files in os.walk(root):
        if Path(folder) != root:
            found |= {Path(folder, name) for name in (*names, *files) if name.casefold() == ".git"}
        # git finds no repository around a directory that is in a git directory.
        names[:] = [name for name in names if name != ".git" and DISABLED not in name]
    return found


def is_unsafe(name: str) -> bool:
    """Whether a name at the top must not stay."""
    is_unknown = name.startswith(".") and not is_product(name)
    return (is_unknown or is_executed(name)) and DISABLED not in name
