"""A workspace, and each sandbox around it, as root and as an ordinary user."""

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Literal, get_args

import pytest

from tiller_daemon.sandbox import launcher as sandbox_launcher
from tiller_daemon.sandbox.base import (
    CommandSandbox,
    Sandbox,
    SandboxProfile,
    SandboxSearchResult,
    WrappedCommand,
)
from tiller_daemon.sandbox.bubblewrap import Bubblewrap
from tiller_daemon.sandbox.detect import bubblewrap_program, try_out, try_out_landlock
from tiller_daemon.sandbox.level import SandboxLevel

NOBODY = 65534
WHO = ("root", "ordinary") if os.geteuid() == 0 else ("ordinary",)
PYTHON = shutil.which("python3", path="/usr/bin:/bin") or sys.executable
"""A Python that an ordinary user may run."""

Mechanism = Literal["bubblewrap", "landlock"]
MECHANISMS = get_args(Mechanism)


class ConfinesNothing(Sandbox):
    """A sandbox that confines nothing and only describes itself."""

    name = "none"
    denials = re.compile("denied")

    def __init__(self, loosest_unasked: SandboxLevel = SandboxLevel.BUILD) -> None:
        super().__init__()
        self.loosest_unasked = loosest_unasked

    @contextmanager
    def wrap(self, arguments: Sequence[str], profile: SandboxProfile) -> Generator[WrappedCommand]:
        raise NotImplementedError
        yield WrappedCommand(arguments)


@contextmanager
def eyes_of_ordinary_user() -> Generator[None]:
    """In this block, access files as an ordinary user even if the tests run as root."""
    own = os.geteuid()
    os.seteuid(NOBODY if own == 0 else own)
    try:
        # The configuration of root, which git would look for, can't be read.
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
            yield
    finally:
        os.seteuid(own)


class OrdinaryBubblewrap(Bubblewrap):
    """Bubblewrap as an ordinary user's daemon would call it, for tests that run as root."""

    def __init__(self, script: Path, program: str, prefix: Sequence[str]) -> None:
        script.write_text(f'#!/bin/sh\nexec {" ".join(prefix)} "{program}" "$@"\n')
        script.chmod(0o755)
        super().__init__(str(script), root=False)

    @contextmanager
    def wrap(self, arguments: Sequence[str], profile: SandboxProfile) -> Generator[WrappedCommand]:
        with ExitStack() as stack:
            with eyes_of_ordinary_user():
                wrapped = stack.enter_context(super().wrap(arguments, profile))
            yield wrapped


class Place:
    """A user's workspace; `prefix` goes before a command to run it as that user."""

    def __init__(self, root: Path, who: str) -> None:
        self.root, self.workspace = root, root / "workspace"
        self.workspace.mkdir()
        self.prefix: list[str] = []
        if who == "ordinary" and os.geteuid() == 0:
            os.chown(self.workspace, NOBODY, NOBODY)
            self.prefix = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]

    def sandbox(self, mechanism: Mechanism) -> CommandSandbox:
        """Return a sandbox with a writable workspace; skip the test where there is none."""
        found = (
            try_out_landlock(self._launcher()) if mechanism == "landlock" else self._bubblewrap()
        )
        if found.sandbox is None:
            pytest.skip(found.problem)
        held = SandboxProfile(self.workspace, writable=(self.workspace,))
        return CommandSandbox(found.sandbox, held, SandboxLevel.SESSION, [])

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
        return try_out(OrdinaryBubblewrap(self.root / "bwrap", program, self.prefix))


@contextmanager
def place_of(who: str) -> Iterator[Place]:
    """Yield a place that an ordinary user can reach, unlike the tests' directory."""
    root = Path(tempfile.mkdtemp(prefix="tiller-place-"))
    root.chmod(0o755)
    try:
        yield Place(root, who)
    finally:
        shutil.rmtree(root, ignore_errors=True)
