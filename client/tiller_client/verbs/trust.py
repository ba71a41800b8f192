"""`trust` and `untrust`: whether what a project's `.tiller` brings counts."""

import sys
from argparse import Namespace
from pathlib import Path

from tiller_client.connection import Connection
from tiller_client.console import print_json, say, stdout_width
from tiller_client.errors import UsageError
from tiller_client.prompt import read_workspace
from tiller_client.render_request import block
from tiller_client.runtime import my_places
from tiller_client.text import harmless, one_line, verbatim
from tiller_protocol.answers import ProjectResult
from tiller_protocol.ops import Project

SHOWN_CHARS_MAX = 20_000
"""So much of a file is shown before it is trusted."""


def run(arguments: Namespace) -> int:
    """Show what a project brings and have it trusted, or trust it no more."""
    workspace = read_workspace(arguments.directory)
    with Connection(my_places(), f"tiller {arguments.verb}") as connection:
        if arguments.verb == "untrust":
            found = connection.ask(Project(workspace, trust=False), ProjectResult)
            return _say(found, json=arguments.json)
        found = connection.ask(Project(workspace), ProjectResult)
        if found.trusted or not found.files or (arguments.json and not arguments.yes):
            return _say(found, json=arguments.json)
        if not arguments.yes and not _agreed(found):
            say("it is not trusted")
            return 1
        op = Project(workspace, trust=True, digest=found.digest)
        return _say(connection.ask(op, ProjectResult), json=arguments.json)


def _agreed(found: ProjectResult) -> bool:
    """Show all of it and ask; the commands that would run come last, and none is cut."""
    for name in found.files:
        path = Path(found.workspace, name)
        text = path.read_text(errors="replace") if path.is_file() else "(leads nowhere)"
        more = " …" if len(text) > SHOWN_CHARS_MAX else ""
        say(f"--- {one_line(name)}\n{harmless(text[:SHOWN_CHARS_MAX]).rstrip()}{more}\n")
    if found.hooks:
        say(
            "These hooks would run by themselves, in the sandbox that holds the model's commands:\n"
        )
    for hook in found.hooks:
        tools = f" {one_line(hook.tool)}" if hook.on.startswith("tool_") else ""
        say(f"{one_line(hook.on)}{tools}:\n{block(verbatim(hook.command), stdout_width())}\n")
    if not sys.stdin.isatty():
        raise UsageError("nobody is there to ask: look at these files, then: tiller trust --yes")
    say(f"Trust these {len(found.files)} files as they are? [y/N] ", end="")
    sys.stdout.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _say(found: ProjectResult, *, json: bool) -> int:
    if json:
        print_json(found)
    elif found.problem:
        say(f"{one_line(found.workspace)} can't be trusted: {one_line(found.problem)}")
    elif not found.files:
        say(f"{one_line(found.workspace)} brings nothing that would have to be trusted")
    else:
        word = "is trusted" if found.trusted else "is not trusted"
        say(f"{one_line(found.workspace)} {word}: {', '.join(map(one_line, found.files))}")
    return 1 if found.problem else 0
