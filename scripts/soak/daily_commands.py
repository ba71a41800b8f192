"""Runs what agents run all day in real repositories, and counts needless questions and failures.

A real daemon with its default configuration runs every command in turn, and every request is
answered with `once`. A question is needless if the line only reads or builds, if it is the second
one about the line, or if it is about leaving the sandbox, unless docs/security.md says that the
line must. `daily_commands.txt` has the commands for all repositories and for those with certain
files. The commands change the repositories, so give this script copies whose upstream is a bare
repository beside them. Your own home is used.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / place) for place in ("tests", "daemon", "protocol", "client")]

import trio  # noqa: E402

from e2e.words import bash, calls, text  # noqa: E402 - found there
from support import frontend as frontends  # noqa: E402
from support.daemon import CONFIG, Daemon  # noqa: E402
from support.frontend import Frontend  # noqa: E402
from tiller_protocol.events import Event, RequestOpened, TurnEnded, WarningRaised  # noqa: E402
from tiller_protocol.items import Request, ToolCall  # noqa: E402
from tiller_protocol.ops import Answer  # noqa: E402

DEFAULT = CONFIG.replace('sandbox = { mode = "full_access" }\n', "")
COMMANDS = Path(__file__).with_suffix(".txt")

COMMAND_S = 150.0
"""Longest wait for one command; builds of real projects take minutes on a busy machine."""

WIDTH, TITLE_WIDTH, OUTPUT_LINES = 60, 150, 12


class Outcome(NamedTuple):
    """A command, the questions about it, and its end."""

    sign: str
    command: str
    asked: tuple[Request, ...]
    call: ToolCall
    warnings: tuple[str, ...]

    @property
    def needless(self) -> int:
        """How many of the questions should not have been asked."""
        questions = ["!" if one.permission == "unsandboxed" else "?" for one in self.asked]
        needed = "!" in questions if self.sign == "!" else self.sign != "." and "?" in questions
        return len(self.asked) - needed

    @property
    def failed(self) -> bool:
        """Whether the command ended otherwise than with success, or was not started."""
        return self.call.state != "completed" or self.call.exit_status not in (0, None)

    @property
    def notes(self) -> str:
        """What else happened: it ran again, or something was put aside."""
        found = ("ran again" in self.call.output and "again", *self.warnings)
        return " ".join(note for note in found if note)


def commands_for(workspace: Path) -> Iterator[tuple[str, str]]:
    """Yield the sign and text of each command for a repository."""
    branch = _git(workspace, "branch", "--show-current").strip()
    listed = _git(workspace, "ls-files").splitlines()
    readme = next((name for name in listed if name.startswith("README")), listed[0])
    applies = False
    for line in COMMANDS.read_text().splitlines():
        if line.startswith("["):
            name = line.strip("[]")
            applies = name == "all" or (workspace / name).exists()
        elif applies and line:
            command = line[2:].replace("BASE", branch).replace("README", readme)
            yield line[0], command.replace("␤", "\n")


def _git(workspace: Path, *arguments: str) -> str:
    return subprocess.check_output(("git", *arguments), cwd=workspace, text=True)


async def run_all(frontend: Frontend, workspace: Path, only: str) -> list[Outcome]:
    """Run the commands for a repository, each in its own turn of one session."""
    chosen = [(sign, line) for sign, line in commands_for(workspace) if only in line]
    steps = [
        step
        for sign, line in chosen
        for step in (calls(bash(line, background=sign == "&")), text("done"))
    ]
    session_id = await frontend.session(workspace, *steps, approve="ask")
    outcomes: list[Outcome] = []
    for number, (sign, line) in enumerate(chosen, 1):
        began = len(frontend.events(session_id))
        await frontend.say(session_id)
        asked = await answer_all(frontend, session_id, began)
        await frontend.turn_ended(session_id, number)
        bodies = [event.body for event in frontend.events(session_id)[began:]]
        warnings = tuple(one.code for one in bodies if isinstance(one, WarningRaised))
        call = frontend.completed_calls(session_id)[-1]
        outcomes.append(Outcome(sign, line, asked, call, warnings))
        show(outcomes[-1])
    return outcomes


async def answer_all(frontend: Frontend, session_id: str, began: int) -> tuple[Request, ...]:
    """Answer requests with `once` until the turn ends; return the requests."""
    asked: dict[str, Request] = {}

    def is_next(event: Event) -> bool:
        body = event.body
        is_new = isinstance(body, RequestOpened) and body.request.id not in asked
        return event.seq > began and (is_new or isinstance(body, TurnEnded))

    while True:
        body = (await frontend.until(session_id, is_next)).body
        if not isinstance(body, RequestOpened):
            return tuple(asked.values())
        asked[body.request.id] = body.request
        await frontend.must(Answer(body.request.id, "once"))


def show(one: Outcome) -> None:
    """Print what happened to a command."""
    line = " ".join(one.command.split())[:WIDTH]
    marks = f"{'FAILED ' * one.failed}{'NEEDLESS ' * bool(one.needless)}{one.notes}"
    took_s = one.call.duration_s or 0
    status = f"{one.call.exit_status!s:>4} {took_s:5.1f} s {len(one.asked)} asked"
    print(f"  {one.sign} {status} {line:{WIDTH}} {marks}", flush=True)
    for request in one.asked:
        print(f"         {request.permission}: {request.title[:TITLE_WIDTH]}")
    if one.failed or one.warnings:
        output = one.call.output.splitlines()[-OUTPUT_LINES:]
        print(*(f"         | {text}" for text in output), sep="\n")


def summary(outcomes: list[Outcome]) -> str:
    """Return the figures of some commands."""
    asked = sum(len(one.asked) for one in outcomes)
    needless = sum(one.needless for one in outcomes)
    failed = sum(one.failed for one in outcomes)
    share = needless / max(asked, 1)
    return (
        f"{len(outcomes)} commands, {asked - needless} questions needed, "
        f"{needless} needless ({share:.1%}), {failed} failed"
    )


async def measure(workspaces: list[Path], only: str) -> None:
    """Run the commands for each repository and print what happened."""
    total: list[Outcome] = []
    with tempfile.TemporaryDirectory() as home:
        daemon = Daemon(Path(home), DEFAULT)
        daemon.variables["HOME"] = os.environ["HOME"]
        async with trio.open_nursery() as nursery:
            with daemon:
                frontend = await Frontend.connect(daemon, nursery)
                for workspace in workspaces:
                    outcomes = await run_all(frontend, workspace, only)
                    print(f"{workspace.name}: {summary(outcomes)}", flush=True)
                    total += outcomes
                await frontend.disconnect()
            print(*daemon.crashes, sep="\n")
    print(f"all: {summary(total)}; {len({one.command for one in total})} different commands")


def main() -> None:
    """Read the arguments and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("repository", nargs="+", type=Path, help="a workspace that may be changed")
    parser.add_argument("--only", default="", help="run only commands that contain this text")
    arguments = parser.parse_args()
    frontends.TIMEOUT_S = COMMAND_S
    workspaces = [path.resolve() for path in arguments.repository]
    trio.run(partial(measure, workspaces, arguments.only))


if __name__ == "__main__":
    main()
