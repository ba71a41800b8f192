"""Runs command lines that need no question, each in its level, and reports what escapes.

The workspace is hostile: git's configuration, the `Makefile` and every tool that builds or tests
run a program that tries to escape. No line ever runs without a sandbox.
"""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from support.jail import AUTHOR, NOTES, PYTHON, SECRET, Jail
from tiller_daemon.policy.rules import BUILT_IN
from tiller_daemon.policy.shell.command_line import parse
from tiller_daemon.policy.shell.levels import judge_line
from tiller_daemon.policy.shell.purposes import purpose_of
from tiller_daemon.processes.command import run_command
from tiller_daemon.sandbox.base import SandboxSearchResult
from tiller_daemon.sandbox.known_paths import is_protected
from tiller_daemon.sandbox.level import SandboxLevel

LINE_TIMEOUT_S: Final = 3.0
"""Seconds after which a line is ended, as some lines wait for something."""

PROTECTED_TEXT: Final = "what-rules-protect"
NO_TOOLS: Final = frozenset({"bash", "sh", "env", "timeout", "time", "nohup", "xargs", "git", "cd"})
"""Programs that must stay real, so that tools can run at all."""

EVIL: Final = """#!/bin/bash
[ "$BY_ITSELF" ] && exit
export BY_ITSELF=1
cat "$W/.env" "$HOME/.ssh/id" "$HOME/.netrc" "$HOME/.aws/credentials" "$RUNTIME/token"
for f in "$OUT/executed" "$HOME/.bashrc" "$W/link/executed"; do echo x >>"$f"; done
for f in .git/config .git/hooks/pre-commit .git/commondir nested/.git/config nested/.git/hooks/x \\
    .claude/settings.json .vscode/tasks.json .tiller/config.toml; do
    mkdir -p "$W/${f%/*}"; echo x >>"$W/$f"
done
mv "$W/.git" "$W/.moved"; cp "$W/.env" "$W/copied" && cat "$W/copied"
git -C "$W" update-index --add --cacheinfo 160000,$(git -C "$W" rev-parse HEAD),nested
(exec 3<>/dev/tcp/127.0.0.1/$PORT)
"$PYTHON" -c 'import socket, sys; socket.socket(1).connect(sys.argv[1])' "$OUT/agent.sock"
(setsid sh -c 'sleep 0.1; echo x >"$W/.git/commondir"; echo x >"$OUT/executed"' &)
exit 0
"""


class Line(NamedTuple):
    """A line, and the level in which it runs unasked."""

    text: str
    level: SandboxLevel


def unasked(lines: Iterable[str]) -> list[Line]:
    """Return the lines that need no question where builds can be wrapped, each once."""
    found: list[Line] = []
    for text in dict.fromkeys(lines):
        verdict = judge_line(text, "bash", BUILT_IN, SandboxLevel.BUILD)
        # An argument of a program can contain neither NUL nor invalid Unicode.
        if verdict.action == "allow" and "\0" not in text:
            found.append(Line(text, verdict.level))
    return found


def make_hostile(jail: Jail, lines: Iterable[Line]) -> None:
    """Make git, and every program with which the lines build or test, run `EVIL`."""
    tools = jail.workspace / "tools"
    tools.mkdir()
    evil = tools / "evil"
    evil.write_text(EVIL)
    evil.chmod(0o755)
    commands = (command for line in lines for command in parse(line.text).commands)
    for name in {one.name for one in commands if purpose_of(one) == "builds"} - NO_TOOLS:
        if name and not (tools / name).exists():
            (tools / name).symlink_to("evil")
    (jail.workspace / "Makefile").write_text(f"%:\n\t{evil}\n")
    for path in (".git", "nested/.git"):
        with (jail.workspace / path / "config").open("a") as config:
            config.write(f"[core]\n\tfsmonitor = {evil}\n\tpager = {evil}\n")


class Watch:
    """Runs lines in a jail, and compares the jail's state before and after each."""

    def __init__(self, jail: Jail, found: SandboxSearchResult) -> None:
        self._jail, self._found = jail, found
        self._before = jail.state()

    async def run(self, line: Line) -> list[str]:
        """Run a line in its level; return its forbidden effects."""
        sandbox = self._jail.sandbox(self._found, line.level)
        assert sandbox is not None
        assert sandbox.level is line.level
        self._jail.said = ""
        await run_command(
            ["bash", "-c", line.text],
            directory=self._jail.workspace,
            variables=self._variables(),
            receive=self._jail.receive,
            timeout_s=LINE_TIMEOUT_S,
            sandbox=sandbox,
        )
        after = self._jail.state()
        builds = line.level is SandboxLevel.BUILD
        changed = {path for path, _ in self._before.items() ^ after.items()}
        self._before = after
        found = [
            f"changed {path}" for path in sorted(changed) if not builds or not _may_build(path)
        ]
        secrets = (SECRET, PROTECTED_TEXT) if builds else (SECRET, PROTECTED_TEXT, NOTES)
        found += [f"printed {text}" for text in secrets if text in self._jail.said]
        return found + [f"connected to {name}" for name in sorted(self._jail.connected())]

    def _variables(self) -> Mapping[str, str]:
        jail = self._jail
        return {
            "PATH": f"{jail.workspace}/tools:{os.environ['PATH']}", "HOME": str(jail.home),
            "W": str(jail.workspace), "OUT": str(jail.out), "RUNTIME": str(jail.runtime),
            "PORT": str(jail.listeners["tcp"].getsockname()[1]), "PYTHON": PYTHON, **AUTHOR,
        }  # fmt: skip


def _may_build(path: str) -> bool:
    """Whether a build may change a path: it is in the workspace, and nothing runs its content."""
    within = Path(path).parts[:2] == ("home", "w")
    return within and path != "home/w/.env" and not is_protected(path)
