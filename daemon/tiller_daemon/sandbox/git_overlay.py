"""Gives a command a private copy of a git directory, and merges data back from the copy.

Git executes programs that its configuration, hooks and some state files name. So a command never
writes to the git directory itself. Bubblewrap mounts an overlay on the directory; git in the
sandbox still runs the repository's own hooks. When the command and all its processes have ended,
data is merged back from the overlay: objects, refs, logs, `HEAD`, the index and messages. All other
changes are dropped and reported.

Nothing is merged back if the index names new submodules, if a rebase would execute something, or if
another process has changed the same files in the meantime.
"""

import contextlib
import os
import re
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from tiller_daemon.private import make_directory
from tiller_daemon.sandbox.git_configuration import list_settings, run_git

GIT_S: Final = 30.0
"""How long git may take to list an index; it takes milliseconds."""

STATE_BYTES_MAX: Final = 1 << 20
"""The largest todo list of a rebase that is merged back."""

NAMED_MAX: Final = 5
"""How many of the dropped files a message names."""

_INNER: Final = r"(?P<inner>modules/(?:[^/]+/)+?)?(?P<tree>worktrees/[^/]+/)?"
"""A submodule's or work tree's git directory inside the repository's git directory."""

_OBJECTS: Final = re.compile(
    _INNER + r"objects/(?:[0-9a-f]{2}/[0-9a-f]{38,62}"
    r"|pack/(?:pack|multi-pack-index)[-0-9a-f]*(?:\.(?:pack|idx|rev|bitmap|mtimes|keep|promisor))?"
    r"|info/(?:packs|commit-graph|commit-graphs/[\w.-]+))\Z"
)
_DATA: Final = re.compile(
    _INNER + r"(?:HEAD|index|(?:ORIG|FETCH|MERGE|CHERRY_PICK|REVERT|REBASE|AUTO_MERGE)_HEAD"
    r"|AUTO_MERGE|MERGE_(?:MSG|MODE|RR|AUTOSTASH)|SQUASH_MSG|(?:COMMIT|TAG|NOTES|BRANCH)_EDITMSG"
    r"|packed-refs|shallow|refs/.+|logs/.+|rr-cache/.+|info/(?:refs|exclude|sparse-checkout)"
    r"|lfs/objects/.+|BISECT_(?:LOG|NAMES|START|TERMS|EXPECTED_REV|ANCESTORS_OK))\Z"
)
_OF_ALL_TREES: Final = re.compile(r"(?:packed-refs|shallow|refs/.+|logs/refs/.+|lfs/.+|info/.+)\Z")
"""Data that all work trees share; all other data belongs to one work tree."""

_STEPS: Final = re.compile(_INNER + r"(?:rebase-merge|rebase-apply|sequencer)(?:/.+)?\Z")
_STEP: Final = re.compile(
    r"\s*(?:#.*|(?:pick|p|reword|r|edit|e|squash|s|fixup|f|drop|d|label|l|reset|t|merge|m|noop|break"
    r"|b|update-ref|u|revert)\b.*)?\Z"
)
_NOT_IN_STEPS: Final = frozenset({"strategy", "strategy_opts", "gpg_sign_opt", "opts"})
"""A rebase's state files that name programs, or options for programs."""

_TRACKING: Final = re.compile(r"branch\..+\.(remote|merge|rebase|pushremote|vscode-merge-base)\Z")
_NEGLIGIBLE: Final = re.compile(
    r"(?:.*/)?(?:[^/]+\.lock|gc\.(?:pid|log)|tmp_obj_\w+|fsmonitor--daemon.*)\Z|objects/incoming-.*"
)
"""Git's temporary files, which are dropped without a message."""


class _OverlayChange(NamedTuple):
    """A changed path in the overlay.

    `name` is relative to the git directory; `gone` tells whether it was removed.
    """

    name: str
    path: Path
    gone: bool


@contextlib.contextmanager
def git_overlay(
    git: Path, own: str, parent: Path, report: Callable[[str], None]
) -> Generator[tuple[str, ...]]:
    """Make the overlay on one git directory for one command; yield the options for `bwrap`.

    `own` is the path of an added work tree's state in the git directory; empty for the main work
    tree. The overlay is created in `parent`, a directory of the daemon, and removed on exit.
    `report` is called with sentences about changes that were not merged back.
    """
    make_directory(parent)
    directory = Path(tempfile.mkdtemp(prefix="git-", dir=parent))
    upper, work = directory / "upper", directory / "work"
    upper.mkdir(mode=0o755)
    work.mkdir(mode=0o755)
    overlay = _GitOverlay(git, own, upper, report)
    try:
        yield ("--overlay-src", str(git), "--overlay", str(upper), str(work), str(git))
    finally:
        try:
            overlay.merge_back()
        except OSError as error:
            report(f"The command's changes to {git} could not be merged back: {error}.")
        finally:
            for folder, names, _files in os.walk(directory):
                for name in names:
                    with contextlib.suppress(OSError):
                        # Overlayfs leaves a directory that nobody may read.
                        Path(folder, name).chmod(0o700, follow_symlinks=False)
            shutil.rmtree(directory, ignore_errors=True)


