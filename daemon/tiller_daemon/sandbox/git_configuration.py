"""Reads git's configuration: the user's, and that of repositories.

git itself prints the files, so nothing else needs to understand them. That executes nothing.
"""

import functools
import os
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from tiller_daemon.stamps import StampedCache, look_along
from tiller_daemon.workspace.documents import read_document

CONFIG_BYTES_MAX: Final = 2 * 1024 * 1024
"""A larger configuration file counts as unreadable."""

GIT_CONFIG_S: Final = 5.0
"""How long git may take to print a configuration file; it takes milliseconds."""

CONFIG_FILES_MAX: Final = 100
"""The most configuration files, missing ones included, that a repository may name, and that the
user may name for all repositories. If there are more, the configuration counts as unreadable."""

_NAMING: Final = ("hookspath", "templatedir", "include")
"""Parts of the settings that name hooks and included files. git allows no other spelling, except in
upper case."""

_known: Final = StampedCache()
"""The settings in each list of files, because git takes milliseconds to print a file."""


class Setting(NamedTuple):
    """A line of a configuration file."""

    file: Path
    key: str
    value: str

    @property
    def included(self) -> Path | None:
        """The file that this line includes, perhaps on a condition."""
        on_condition = self.key.startswith("includeif.") and self.key.endswith(".path")
        is_include = self.key == "include.path" or on_condition
        return config_path(self.file.parent, self.value) if is_include else None


def read_settings(files: tuple[Path, ...], *, naming: bool) -> Sequence[Setting]:
    """Return the settings in files and in the files that they include; raises `OSError`.

    With `naming`, files that name neither hooks nor files are left out.
    """
    read = functools.partial(_settings, files, naming=naming)
    return _known.get((files, naming, user_home()), read)


def _settings(files: Iterable[Path], *, naming: bool) -> Sequence[Setting]:
    settings: list[Setting] = []
    waiting = dict.fromkeys(files)
    known = {*waiting}
    while waiting:
        file = next(iter(waiting))
        del waiting[file]
        look_along(file)
        # `exists` does not fail for a long name.
        is_empty = not os.path.exists(file) or str(file) == os.devnull  # noqa: PTH110
        if is_empty or (naming and not _is_naming(file)):
            continue
        found = [Setting(file, *pair) for pair in list_settings(file, GIT_CONFIG_S)]
        settings += found
        # The condition of an include does not matter, because a command may switch branches.
        included = dict.fromkeys(path for one in found if (path := one.included))
        waiting |= {path: None for path in included if path not in known}
        known.update(included)
        if len(known) > CONFIG_FILES_MAX:
            raise OSError(f"There are more than {CONFIG_FILES_MAX} configuration files")
    return settings


def _is_naming(file: Path) -> bool:
    """Whether a configuration file may name hooks or files; quicker than asking git."""
    document = read_document(file, None, CONFIG_BYTES_MAX)
    if document is None or document.cut:
        return True
    text = document.text.lower()
    return any(name in text for name in _NAMING)


def list_settings(config: Path, timeout_s: float) -> Iterator[tuple[str, str]]:
    """Yield the keys and values in a configuration file of git, without its includes.

    git itself reads the file; that executes nothing. Raises `OSError`.
    """
    if not config.is_file():
        raise OSError(f"{config} is not a file")
    if config.stat().st_size > CONFIG_BYTES_MAX:
        raise OSError(f"{config} is larger than {CONFIG_BYTES_MAX // 1024} KiB")
    try:
        done = run_git(("config", "--file", str(config), "--null", "--list"), "/", timeout_s)
        done.check_returncode()
    except (OSError, subprocess.SubprocessError) as error:
        # Without an error number, so that the failure does not count as a missing file.
        raise OSError(f"git could not read {config} ({error})") from error
    for line in os.fsdecode(done.stdout).split("\0")[:-1]:
        key, _, value = line.partition("\n")
        yield key, value


def run_git(
    arguments: Sequence[str],
    directory: str | Path,
    timeout_s: float,
    variables: Mapping[str, str] = {},
) -> subprocess.CompletedProcess[bytes]:
    """Run git without the user's configuration; raises `OSError` and `SubprocessError`."""
    return subprocess.run(
        ("git", *arguments),
        capture_output=True,
        check=False,
        cwd=directory,
        env={"PATH": os.environ.get("PATH", os.defpath), "HOME": "/nonexistent", **variables},
        stdin=subprocess.DEVNULL,
        timeout=timeout_s,
    )


def user_files() -> Iterator[Path]:
    """Yield the configuration files that git reads for every repository, as in git-config(1)."""
    yield Path(os.environ.get("GIT_CONFIG_SYSTEM") or "/etc/gitconfig")
    if only := os.environ.get("GIT_CONFIG_GLOBAL"):
        yield Path(only)
        return
    home = user_home()
    yield Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config", "git", "config")
    yield home / ".gitconfig"


def user_home() -> Path:
    """Return the home in which git looks for the user's configuration."""
    return Path(os.environ.get("HOME") or "/")


def config_path(directory: Path, name: str) -> Path:
    """Return the path that git uses for a name in its configuration, relative to a directory."""
    name = name.removeprefix(":(optional)")
    if name.startswith("%(prefix)/"):
        # An absolute path, or one inside the directory where git is installed.
        name = str(Path("/usr", name.removeprefix("%(prefix)/")))
    return directory / os.path.expanduser(name)  # noqa: PTH111
