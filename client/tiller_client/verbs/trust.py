"""`trust` and `untrust`: decide whether a project's `.tiller` takes effect."""

import os
from argparse import Namespace
from pathlib import Path

from tiller_client.command_line.prompt import read_workspace
from tiller_client.connecting.connection import connect
from tiller_client.console import confirm, print_json, say, stdout_width
from tiller_client.errors import TillerError
from tiller_client.rendering.requests import block
from tiller_client.rendering.text import one_line, quoted_path, verbatim
from tiller_protocol.answers import ProjectResult
from tiller_protocol.ops import Project
from tiller_protocol.project_digest import digest_of


def run(arguments: Namespace) -> int:
    """Show what a project defines and ask whether to trust it, or stop trusting it."""
    workspace = read_workspace(arguments.directory)
    with connect(f"tiller {arguments.verb}") as connection:
        if arguments.verb == "untrust":
            project = connection.ask(Project(workspace, trust=False), ProjectResult)
            return _print_project(project, json=arguments.json)
        project = connection.ask(Project(workspace), ProjectResult)
        if project.trusted or not project.files or (arguments.json and not arguments.yes):
            return _print_project(project, json=arguments.json)
        if not arguments.yes and not is_agreed(project):
            say("not trusted")
            return 1
        op = Project(workspace, trust=True, digest=project.digest)
        return _print_project(connection.ask(op, ProjectResult), json=arguments.json)


def is_agreed(project: ProjectResult) -> bool:
    """Show the whole files, then the hooks' commands, and ask the user.

    All that the project wrote has a margin, so it can't pose as tiller's own words. Files that
    change after the daemon has read them are not shown for others: raises `TillerError`.
    """
    contents: dict[str, bytes] = {}
    for name in project.files:
        target, text = _read(Path(project.workspace, name))
        contents[name] = os.fsencode(target) + b"\0" * bool(target) + (text or b"")
        say(f"--- {quoted_path(name)}" + (f", a link to {quoted_path(target)}" if target else ""))
        if text is None:
            say("(a dangling link)\n")
        else:
            shown = text.decode(errors="surrogateescape").removesuffix("\n")
            say(f"{block(verbatim(shown), stdout_width())}\n")
    if digest_of(contents) != project.digest:
        raise TillerError("these files changed while they were read; nothing is trusted: try again")
    if project.hooks:
        say("These hooks would run automatically, in the same sandbox as the model's commands:\n")
    for hook in project.hooks:
        tools = f" {one_line(hook.tool)}" if hook.on.startswith("tool_") else ""
        say(f"{one_line(hook.on)}{tools}:\n{block(verbatim(hook.command), stdout_width())}\n")
    many = len(project.files)
    return confirm(
        f"Trust these {many} files as they are?" if many > 1 else "Trust this file as it is?"
    )


def _read(path: Path) -> tuple[str, bytes | None]:
    """Return a link's target, empty for a file; and the content, None of a link to nothing."""
    try:
        target = os.readlink(path)  # noqa: PTH115 - of any encoding
    except OSError:
        target = ""
    return target, path.read_bytes() if path.is_file() else None


def _print_project(project: ProjectResult, *, json: bool) -> int:
    if json:
        print_json(project)
    elif project.problem:
        say(f"{one_line(project.workspace)} can't be trusted: {one_line(project.problem)}")
    elif not project.files:
        say(f"{one_line(project.workspace)} defines nothing that needs trust")
    else:
        word = "is trusted" if project.trusted else "is not trusted"
        say(f"{one_line(project.workspace)} {word}: {', '.join(map(quoted_path, project.files))}")
    return 1 if project.problem else 0