class _GitOverlay:
    """One command's changes to one git directory; overlayfs stores them in `upper`."""

    def __init__(self, git: Path, own: str, upper: Path, report: Callable[[str], None]) -> None:
        self._git: Final = git
        self._own: Final = own
        self._upper: Final = upper
        self._report: Final = report
        # If a file in the git directory changes after this time, another process has changed it.
        # The time is the file system's, because it is compared with the file system's timestamps.
        self._began_ns: Final = upper.stat().st_ctime_ns

    def merge_back(self) -> None:
        """Merge data into the git directory, after the command has ended. Raises `OSError`."""
        merged: list[_OverlayChange] = []
        dropped: list[str] = []
        configured: _OverlayChange | None = None
        for change in _changes(self._upper, self._git):
            if change.name == "config":
                configured = change
            elif self._is_data(change) or self._is_safe_step(change):
                merged.append(change)
            elif not _NEGLIGIBLE.match(change.name):
                dropped.append(change.name)
        unsafe = [name for name in dropped if _STEPS.match(name)]
        if problem := self._problem(merged, unsafe):
            self._report(f"The command's changes to {self._git} were discarded: {problem}.")
            return
        # As git does: objects first, then the references to them.
        for change in sorted(merged, key=_order):
            self._copy(change)
        if configured:
            dropped += self._merge_tracking(configured)
        if dropped:
            names = ", ".join(dropped[:NAMED_MAX]) + (" …" if len(dropped) > NAMED_MAX else "")
            self._report(
                f"Git may execute {names}, so the command's changes there were discarded. To keep "
                "them, run the command outside of the sandbox."
            )

    def _problem(self, merged: list[_OverlayChange], unsafe: list[str]) -> str:
        if unsafe:
            return (
                f"{unsafe[0]} would make git execute something when it continues an operation, "
                "such as a rebase"
            )
        for change in merged:
            if not _OBJECTS.match(change.name) and self._changed_meanwhile(change.name):
                return f"{change.name} was changed by another process in the meantime"
            is_index = change.name.rpartition("/")[2] == "index" and not change.gone
            if is_index and (
                new := _submodules(change.path) - _submodules(self._git / change.name)
            ):
                return f"the index names a new submodule, {min(new)}"
        return ""

    def _changed_meanwhile(self, name: str) -> bool:
        if Path(self._git, f"{name}.lock").exists():
            return True
        try:
            state = os.lstat(self._git / name)
        except OSError:
            return False
        return stat.S_ISREG(state.st_mode) and state.st_ctime_ns > self._began_ns

    def _copy(self, change: _OverlayChange) -> None:
        target = self._git / change.name
        if change.gone:
            with contextlib.suppress(FileNotFoundError):
                if target.is_dir() and not target.is_symlink():
                    shutil.rmtree(target)
                else:
                    target.unlink()
            return
        for parent in reversed(Path(change.name).parents[:-1]):
            if not (folder := self._git / parent).is_dir():
                folder.unlink(missing_ok=True)
                folder.mkdir()
        # An object is named by its content, so an existing one is the same.
        if _OBJECTS.match(change.name) and target.is_file():
            return
        # Renamed into place, as git does it, so that nobody reads a partial file.
        handle, name = tempfile.mkstemp(prefix="tmp_obj_", dir=target.parent)
        try:
            with os.fdopen(handle, "wb") as copy, change.path.open("rb") as source:
                shutil.copyfileobj(source, copy)
                copy.flush()
                os.fsync(copy.fileno())
                # Data is never executable.
                os.fchmod(copy.fileno(), stat.S_IMODE(change.path.stat().st_mode) & 0o666)
            Path(name).replace(target)
        except OSError:
            Path(name).unlink(missing_ok=True)
            raise

    def _is_data(self, change: _OverlayChange) -> bool:
        """Whether a file is data: git executes nothing in it, and this work tree may change it."""
        # git removes directories of loose objects that have become empty.
        if change.gone and re.fullmatch(r"objects/[0-9a-f]{2}", change.name):
            return True
        named = _OBJECTS.match(change.name) or _DATA.match(change.name)
        if named is None or _NEGLIGIBLE.match(change.name):
            return False
        if named["inner"] and not (self._git / named["inner"] / "HEAD").is_file():
            return False
        shared = _OBJECTS.match(change.name) or _OF_ALL_TREES.match(change.name)
        if not shared and not named["inner"] and (named["tree"] or "") != self._own:
            return False
        # A link could lead git to any file later.
        return change.gone or stat.S_ISREG(change.path.lstat().st_mode)

    def _is_safe_step(self, change: _OverlayChange) -> bool:
        """Whether a changed file belongs to a rebase, and git executes nothing in it."""
        if not _STEPS.match(change.name):
            return False
        name = change.name.rpartition("/")[2]
        if change.gone:
            return True
        size = change.path.stat().st_size
        if name in _NOT_IN_STEPS:
            return size == 0
        if name.startswith(("git-rebase-todo", "todo", "done")):
            text = change.path.read_text(errors="replace") if size <= STATE_BYTES_MAX else "exec"
            return all(_STEP.match(line) for line in text.split("\n"))
        return True

    def _merge_tracking(self, change: _OverlayChange) -> list[str]:
        """Merge changes of upstream branches, the only part of the configuration that is data.

        Returns the other changed keys, which were dropped.
        """
        before, after = _settings(self._git / "config"), _settings(change.path)
        named = (key.split(".", 1)[1].rpartition(".")[0] for key in before if _is_url(key))
        remotes = {".", *named}
        dropped: list[str] = []
        for key in sorted({*before, *after}):
            if before.get(key) == after.get(key):
                continue
            value = after.get(key)
            tracks = _TRACKING.match(key)
            safe = value is None or (
                len(value) == 1
                and (value[0] in remotes if key.endswith("remote") else _is_ref(value[0]))
            )
            if tracks and safe:
                _set(self._git / "config", key, value)
            else:
                dropped.append(f"config ({key})")
        return dropped


