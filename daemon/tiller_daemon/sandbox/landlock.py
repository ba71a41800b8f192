"""Landlock: a command gives up rights before it begins. For machines without namespaces.

Before the command starts, its process gets a Landlock domain for files and signals and a seccomp
filter for the rest (see `seccomp`): `launcher` does this and becomes the command.

Landlock rules can only allow, and a rule for a directory covers everything in it. Therefore:

- A command that only reads is confined completely. It may list and read visible paths, and write to
  its temporary directory. Around hidden files, reading is allowed entry by entry.
- If a command may create files in a directory, single files in there can't be protected. A command
  that writes to the workspace can therefore write to `.git` too, so it must always be approved.
- Landlock does not cover owners, modes, times and attributes of files. A command that may not write
  can't change them. A command that may write can change them wherever its user can.
- Nor does it cover limits, priorities and processors of other processes. A thread can set them only
  for itself.

No unix socket can be created, because a filter can't tell one address from another. With `network`,
internet sockets can be created, and these also reach this machine. Terminals can't be created.

This sandbox needs version 6 of Landlock (Linux 6.12). Older versions don't count as a sandbox:
before version 6, signals reach all processes of the user; before 5, any device control is possible;
before 3, files can be truncated; before 2, files can't be moved between directories.
"""

import platform
import re
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tiller_daemon.sandbox import launcher as sandbox_launcher
from tiller_daemon.sandbox.base import (
    ROOT_CAPABILITIES,
    Sandbox,
    SandboxProfile,
    WrappedCommand,
)
from tiller_daemon.sandbox.known_paths import root_of
from tiller_daemon.sandbox.level import SandboxLevel
from tiller_daemon.sandbox.seccomp import filter_without_namespaces

VERSION_NEEDED: Final = 6

LAUNCHER: Final = (sys.executable, "-I", "-S", sandbox_launcher.__file__)

DEVICES: Final = Path("/dev")
"""The directory of devices, hidden because of disks, cameras and other terminals. The launcher
allows harmless devices."""

PROCESSES: Final = Path("/proc")

SHARED_MEMORY: Final = Path("/dev/shm")  # noqa: S108
"""The directory of locks and memory that processes share by name; as public as `/tmp`."""

SHARED_TEMPORARY: Final = (Path("/tmp"), Path("/var/tmp"))  # noqa: S108
"""The directories for temporary files, which are writable because there is no private `/tmp`
without namespaces. Sockets in them can't be reached."""

DENIALS: Final = re.compile(
    r"Permission denied|Operation not permitted|Address family not supported|Bad system call"
    r"|Function not implemented|Could not resolve host|Temporary failure in name resolution"
    r"|Name or service not known|EACCES|EPERM|EAFNOSUPPORT|ENOSYS",
    re.IGNORECASE,
)

LIMITS: Final = (
    "Every command that does more than read needs approval: if it can write to the workspace, it "
    "can also write to `.git` and to agents' configuration there. Such a command can even change "
    "modes, owners and times of files elsewhere. /tmp is shared, and other processes are visible. "
    "There are no unix sockets and no terminals, and nothing on localhost can be reached."
)
"""How Landlock falls short of bubblewrap, in sentences for users."""


class Landlock(Sandbox):
    """The sandbox on Linux without namespaces."""

    name = "landlock"
    denials = DENIALS
    limits = LIMITS
    loosest_unasked = SandboxLevel.READ_ONLY

    def __init__(self, launcher: Sequence[str] = LAUNCHER) -> None:
        """Confine commands with `launcher`."""
        self._launcher: Final = tuple(launcher)

    @contextmanager
    def wrap(
        self,
        arguments: Sequence[str],
        profile: SandboxProfile,
    ) -> Generator[WrappedCommand]:
        """Yield the command to run instead of `arguments`."""
        options = _options(profile, platform.machine())
        yield WrappedCommand((*self._launcher, *options, "--", *arguments))


def _options(profile: SandboxProfile, machine: str) -> Generator[str]:
    """Yield the options for the launcher."""
    calls = filter_without_namespaces(machine, network=profile.network, writes=profile.writes)
    numbers = ROOT_CAPABILITIES.values() if profile.writes else ()
    capabilities = sum(1 << number for number in numbers)
    # Programs need their own entries in `/proc`.
    readable = (*profile.visible, PROCESSES)
    temporary = (profile.temporary,) if profile.temporary else ()
    writable = profile.writable and (*profile.writable, SHARED_MEMORY, *SHARED_TEMPORARY)
    writable = writable or temporary
    # A writable directory inside another one could be moved away and replaced by a link.
    roots = [root for root in writable if root_of(root, writable)]
    # Nothing inside the workspace can be protected (see the module).
    workspace = (profile.workspace,)
    unwritable = [path for path in profile.read_only if not root_of(path, workspace)]
    named = (
        ("--read", (*readable, *profile.shown, profile.workspace)),
        ("--write", writable),
        ("--hide", (DEVICES, *profile.hidden)),
        ("--keep", (*roots, *unwritable)),
    )
    yield from ("--calls", calls.hex(), "--capabilities", str(capabilities))
    if temporary and not profile.writable:
        yield from ("--temporary", str(profile.temporary))
    for name, paths in named:
        for path in paths:
            yield from (name, str(path))
