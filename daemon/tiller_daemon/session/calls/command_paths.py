"""What a command line names that its enclosure hides: then it asks, and may see it.

That is a courtesy: the enclosure hides these files whatever the line says. But a command that could
only fail, or find nothing, had better be asked about first. Only words that stand in the line as
they are count, and only as paths of files that are there.
"""

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from tiller_daemon.files.paths import PathProblem, locate, printable
from tiller_daemon.policy import globs
from tiller_daemon.policy.rules import PROTECTED_PATH
from tiller_daemon.policy.shell.command_line import SimpleCommand, parse
from tiller_daemon.policy.shell.enclosures import UNSANDBOXED, needed_enclosure, seems_to_read
from tiller_daemon.policy.shell.programs import find_program
from tiller_daemon.sandbox.enclosure import Enclosure
from tiller_daemon.sandbox.known_paths import is_protected
from tiller_daemon.tools.base import Requirement

_KERNEL_PATHS = re.compile(r"/(?:(?:proc|dev|sys)(?:/|\Z)|\Z)")
"""Places of the kernel: an enclosure has its own, and this process looks at its own."""

_PARTS = re.compile(r"[=:]")
"""What stands before a path in a word: `--file=.env`, `HEAD:.env`."""


def further_requirements(
    requirements: Sequence[Requirement], workspace: Path
) -> tuple[Requirement, ...]:
    """What a call needs besides: to see what is hidden, and to write what is executed."""
    lines = [
        text
        for requirement in requirements
        if requirement.kind == "command"
        for text in requirement.subjects
    ]
    reading = [line for line in lines if needed_enclosure(line) < Enclosure.SESSION]
    return (
        *_outside_requirements(reading, workspace),
        *_file_requirements(reading, workspace),
        *_protected_path_requirements(requirements),
    )


def requirements_without_sandbox(
    requirements: Iterable[Requirement], *, reads_are_confined: bool
) -> tuple[Requirement, ...]:
    """What the commands among `requirements` need where no sandbox can hold them: they ask."""
    lines = [
        text
        for requirement in requirements
        if requirement.kind == "command"
        for text in requirement.subjects
    ]
    return tuple(
        unsandboxed_requirement(line, f"Run without a sandbox: {' '.join(line.split())}")
        for line in lines
        if not (reads_are_confined and seems_to_read(line))
    )


def unsandboxed_requirement(command: str, title: str) -> Requirement:
    """The need to run a command outside of the sandbox, or where there is none."""
    return Requirement(
        UNSANDBOXED,
        (command,),
        kind="command",
        title=title,
        detail=command,
        detail_kind="command",
    )


def _protected_path_requirements(requirements: Iterable[Requirement]) -> tuple[Requirement, ...]:
    """A file that makes git, tiller, another agent or an editor run something is not like others.

    No command in a sandbox can write it; for a tool it is a question of its own, so that leave to
    write in the workspace is no leave to get out of the sandbox.
    """
    written = (n for n in requirements if n.permission == "write" and n.kind == "path")
    found = [text for requirement in written for text in requirement.subjects if is_protected(text)]
    if not found:
        return ()
    title = f"Write what may make other programs run something: {', '.join(found)}"
    always = tuple(globs.escape(text) for text in found)
    return (Requirement(PROTECTED_PATH, tuple(found), always, "path", title),)


def _outside_requirements(lines: Sequence[str], workspace: Path) -> tuple[Requirement, ...]:
    found: dict[str, None] = {}
    for path in _paths(lines, names_too=True):
        if _KERNEL_PATHS.match(os.path.normpath(path)):
            continue
        try:
            location = locate(workspace, path)
        except PathProblem:
            continue
        if not location.inside:
            found[printable(location.path)] = None
    return _requirements(
        "external_directory", found, f"Look outside the workspace: {_shown(lines)}"
    )


def _file_requirements(lines: Sequence[str], workspace: Path) -> tuple[Requirement, ...]:
    """The files that a line names, whatever rules say of them: that is looked up when it counts."""
    found: dict[str, None] = {}
    for path in _paths(lines, names_too=False):
        try:
            location = locate(workspace, path)
        except PathProblem:
            continue
        if location.inside and location.path.is_file():
            found[printable(location.path.relative_to(workspace.resolve()))] = None
    return _requirements("read", found, f"Show what is in files: {_shown(lines)}")


def _requirements(permission: str, subjects: Iterable[str], title: str) -> tuple[Requirement, ...]:
    found = tuple(subjects)
    # In the patterns of rules a backslash takes the meaning from a star.
    always = tuple(globs.escape(subject) for subject in found)
    return (Requirement(permission, found, always, "path", title),) if found else ()


def _shown(lines: Sequence[str]) -> str:
    return " ".join(" ".join(lines).split())


def _paths(lines: Sequence[str], *, names_too: bool) -> Iterator[str]:
    """The words of command lines that may be paths, relative to where the line has gone."""
    for line in lines:
        place = ""
        for command in parse(line).commands:
            for word in _words(command, names_too=names_too):
                path = os.path.expanduser(word)  # noqa: PTH111 - may be no path
                yield os.path.join(place, path)  # noqa: PTH118 - likewise
            if command.name == "cd" and len(command.words) > 1 and command.words[1].fixed:
                place = os.path.join(place, os.path.expanduser(command.words[1].text))  # noqa: PTH111, PTH118


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
            # A slash leads elsewhere, or two dots, or the home.
            text = text.partition("=")[2] if text.startswith("-") else text
            if text.startswith(("/", "~")) or ".." in text.split("/"):
                yield text
        else:
            yield from {text, _PARTS.split(text)[-1]}