def _changes(upper: Path, git: Path) -> Iterator[_OverlayChange]:
    """Yield the changed files in the overlay, including those in removed directories."""
    for folder, names, files in os.walk(upper):
        place = Path(folder)
        attributes = {name.rpartition(".")[2] for name in os.listxattr(place)}
        if "redirect" in attributes:
            raise OSError(f"{place.relative_to(upper)} was renamed as a whole")
        if "opaque" in attributes:
            below = git / place.relative_to(upper)
            for name in sorted(set(os.listdir(below) if below.is_dir() else ()) - {*names, *files}):  # noqa: PTH208
                yield _OverlayChange(str(place.relative_to(upper) / name), place / name, gone=True)
        for name in (*files, *(one for one in names if (place / one).is_symlink())):
            path = place / name
            # Overlayfs marks a removed file with a device whose number is 0.
            gone = stat.S_ISCHR(path.lstat().st_mode)
            yield _OverlayChange(str(path.relative_to(upper)), path, gone)


def _order(change: _OverlayChange) -> tuple[bool, int, str]:
    kinds = ("objects/", "logs/", "refs/", "packed-refs", "HEAD", "index")
    # Removals come last: loose refs and objects are removed only when the pack exists.
    ranks = (number for number, kind in enumerate(kinds) if kind in change.name)
    return change.gone, next(ranks, len(kinds)), change.name


def _submodules(index: Path) -> set[str]:
    """Return the paths of submodules in an index; git lists them without any configuration."""
    if not index.exists():
        return set()
    with tempfile.TemporaryDirectory() as empty:
        _git(("init", "--quiet", "--bare", empty), empty)
        variables = {"GIT_DIR": empty, "GIT_INDEX_FILE": str(index)}
        listed = _git(("ls-files", "--stage", "-z"), empty, variables)
    entries = (entry.partition("\t") for entry in listed.split("\0"))
    return {path for mode, _, path in entries if mode.startswith("160000")}


def _settings(config: Path) -> dict[str, tuple[str, ...]]:
    """Return the keys and values of a git configuration file, without its includes."""
    settings: dict[str, tuple[str, ...]] = {}
    if not config.is_file():
        return settings
    for key, value in list_settings(config, GIT_S):
        settings[key] = (*settings.get(key, ()), value)
    return settings


def _set(config: Path, key: str, value: tuple[str, ...] | None) -> None:
    change = ("--replace-all", key, value[0]) if value else ("--unset-all", key)
    _git(("config", "--file", str(config), *change))


def _git(arguments: Sequence[str], directory: str = "/", variables: Mapping[str, str] = {}) -> str:
    """Run git on individual files; raises `OSError` if it fails."""
    try:
        done = run_git(arguments, directory, GIT_S, variables)
        done.check_returncode()
    except subprocess.SubprocessError as error:
        raise OSError(f"git could not read the changes ({error})") from error
    return os.fsdecode(done.stdout)


def _is_url(key: str) -> bool:
    return key.startswith("remote.") and key.endswith(".url")


def _is_ref(value: str) -> bool:
    return value.startswith("refs/") or value in ("true", "false", "merges")
