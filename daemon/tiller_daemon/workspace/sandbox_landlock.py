"""Landlock: a command gives up rights before it begins; for where no namespaces can be made.

A launcher (`sandbox_launcher`) is started in the command's place. It takes a Landlock domain for
files and signals, a seccomp filter for the rest (`sandbox_calls`), and becomes the command. There
is no process between, and none beside: what a command leaves behind is found by its marks.

Landlock only ever allows, and what is allowed for a directory is allowed for all that is in it. So:

- Reading is allowed everywhere, around what is hidden: a directory that holds something hidden is
  allowed entry by entry. It can't be listed itself, nor can be read what comes into it later.
- Writing is allowed in the workspace and other places as a whole, as a command makes files there.
  What lies in the workspace, or in its git directory elsewhere, and must not be written (hooks,
  configuration) can therefore be written, and is put back when the command has ended and all its
  processes with it (`sandbox_put_back`). That is no promise for as long as a command runs, so one
  that goes on in the background is not run by this mechanism: it asks.
- In any other writable place what is kept or hidden is left out entry by entry, as for reading, and
  so is a writable place in another one, such as a workspace in `/tmp`: it can't be moved away.
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
from collections.abc import Callable, Collection, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tiller_daemon.workspace import sandbox_launcher
from tiller_daemon.workspace.sandbox import ROOT_KEEPS, Confinement, Enclosed, NotConfined
from tiller_daemon.workspace.sandbox_calls import filter_without_namespaces
from tiller_daemon.workspace.sandbox_paths import holds_only_sockets, within
from tiller_daemon.workspace.sandbox_put_back import NotKept, PutBack

VERSION_NEEDED: Final = 6

LAUNCHER: Final = (sys.executable, "-I", "-S", sandbox_launcher.__file__)

DEVICES: Final = Path("/dev")
"""Disks, cameras, other terminals: the launcher allows those that everybody needs."""

SHARED_MEMORY: Final = Path("/dev/shm")  # noqa: S108
"""Where locks and memory are made that processes share by name; as public as `/tmp`."""

DENIALS: Final = re.compile(
    r"Permission denied|Operation not permitted|Address family not supported|Bad system call"
    r"|Function not implemented|Could not resolve host|Temporary failure in name resolution"
    r"|Name or service not known|EACCES|EPERM|EAFNOSUPPORT|ENOSYS",
    re.IGNORECASE,
)

LIMITS: Final = (
    "hooks, git's and agents' configuration are put back when a command has ended, not kept from "
    "writing; modes, owners and times of files elsewhere can be changed by what may write; other "
    "processes can be seen; no unix sockets, no terminals, nothing on localhost; background "
    "commands are asked about"
)
"""What is less than with bubblewrap, for people."""


class Landlock:
    """The mechanism. `launcher` is how the launcher is started."""

    def __init__(self, launcher: Sequence[str] = LAUNCHER, machine: str = "") -> None:
        self.name: Final = "landlock"
        self.helpers: Final = 0
        self.limits: Final = LIMITS
        self.denials: Final = DENIALS
        self._launcher: Final = tuple(launcher)
        self._machine: Final = machine or platform.machine()
        self._put_back: Final = PutBack()

    @contextmanager
    def around(
        self, arguments: Sequence[str], confinement: Confinement, told: Callable[[str], None]
    ) -> Generator[Enclosed]:
        """What to run instead of `arguments`; to be left when the command has ended."""
        # Nobody can talk to a socket.
        hidden = [path for path in confinement.hidden if not holds_only_sockets(path)]
        returned = _put_back(confinement, hidden)
        options = _options(confinement, self._machine, hidden, returned)
        try:
            with self._put_back.around(returned, told):
                yield Enclosed((*self._launcher, *options, "--", *arguments))
        except NotKept as problem:
            raise NotConfined(f"The sandbox can't hold this command. {problem}") from problem


def _put_back(confinement: Confinement, hidden: Sequence[Path]) -> dict[Path, Path]:
    """What is put back, and the directory that it lies in: where a command has to make files."""
    own = {confinement.repository, confinement.workspace}
    around_hidden = {root for path in hidden if (root := within(path, confinement.writable))}
    whole = [root for root in confinement.writable if root in own - around_hidden]
    return {path: root for path in _kept(confinement) if (root := within(path, whole))}


def _kept(confinement: Confinement) -> Sequence[Path]:
    """What must be after a command as it was before."""
    return (*confinement.folders, *confinement.files, *confinement.never_made)


def _options(
    confinement: Confinement, machine: str, hidden: Sequence[Path], returned: Collection[Path]
) -> Generator[str]:
    """What the launcher is told."""
    calls = filter_without_namespaces(
        machine, network=confinement.network, writes=bool(confinement.writable)
    )
    kept_by_root = sum(1 << number for number in ROOT_KEEPS.values())
    # Where a root lies in another it could be moved away, and a link be put in its place.
    roots = [root for root in confinement.writable if within(root, confinement.writable)]
    named = (
        ("--read", (Path("/"), *confinement.shown, confinement.workspace)),
        ("--write", (*confinement.writable, *([SHARED_MEMORY] if confinement.writable else []))),
        ("--hide", (DEVICES, *hidden)),
        ("--keep", [*roots, *(path for path in _kept(confinement) if path not in returned)]),
    )
    yield from ("--calls", calls.hex(), "--capabilities", str(kept_by_root))
    for name, paths in named:
        for path in paths:
            yield from (name, str(path))
