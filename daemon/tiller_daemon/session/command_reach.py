"""What a command that reads, builds or tests would reach beyond the workspace: then it asks.

To look outside it asks as `read` does, and git asks where the repository names programs that it
would run. Any other command is asked about as a whole. Words are judged before the command runs,
through links; a word that only its run will tell asks.
"""

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from tiller_daemon.policy import globs
from tiller_daemon.policy.rules import PROTECTED_PATH, UNSANDBOXED
from tiller_daemon.policy.shell_commands import only_reads, parse_command, places_read, stays_inside
from tiller_daemon.tools.base import Need
from tiller_daemon.workspace.git_programs import programs_named
from tiller_daemon.workspace.paths import PathProblem, locate, printable
from tiller_daemon.workspace.sandbox_paths import is_protected

HARMLESS = frozenset({"/dev/null", "/dev/stdin", "/dev/stdout", "/dev/stderr", "/dev/zero"})
"""Files outside of every workspace that hold nothing of anybody's."""

UNKNOWN = "(known only when it runs)"

_OPTION = re.compile(r"\A-[^/=~]*=?")


def needs_beyond(needs: Sequence[Need], workspace: Path) -> tuple[Need, ...]:
    """What such commands among `needs` need besides, and who writes where programs begin."""
    texts = [text for need in needs if need.kind == "command" for text in need.subjects]
    commands = [text for text in texts if stays_inside(text, str(workspace))]
    return (
        *_needs_outside(commands, workspace),
        *_needs_programs(commands, workspace),
        *_needs_protected(needs),
    )


def needs_without_sandbox(needs: Iterable[Need], workspace: Path) -> tuple[Need, ...]:
    """What the commands among `needs` need where no sandbox can hold them: those that act, ask."""
    texts = [text for need in needs if need.kind == "command" for text in need.subjects]
    return tuple(
        need_unsandboxed(text, f"Run without a sandbox: {' '.join(text.split())}")
        for text in texts
        if not only_reads(text, str(workspace))
    )


def need_unsandboxed(command: str, title: str) -> Need:
    """The need to run a command outside of the sandbox, or where there is none."""
    return Need(UNSANDBOXED, (command,), kind="command", title=title, detail=command)


def _needs_protected(needs: Iterable[Need]) -> tuple[Need, ...]:
    """A file that makes git, tiller, another agent or an editor run something is not like others.

    No command in a sandbox can write it; for a tool it is a question of its own, so that leave to
    write in the workspace is no leave to get out of the sandbox.
    """
    written = (n for n in needs if n.permission == "write" and n.kind == "path")
    found = [text for need in written for text in need.subjects if is_protected(text)]
    if not found:
        return ()
    title = f"Write what may make other programs run something: {', '.join(found)}"
    always = tuple(globs.escape(text) for text in found)
    return (Need(PROTECTED_PATH, tuple(found), always, "path", title),)


def _needs_programs(commands: Iterable[str], workspace: Path) -> tuple[Need, ...]:
    """Git asks where a repository names programs: the workspace's, or one that it is sent to."""
    found: dict[str, None] = {}
    for command in commands:
        if "git" in command:
            for directory in ("", *parse_command(command, str(workspace)).directories):
                found.update(dict.fromkeys(programs_named(workspace / directory)))
    keys = tuple(found)
    if not keys:
        return ()
    title = f"Let git run what this repository's own configuration names: {', '.join(keys)}"
    return (Need("repository_programs", keys, keys, title=title),)


def _needs_outside(commands: Iterable[str], workspace: Path) -> tuple[Need, ...]:
    subjects: dict[str, None] = {}
    for command in commands:
        subjects.update(dict.fromkeys(_outside(command, workspace)))
    if not subjects:
        return ()
    # In the patterns of rules a backslash takes the meaning from a star.
    always = tuple(re.sub(r"([*?\\])", r"\\\1", s) for s in subjects if s != UNKNOWN)
    title = f"Look outside the workspace: {' '.join(' '.join(commands).split())}"
    return (Need("external_directory", tuple(subjects), always, "path", title),)


def _outside(command: str, workspace: Path) -> list[str]:
    words = places_read(command, str(workspace))
    if words is None:
        return [UNKNOWN]
    found: list[str] = []
    for word in words:
        path = os.path.expanduser(_OPTION.sub("", word, count=1))  # noqa: PTH111 - may be no path
        if not path or path in HARMLESS:
            continue
        try:
            location = locate(workspace, path)
        except PathProblem:
            continue
        if not location.inside:
            found.append(printable(location.path))
    return found
