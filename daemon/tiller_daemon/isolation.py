"""Keeps the daemon, and the programs that it starts by itself, from code that commands can write.

A shell in a project often has directories of the project in PATH, PYTHONPATH or LD_LIBRARY_PATH.
Those are for models' commands only, which can write there. The daemon and its own programs (git,
ripgrep, sandboxes, language and MCP servers, hooks) get a PATH of trusted directories, and no
variable that makes programs load other code. Commands can't write the trusted directories, because
`sandbox_setup` protects them.

The daemon's program imports this module before anything else.
"""

import os
import re
import shutil
import stat
import sys
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import translate
from functools import cache
from pathlib import Path
from typing import Final

from tiller_protocol.places import SET_ASIDE

SYSTEM: Final = (
    "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/usr", "/opt", "/opt/homebrew", "/nix", "/gnu",
    "/snap", "/go", "/etc/profiles", "/run/current-system", "/run/wrappers", "/System", "/Library",
    "/Applications", "/home/linuxbrew/.linuxbrew",
)  # fmt: skip
"""Directories for programs that are installed for the whole machine."""

TOOLS_IN_HOME: Final = (
    "bin", "go", "sdk", "Library", "Applications", "anaconda3", "miniconda3", "miniforge3",
    "mambaforge", "micromamba", "google-cloud-sdk", "homebrew",
)  # fmt: skip
"""Directories of the home in which programs get installed, in addition to all hidden ones."""

LISTS: Final = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
"""Lists of directories, of which the trusted ones are kept. Some Pythons start only with their own
library directory."""

LOADING: Final = """
    LD_* DYLD_* GCONV_* OPENSSL_* GIT_* PYTHON* NODE_OPTIONS NODE_PATH PERL* RUBYLIB RUBYOPT
    GEM_* BUNDLE_* LUA_* R_LIBS* ERL_* CLASSPATH JAVA_TOOL_OPTIONS JDK_JAVA_OPTIONS _JAVA_OPTIONS
    DOTNET_STARTUP_HOOKS ENV BASH_ENV BASH_FUNC_*"""
"""Patterns for the variables that make programs load code or run other programs."""

LINKING: Final = ("LD_", "DYLD_", "GCONV_")
"""Prefixes of the variables that also make the programs of a sandbox load code."""

OPTIONS: Final = ("-E", "-P", *(("-B",) if sys.dont_write_bytecode else ()))
"""Options for a Python that ignores PYTHON* and the current directory. `-E` hides the user's choice
about writing bytecode, too."""

_LOADING: Final = re.compile("|".join(map(translate, LOADING.split())))
_set_aside: Final[dict[str, str]] = {}


def isolate() -> None:
    """Remove untrusted directories and variables from the environment of this process.

    Restarts the program if Python or the dynamic linker has already read such a variable.
    """
    given = dict(os.environ)
    carried = {name: given.pop(name) for name in os.environ if name.startswith(SET_ASIDE)}
    started = given | {name.removeprefix(SET_ASIDE): value for name, value in carried.items()}
    own = isolated(started)
    aside = {name: value for name, value in started.items() if own.get(name) != value}
    # `-E` does not hide PYTHONUSERBASE.
    read = {name: given[name] for name in given if name.startswith((*LINKING, "PYTHON"))}
    if not (sys.flags.ignore_environment and sys.flags.safe_path and read.items() <= own.items()):
        carried = {f"{SET_ASIDE}{name}": value for name, value in aside.items()}
        command = (sys.executable, *OPTIONS, *sys.orig_argv[1:])
        os.execve(sys.executable, command, own | carried)  # noqa: S606 - no shell is wanted
    _set_aside.update(aside)
    os.environ.clear()
    os.environ.update(own)


def environment_of_commands() -> dict[str, str]:
    """Return the environment in which the daemon was started, which is for models' commands."""
    return {**os.environ, **_set_aside}


def untrusted_entries() -> list[str]:
    """Return the entries of PATH in which the daemon does not look for programs."""
    kept = {os.path.realpath(entry) for entry in os.environ["PATH"].split(os.pathsep)}
    entries = environment_of_commands()["PATH"].split(os.pathsep)
    return [entry for entry in entries if os.path.realpath(entry) not in kept]


