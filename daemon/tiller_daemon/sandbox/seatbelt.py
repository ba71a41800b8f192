"""Seatbelt, the sandbox on macOS: `sandbox-exec` runs a command under a profile.

The profile, in Seatbelt's own language, is generated here and tested as text. In a profile the last
matching rule wins.
"""

from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tiller_daemon.sandbox.base import Sandbox, SandboxProfile, WrappedCommand
from tiller_daemon.sandbox.known_paths import between, root_of

PROGRAM: Final = "sandbox-exec"

_ALWAYS: Final = """\
(version 1)
(allow default)
(deny appleevent-send lsopen job-creation)
(deny mach-lookup (global-name "com.apple.coreservices.launchservicesd"))
(deny signal)
(allow signal (target same-sandbox))
(deny file-write*)
(allow file-write* (regex #"^/dev/(null|zero|tty|ptmx|dtracehelper|ttys[0-9]*|fd/.*)$"))"""
"""The beginning of each profile. Opening applications, sending events to them and creating launchd
jobs are denied, because they would escape the sandbox."""


class Seatbelt(Sandbox):
    """The sandbox on macOS."""

    name = PROGRAM

    def __init__(self, program: str) -> None:
        self._program: Final = program

    @contextmanager
    def wrap(
        self,
        arguments: Sequence[str],
        profile: SandboxProfile,
    ) -> Generator[WrappedCommand]:
        """Yield the command to run instead of `arguments`."""
        temporary = profile.temporary
        place = ("/usr/bin/env", f"TMPDIR={temporary}") if temporary else ()
        yield WrappedCommand((self._program, "-p", rules_for(profile), *place, *arguments))


USER_FILES: Final = (
    Path("/Users"),
    Path("/Volumes"),
    Path("/private/tmp"),
    Path("/private/var/tmp"),
)
"""Where users keep files. A command sees just the workspace there, and what else is visible."""


def rules_for(profile: SandboxProfile) -> str:
    """Return the limits of a command in Seatbelt's language."""
    protected = [path for path in profile.read_only if root_of(path, profile.writable)]
    temporary = (profile.temporary,) if profile.temporary else ()
    # The last rule wins, so deeper paths come later: a protected directory may contain a writable
    # directory.
    writes = [(path, "allow file-write*") for path in (*profile.writable, *temporary)]
    writes += [(path, "deny file-write*") for path in protected]
    writes.sort(key=lambda one: len(one[0].parts))
    # Renaming a directory would move the protected and hidden paths in it.
    pins = {
        pin
        for path in (*protected, *profile.hidden)
        if (root := root_of(path, profile.writable))
        for pin in between(root, path)
    }
    lines = [
        _ALWAYS,
        *(rule for path, operation in writes for rule in _rules(operation, [path])),
        *(f"(deny file-write-unlink (literal {_quoted(path)}))" for path in sorted(pins)),
    ]
    lines += _rules("deny file-read*", USER_FILES)
    visible = (*profile.visible, profile.workspace, *profile.writable)
    lines += _rules("allow file-read*", visible)
    lines += _rules("deny file-read* file-write*", profile.hidden)
    lines += _rules("allow file-read*", (*profile.shown, *temporary))
    if profile.network:
        lines += _rules("deny network-outbound", profile.hidden)
    else:
        lines.append("(deny network*)")
    return "\n".join(lines) + "\n"


def _rules(operation: str, paths: Iterable[Path]) -> list[str]:
    return [f"({operation} (subpath {_quoted(path)}))" for path in paths]


def _quoted(path: Path) -> str:
    text = str(path).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'
