"""`trust` and `untrust`: decide whether a project's `.tiller` takes effect."""

from argparse import Namespace
from pathlib import Path

from tiller_client.command_line.prompt import read_workspace
from tiller_client.connecting.connection import connect
from tiller_client.console import confirm, print_json, say, stdout_width
from tiller_client.rendering.requests import block
from tiller_client.rendering.text import one_line, quoted_path, verbatim
from tiller_protocol.answers import ProjectResult
from tiller_protocol.ops import Project


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
        if not arguments.yes and not _is_agreed(project):
            say("not trusted")
            return 1
        op = Project(workspace, trust=True, digest=project.digest)
        return _print_project(connection.ask(op, ProjectResult), json=arguments.json)


def _is_agreed(project: ProjectResult) -> bool:
    """Show the whole files, then the hooks' commands, and ask the user.

    All that the project wrote has a margin, so it can't pose as tiller's own words.
    """
    for name in project.files:
        path = Path(project.workspace, name)
        say(f"--- {quoted_path(name)}")
        if path.is_file():
            text = path.read_bytes().decode(errors="surrogateescape").removesuffix("\n")
            say(f"{block(verbatim(text), stdout_width())}\n")
        else:
            say("(a dangling link)\n")
    if project.hooks:
        say("These hooks would run automatically, in the same sandbox as the model's commands:\n")
    for hook in project.hooks:
        tools = f" {one_line(hook.tool)}" if hook.on.startswith("tool_") else ""
        say(f"{one_line(hook.on)}{tools}:\n{block(verbatim(hook.command), stdout_width())}\n")
    many = len(project.files)
    return confirm(
        f"Trust these {many} files as they are?" if many > 1 else "Trust this file as it is?"
    )


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
