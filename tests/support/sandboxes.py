"""A workspace, and each sandbox around it, as root and as an ordinary user."""

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, get_args

import pytest

from tiller_daemon.sandbox import launcher as sandbox_launcher
from tiller_daemon.sandbox.bubblewrap import Bubblewrap
from tiller_daemon.sandbox.confinement import (
    CommandSandbox,
    Confinement,
    SandboxSearchResult,
    WrappedCommand,
)
from tiller_daemon.sandbox.detect import bubblewrap_program, try_out, try_out_landlock
from tiller_daemon.sandbox.enclosure import Enclosure

NOBODY = 65534
WHO = ("root", "ordinary") if os.geteuid() == 0 else ("ordinary",)
PYTHON = shutil.which("python3", path="/usr/bin:/bin") or sys.executable
"""One that an ordinary user may run."""

Mechanism = Literal["bubblewrap", "landlock"]
MECHANISMS = get_args(Mechanism)


class ConfinesNothing:
    """A sandbox that is only asked what it is."""

    name, helpers, limits = "none", 0, ""
    denials = re.compile("denied")

    def __init__(self, loosest_unasked: Enclosure = Enclosure.BUILD) -> None:
        self.loosest_unasked = loosest_unasked

    @contextmanager
    def wrap(
        self, arguments: Sequence[str], confinement: Confinement, report: Callable[[str], None]
    ) -> Generator[WrappedCommand]:
        raise NotImplementedError
        yield WrappedCommand(arguments)


class Place:
    """A workspace of that user; `prefix` goes before the words of a command that is theirs."""

    def __init__(self, root: Path, who: str) -> None:
        self.root, self.workspace = root, root / "workspace"
        self.workspace.mkdir()
        self.prefix: list[str] = []
        if who == "ordinary" and os.geteuid() == 0:
            os.chown(self.workspace, NOBODY, NOBODY)
            self.prefix = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]

    def confined(self, mechanism: Mechanism) -> CommandSandbox:
        """A sandbox in which the workspace can be written; skips the test where there is none."""
        found = (
            try_out_landlock(self._launcher()) if mechanism == "landlock" else self._bubblewrap()
        )
        if found.sandbox is None:
            pytest.skip(found.problem)
        held = Confinement(self.workspace, writable=(self.workspace,))
        return CommandSandbox(found.sandbox, held, Enclosure.SESSION, [])

    def _launcher(self) -> tuple[str, ...]:
        launcher = self.root / "launcher.py"
        shutil.copy(sandbox_launcher.__file__, launcher)
        return (*self.prefix, PYTHON, "-I", "-S", str(launcher))

    def _bubblewrap(self) -> SandboxSearchResult:
        program = bubblewrap_program()
        if program is None:
            pytest.skip("no bwrap: apt install bubblewrap")
        if not self.prefix:
            return try_out(Bubblewrap(program))
        script = self.root / "bwrap"
        script.write_text(f'#!/bin/sh\nexec {" ".join(self.prefix)} "{program}" "$@"\n')
        script.chmod(0o755)
        return try_out(Bubblewrap(str(script), root=False))


@contextmanager
def place_of(who: str) -> Iterator[Place]:
    """A place that an ordinary user can get to, as they can't get below the tests' directory."""
    root = Path(tempfile.mkdtemp(prefix="tiller-place-"))
    root.chmod(0o755)
    try:
        yield Place(root, who)
    finally:
        shutil.rmtree(root, ignore_errors=True)
