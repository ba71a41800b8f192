"""Finds further permissions for command lines: to see files that sandboxes hide, and the network.

Protection does not depend on this module: the sandbox hides these files whatever the line names.
But the user should be asked before a command that would otherwise fail, and it may see the files
once they approve. Only literal words of the line count, and only existing protected files.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from tiller_daemon.files.paths import Location, PathProblem, locate, printable
from tiller_daemon.policy import globs
from tiller_daemon.policy.rules import PROTECTED_PATH
from tiller_daemon.policy.shell.command_line import SimpleCommand, parse
from tiller_daemon.policy.shell.levels import (
    NETWORK,
    UNSANDBOXED,
    needed_level,
    seems_to_read,
)
from tiller_daemon.policy.shell.programs import find_program
from tiller_daemon.sandbox.base import TEMPORARY
from tiller_daemon.sandbox.known_paths import is_protected
from tiller_daemon.sandbox.level import SandboxLevel
from tiller_daemon.tools.base import Requirement, SubjectKind

_KERNEL_PATHS = re.compile(r"/(?:(?:proc|dev|sys)(?:/|\Z)|\Z)")
"""Paths that a sandbox provides itself, and that lead elsewhere in this process."""

_PARTS = re.compile(r"[=:]")
"""Separators before a path in a word: `--file=.env`, `HEAD:.env`."""


def further_requirements(
    requirements: Sequence[Requirement],
    workspace: Path,
    is_guarded: Callable[[Path], bool],
    shown: Path | None = None,
    temporary: Path | None = None,
) -> tuple[Requirement, ...]:
    """Return further permissions for a call: to see hidden files, and to write executed files.

    Commands see the directory `shown` anyway, and `temporary` as their `/tmp`. `is_guarded` tells
    whether writing a path (without links) needs a separate permission although its name does not
    show that.
    """
    reading = [
        line for line in command_lines(requirements) if needed_level(line) < SandboxLevel.SESSION
    ]
    return (
        *_outside_requirements(reading, workspace, shown, temporary),
        *_file_requirements(reading, workspace, shown),
        *_protected_path_requirements(requirements, workspace, is_guarded),
    )


def requirements_without_sandbox(
    requirements: Iterable[Requirement], *, reads_are_sandboxed: bool
) -> tuple[Requirement, ...]:
    """Return a permission for each command line that will run without a sandbox.

    With `reads_are_sandboxed`, a line runs in a sandbox if it seems only to read.
    """
    return tuple(
        unsandboxed_requirement(line, "Run without a sandbox")
        for line in command_lines(requirements)
        if not (reads_are_sandboxed and seems_to_read(line))
    )


def unsandboxed_requirement(command: str, warning: str) -> Requirement:
    """Return the permission to run a command outside the sandbox, or without any sandbox."""
    return _of_command(UNSANDBOXED, "command", command, warning)


def network_requirement(command: str) -> Requirement:
    """Return the permission to use the network in a sandbox that has none."""
    return _of_command(NETWORK, "network", command, "Run with network access")


def _of_command(permission: str, kind: SubjectKind, command: str, warning: str) -> Requirement:
    """Return a permission that one command line needs."""
    return Requirement(
        permission, (command,), (), kind, command, warning, detail=command, detail_kind="command"
    )


def command_lines(requirements: Iterable[Requirement]) -> list[str]:
    """Return the command lines that a call would run."""
    commands = (each for each in requirements if each.kind == "command")
    return [line for requirement in commands for line in requirement.subjects]


def _protected_path_requirements(
    requirements: Iterable[Requirement], workspace: Path, is_guarded: Callable[[Path], bool]
) -> tuple[Requirement, ...]:
    """Return the permission to write files that make git, an editor or an agent run something.

    No command in a sandbox can write these files. For tools this is a separate question, so that
    the permission to write in the workspace does not let a call escape the sandbox.
    """
    written = (each for each in requirements if each.permission == "write" and each.kind == "path")
    protected = [
        text
        for requirement in written
        for text in requirement.subjects
        if is_protected(text) or is_guarded((workspace / text).resolve())
    ]
    warning = "Write files that may make other programs run something"
    return _path_requirements(PROTECTED_PATH, protected, ", ".join(protected), warning)


def _outside_requirements(
    lines: Sequence[str], workspace: Path, shown: Path | None, temporary: Path | None
) -> tuple[Requirement, ...]:
    paths = (
        path
        for path in _paths(lines, names_too=True)
        if not _KERNEL_PATHS.match(os.path.normpath(path))
    )
    outside = (
        printable(one.path)
        for one in _located(paths, workspace)
        if not _is_shown(one, shown) and not _is_own(one.path, temporary)
    )
    return _path_requirements(
        "external_directory", dict.fromkeys(outside), " ".join(lines), "Look outside the workspace"
    )


def _file_requirements(
    lines: Sequence[str], workspace: Path, shown: Path | None
) -> tuple[Requirement, ...]:
    """Return the permission to read the files that lines name; the rules decide later."""
    files = (
        printable(Path(os.path.relpath(one.path, workspace.resolve())))
        for one in _located(_paths(lines, names_too=False), workspace)
        if _is_shown(one, shown) and one.path.is_file()
    )
    return _path_requirements(
        "read", dict.fromkeys(files), " ".join(lines), "Show the content of files"
    )


def _is_shown(location: Location, shown: Path | None) -> bool:
    return location.inside or (shown is not None and location.path.is_relative_to(shown))


def _is_own(path: Path, temporary: Path | None) -> bool:
    """Whether a command sees its session's own file at a path in `/tmp`, or nothing at all.

    Otherwise the user may want it to see the file that they have there.
    """
    if temporary is None:
        return False
    places = (Path(place) for place in TEMPORARY if path.is_relative_to(place))
    return any(
        place == path or os.path.lexists(temporary / path.relative_to(place)) or not path.exists()
        for place in places
    )


def _located(paths: Iterable[str], workspace: Path) -> Iterator[Location]:
    """Yield where paths lead, without paths that lead nowhere."""
    for path in paths:
        with suppress(PathProblem):
            yield locate(workspace, path)


def _path_requirements(
    permission: str, subjects: Iterable[str], title: str, warning: str
) -> tuple[Requirement, ...]:
    paths = tuple(subjects)
    always = tuple(map(globs.escape, paths))
    return (Requirement(permission, paths, always, "path", title, warning),) if paths else ()


def path_requirement(permission: str, path: str, title: str, warning: str) -> Requirement:
    """Return a permission for one path and everything in it."""
    always = (globs.escape(path), f"{globs.escape(path)}/*")
    return Requirement(permission, (path,), always, "path", title, warning)


def _paths(lines: Sequence[str], *, names_too: bool) -> Iterator[str]:
    """Yield the words of command lines that may be paths, relative to the last `cd` of the line.

    With `names_too`, these are the words of all commands that may lead out of the workspace.
    Without it, they are all words of the commands that may show the content of a file.
    """
    for line in lines:
        directory = ""
        for command in parse(line).commands:
            for word in _words(command, names_too=names_too):
                path = os.path.expanduser(word)  # noqa: PTH111 - may be no path
                yield os.path.join(directory, path)  # noqa: PTH118 - likewise
            if command.name == "cd" and len(command.words) > 1 and command.words[1].fixed:
                directory = os.path.join(directory, os.path.expanduser(command.words[1].text))  # noqa: PTH111, PTH118


def _words(command: SimpleCommand, *, names_too: bool) -> Iterator[str]:
    kind = find_program(command.name).operands
    if kind == "text" or (kind == "names" and not names_too):
        return
    operands = [word for word in command.words[1:] if word.fixed and word.text]
    if kind == "pattern_first":
        first = next((word for word in operands if not word.text.startswith("-")), None)
        operands = [word for word in operands if word is not first]
    for word in operands:
        text = word.text
        if names_too:
            # Only such words can lead out of the workspace.
            text = text.partition("=")[2] if text.startswith("-") else text
            if text.startswith(("/", "~")) or ".." in text.split("/"):
                yield text
        else:
            yield from {text, _PARTS.split(text)[-1]}
