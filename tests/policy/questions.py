"""Command lines that people labelled with what they need, and the verdicts of the default policy.

The labels are in `agent_commands.txt` and `script_lines.txt`, which explain them.
"""

from pathlib import Path
from typing import NamedTuple

from msgspec import structs

from tiller_daemon.policy.rules import Verdict, decide
from tiller_daemon.sandbox.level import SandboxLevel
from tiller_daemon.session.calls.command_paths import further_requirements
from tiller_daemon.tools.commands.bash import BASH, BashArguments

HARMLESS = ("reads", "works")
"""Labels of lines that the default configuration should not ask about."""

LABELS = (*HARMLESS, "writes", "network", "outside", "secret", "unknown")


class Labelled(NamedTuple):
    """A command line with its label."""

    label: str
    text: str

    @property
    def is_harmless(self) -> bool:
        """Whether a question about it is unnecessary."""
        return self.label in HARMLESS


def labelled(name: str) -> list[Labelled]:
    """Return the lines of a file in this directory."""
    found: list[Labelled] = []
    label = ""
    for line in Path(__file__).with_name(name).read_text().splitlines():
        if line.startswith("## "):
            label = line.removeprefix("## ")
            assert label in LABELS, label
        elif label and line:
            found.append(Labelled(label, line.replace("⏎", "\n")))
    return found


def default_verdict(text: str, workspace: Path) -> Verdict:
    """Return the verdict of the default configuration where a sandbox for builds is available."""
    requirements = BASH.requirements(BashArguments(text.replace("@W@", str(workspace))), workspace)
    held = [structs.replace(need, loosest_unasked=SandboxLevel.BUILD) for need in requirements]
    return decide((*held, *further_requirements(held, workspace, lambda _: False)), (), "ask")


def asks(text: str, workspace: Path) -> bool:
    """Whether the default configuration asks about a command line."""
    return default_verdict(text, workspace).action != "allow"


def is_contained(line: Labelled, workspace: Path) -> bool:
    """Whether a line that is not harmless asks, or runs where it can't do what its label says.

    A build level allows only changes in the workspace. Lines that need the network or protected
    files must ask or run in the read-only sandbox.
    """
    verdict = default_verdict(line.text, workspace)
    if verdict.action != "allow" or verdict.level == SandboxLevel.READ_ONLY:
        return True
    return verdict.level == SandboxLevel.BUILD and line.label not in ("network", "secret")
