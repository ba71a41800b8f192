"""Landlock: a command gives up rights before it begins; for where no namespaces can be made.

A launcher (`launcher`) is started in the command's place. It takes a Landlock domain for
files and signals, a seccomp filter for the rest (`seccomp`), and becomes the command.

Landlock only ever allows, and what is allowed for a directory is allowed for all that is in it. So:

- A command that only reads is held to all of its confinement: it may list and read what is visible,
  and write to its temporary directory. Around what is hidden, reading is allowed entry by entry.
- A directory in which files can be made can't keep some of them from being written. A command that
  writes in the workspace can therefore write to `.git` too, and is always asked about.
- Who owns a file and who may use it, its times and attributes are nothing to Landlock. A command
  that may write nothing can't change them; one that may write can, wherever its user can.

No socket can be made, as neither an address nor a path can be told apart: with `network` one of the
internet can, and then this machine can be reached too; a unix socket never. Nor can a terminal.

It takes version 6 (Linux 6.12). Before that signals reach every process of the user; before 5
devices can be told to do anything, before 3 every file can be cut off, before 2 none can be moved
to another directory. Less than what is said here is not taken for a sandbox.
"""

import platform
import re
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tiller_daemon.private import make_directory
from tiller_daemon.sandbox import launcher as sandbox_launcher
from tiller_daemon.sandbox.confinement import ROOT_CAPABILITIES, Confinement, WrappedCommand
from tiller_daemon.sandbox.enclosure import Enclosure
from tiller_daemon.sandbox.known_paths import enclosing_root
from tiller_daemon.sandbox.seccomp import filter_without_namespaces

VERSION_NEEDED: Final = 6

LAUNCHER: Final = (sys.executable, "-I", "-S", sandbox_launcher.__file__)

DEVICES: Final = Path("/dev")
"""Disks, cameras, other terminals: the launcher allows those that everybody needs."""

PROCESSES: Final = Path("/proc")

SHARED_MEMORY: Final = Path("/dev/shm")  # noqa: S108
"""Where locks and memory are made that processes share by name; as public as `/tmp`."""

SHARED_TEMPORARY: Final = (Path("/tmp"), Path("/var/tmp"))  # noqa: S108
"""There is no private `/tmp` without namespaces; without unix sockets none in it can be reached."""

DENIALS: Final = re.compile(
    r"Permission denied|Operation not permitted|Address family not supported|Bad system call"
    r"|Function not implemented|Could not resolve host|Temporary failure in name resolution"
    r"|Name or service not known|EACCES|EPERM|EAFNOSUPPORT|ENOSYS",
    re.IGNORECASE,
)

LIMITS: Final = (
    "each command that does more than read is asked about, as one that may write in the workspace "
    "can write to `.git` and to agents' configuration there; modes, owners and times of files "
    "elsewhere can be changed by what may write; /tmp is shared; other processes can be seen; no "
    "unix sockets, no terminals, nothing on localhost"
)
"""What is less than with bubblewrap, for people."""


class Landlock:
    """The mechanism. `launcher` is how the launcher is started."""

    def __init__(self, launcher: Sequence[str] = LAUNCHER, machine: str = "") -> None:
        self.name: Final = "landlock"
        self.helpers: Final = 0
        self.limits: Final = LIMITS
        self.denials: Final = DENIALS
        self.most_unasked: Final = Enclosure.READ_ONLY
        self._launcher: Final = tuple(launcher)
        self._machine: Final = machine or platform.machine()

    @contextmanager
    def wrap(
        self,
        arguments: Sequence[str],
        confinement: Confinement,
        report: Callable[[str], None],  # noqa: ARG002 - it takes nothing over
    ) -> Generator[WrappedCommand]:
        """What to run instead of `arguments`."""
        if confinement.temporary:
            make_directory(confinement.temporary)
        yield WrappedCommand(
            (*self._launcher, *_options(confinement, self._machine), "--", *arguments)
        )


def _options(confinement: Confinement, machine: str) -> Generator[str]:
    """What the launcher is told."""
    calls = filter_without_namespaces(
        machine, network=confinement.network, writes=confinement.writes
    )
    kept_by_root = (
        sum(1 << number for number in ROOT_CAPABILITIES.values()) if confinement.writes else 0
    )
    if confinement.visible is None:
        readable: Sequence[Path] = (Path("/"),)
        writable = (*confinement.writable, SHARED_MEMORY, *SHARED_TEMPORARY)
    else:
        readable = (*confinement.visible, PROCESSES)
        writable = (confinement.temporary,) if confinement.temporary else ()
    # Where a root lies in another it could be moved away, and a link be put in its place.
    roots = [root for root in writable if enclosing_root(root, writable)]
    # What lies in the workspace can't be kept from being written (see above).
    unwritable = [
        path for path in confinement.read_only if not enclosing_root(path, (confinement.workspace,))
    ]
    named = (
        ("--read", (*readable, *confinement.shown, confinement.workspace)),
        ("--write", writable),
        ("--hide", (DEVICES, *confinement.hidden)),
        ("--keep", (*roots, *unwritable)),
    )
    yield from ("--calls", calls.hex(), "--capabilities", str(kept_by_root))
    if confinement.visible is not None and confinement.temporary:
        yield from ("--temporary", str(confinement.temporary))
    for name, paths in named:
        for path in paths:
            yield from (name, str(path))
