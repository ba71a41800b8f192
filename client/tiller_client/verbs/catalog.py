"""`models`, `agents`, `tools` and `commands`: what there is to choose from."""

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
    ToolSummary,
)
from tiller_protocol.ops import Catalog

Thing = ModelSummary | AgentSummary | ToolSummary | CommandSummary


def run(arguments: Namespace) -> int:
    """List one kind of thing, one a line."""
    workspace = read_workspace(arguments.directory)
    with Connection(my_places(), f"tiller {arguments.verb}") as connection:
        catalog = connection.ask(Catalog(workspace), CatalogResult)
    things: Iterable[Thing] = {
        "models": catalog.models,
        "agents": catalog.agents,
        "tools": catalog.tools,
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
            note = f"{thing.effect} · {thing.description}"
    return f"{paint.bold(name)} {paint.dim(cut(one_line(note), max(10, width - len(name) - 2)))}"