def isolated(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables for a program that the daemon starts by itself."""
    own = {name: value for name, value in variables.items() if not _LOADING.match(name)}
    lists = {name: _trusted_entries(variables[name]) for name in LISTS if name in variables}
    own |= {name: value for name, value in lists.items() if value}
    return {**own, "PATH": lists.get("PATH") or os.defpath}


def set_inside(
    arguments: Sequence[str], variables: Mapping[str, str]
) -> tuple[Sequence[str], Mapping[str, str]]:
    """Return a sandboxed command, and the variables with which its sandbox can be started.

    The sandbox's own programs are not confined yet, so they must not load the command's libraries.
    """
    inside = [f"{name}={value}" for name, value in variables.items() if name.startswith(LINKING)]
    if not inside:
        return arguments, variables
    outside = {name: variables[name] for name in variables if not name.startswith(LINKING)}
    return ("/usr/bin/env", *inside, *arguments), outside


def find_program(name: str, path: str | None = None) -> str | None:
    """Return the path of a program in a trusted directory of `path`, by default of PATH.

    A link to a program elsewhere does not count.
    """
    entries = _trusted_entries(os.environ.get("PATH", os.defpath) if path is None else path)
    for entry in filter(None, entries.split(os.pathsep)):
        program = f"{entry}/{name}"
        real = Path(os.path.realpath(program))
        if is_program(program) and is_trusted(real.parent):
            return program
    return None


def why_missing(name: str) -> str:
    """Return a sentence about a program that `find_program` does not find."""
    entries = environment_of_commands().get("PATH", os.defpath).split(os.pathsep)
    path = os.pathsep.join(filter(os.path.isabs, entries))
    if found := path and shutil.which(name, path=path):
        return (
            f"The program {name} was found only as {found}, which commands may be able to change. "
            "Move it to ~/.local/bin, or configure its absolute path."
        )
    return f"The program {name} was not found."


def is_program(path: str) -> bool:
    """Whether a path leads to a file that this user can execute."""
    return os.path.isfile(path) and os.access(path, os.X_OK)  # noqa: PTH113 - five times quicker


def installation_paths() -> tuple[Path, ...]:
    """Return the existing paths from which the daemon runs code, which no command may write.

    They are this Python's modules and programs, and the trusted directories of PATH. The paths are
    absolute, without links, and none is below another.
    """
    environment = sys.prefix if sys.prefix != sys.base_prefix else ""
    programs = map(os.path.dirname, (sys.executable, os.path.realpath(sys.executable)))
    entries = _trusted_entries(os.environ.get("PATH", os.defpath)).split(os.pathsep)
    named = (environment, *programs, *filter(os.path.isabs, sys.path), *entries)
    paths = {Path(os.path.realpath(one)) for one in named if one and Path(one).exists()}
    return tuple(path for path in sorted(paths) if paths.isdisjoint(path.parents))


@cache
def _trusted_entries(value: str) -> str:
    """Return a list of directories without those that are relative, missing or not trusted.

    Each value is examined once, so a directory that is made later is not trusted.
    """
    return os.pathsep.join(_trusted(value.split(os.pathsep)))


def _trusted(entries: list[str]) -> Iterator[str]:
    for entry in entries:
        real = Path(os.path.realpath(entry))
        if entry.startswith("/") and _is_for_programs(real):
            # A link that itself is in a trusted place, such as a profile of Nix, may be changed.
            yield entry if is_trusted(Path(os.path.normpath(entry))) else str(real)


def _is_for_programs(directory: Path) -> bool:
    try:
        mode = directory.stat().st_mode
    except OSError:
        return False
    return stat.S_ISDIR(mode) and not mode & stat.S_IWOTH and is_trusted(directory)


def is_trusted(directory: Path) -> bool:
    """Whether a directory (absolute, without links) is a place for installed programs.

    It belongs to the system, to the user's tools, to this installation or to another user, and not
    to a git work tree.
    """
    root = _root(directory) or (Path("/") if _belongs_to_others(directory) else None)
    if root is None:
        return False
    below = (one for one in (directory, *directory.parents) if root in one.parents)
    return not any(os.path.lexists(one / ".git") for one in below)


def _root(path: Path) -> Path | None:
    """Return the innermost known place for programs that contains a path."""
    home = Path(os.path.realpath(os.environ.get("HOME") or "/"))
    roots = [*map(Path, SYSTEM), *map(Path, _prefixes())]
    if home in path.parents:
        top = path.relative_to(home).parts[0]
        # A home may be in a system directory, such as `/opt`.
        roots = [root for root in roots if not home.is_relative_to(root)]
        roots += [home / top] if top.startswith(".") or top in TOOLS_IN_HOME else []
    containing = (root for root in roots if path.is_relative_to(root))
    return max(containing, key=lambda root: len(root.parts), default=None)


def _prefixes() -> tuple[str, str]:
    """Return the directories of this Python environment and of its Python."""
    return os.path.realpath(sys.prefix), os.path.realpath(sys.base_prefix)


def _belongs_to_others(path: Path) -> bool:
    """Whether this user, who is not root, can't change a directory or replace it."""
    user = os.geteuid()
    return user != 0 and not any(
        one.stat().st_uid == user or os.access(one, os.W_OK) for one in (path, *path.parents)
    )
