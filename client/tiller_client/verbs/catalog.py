"""`models`, `agents`, `tools` and `commands`: what there is to choose from.

Behind the tools come the MCP servers, and how each one is; they are started for that.
"""

from argparse import Namespace
from collections.abc import Iterable

from tiller_client.connection import Connection
from tiller_client.console import print_json, say, stdout_paint, stdout_width
from tiller_client.prompt import read_workspace
from tiller_client.runtime import my_places
from tiller_client.text import Paint, count, cut, one_line
from tiller_protocol.answers import (
    AgentSummary,
    CatalogResult,
    CommandSummary,
    ModelSummary,
    ServerSummary,
    ToolSummary,
)
from tiller_protocol.ops import Catalog

Thing = ModelSummary | AgentSummary | ToolSummary | CommandSummary | ServerSummary


def run(arguments: Namespace) -> int:
    """List one kind of thing, one a line."""
    workspace = read_workspace(arguments.directory)
    with Connection(my_places(), f"tiller {arguments.verb}") as connection:
        op = Catalog(workspace, start_servers=arguments.verb == "tools")
        catalog = connection.ask(op, CatalogResult)
    things: Iterable[Thing] = {
        "models": catalog.models,
        "agents": catalog.agents,
        "tools": (*catalog.tools, *catalog.servers),
        "commands": catalog.commands,
    }[arguments.verb]
    paint, width = stdout_paint(), stdout_width()
    for thing in things:
        if arguments.json:
            print_json(thing)
        else:
            say(_line(thing, paint, width))
    if not things and not arguments.json:
        say(f"no {arguments.verb} are configured; the file is: tiller config path")
    return 0


def _line(thing: Thing, paint: Paint, width: int) -> str:
    name = one_line(thing.name)
    match thing:
        case ModelSummary():
            window = f" · {count(thing.context_window)} tokens" if thing.context_window else ""
            default = " · default" if thing.default else ""
            problem = f"\n    {one_line(thing.problem)}" if thing.problem else ""
            line = f"{paint.bold(name)} {paint.dim(one_line(thing.api) + window + default)}"
            return line + paint.bad(problem)
        case AgentSummary():
            only = "read only" if thing.read_only else ""
            note = " · ".join(filter(None, (thing.problem, only, thing.description, thing.model)))
        case CommandSummary():
            name = f"/{name}"
            note = " · ".join(
                filter(None, (thing.problem, thing.description, thing.agent, thing.model))
            )
        case ToolSummary():
            server = f"MCP server {thing.server}" if thing.server else ""
            note = " · ".join(filter(None, (thing.effect, server, thing.description)))
        case ServerSummary():
            problem = f"\n    {one_line(thing.problem)}" if thing.problem else ""
            note = f"MCP server · {thing.state} · {thing.tools} tools"
            line = f"{paint.bold(name)} {paint.dim(note)}"
            return line + (paint.bad(problem) if thing.state == "failed" else paint.dim(problem))
    return f"{paint.bold(name)} {paint.dim(cut(one_line(note), max(10, width - len(name) - 2)))}"
