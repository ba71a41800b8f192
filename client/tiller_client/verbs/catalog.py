"""`models`, `agents`, `tools` and `commands`: each verb lists what it is named after.

`tools` starts the MCP servers and lists them, with their state, after the tools.
"""

from argparse import Namespace
from collections.abc import Iterable

from tiller_client.command_line.prompt import read_workspace
from tiller_client.connecting.connection import connect
from tiller_client.console import complain, print_json, say, stdout_theme, stdout_width
from tiller_client.program_name import program
from tiller_client.rendering.style import Theme
from tiller_client.rendering.text import cells, count, counted, cut, dollars, one_line
from tiller_protocol.answers import CatalogResult
from tiller_protocol.catalog import (
    AgentSummary,
    CommandSummary,
    ModelSummary,
    Price,
    RateLimit,
    ServerSummary,
    ToolSummary,
)
from tiller_protocol.ops import Catalog

CatalogEntry = AgentSummary | ToolSummary | CommandSummary | ServerSummary

NAME_CELLS_MAX = 24
"""Maximum width of the column of names; a longer name shifts only its own line."""

EFFECT_CELLS = len("command")

LISTED_SHOWN_MAX = 20
"""If a provider lists more models, only the number is shown; some providers list hundreds."""


def run(arguments: Namespace) -> int:
    """List entries of one kind, one per line."""
    workspace = read_workspace(arguments.directory)
    with connect(f"tiller {arguments.verb}") as connection:
        asks = arguments.verb == "models"
        op = Catalog(workspace, start_servers=arguments.verb in ("tools", "commands"), ask=asks)
        catalog = connection.ask(op, CatalogResult)
    if catalog.problem:
        complain(one_line(catalog.problem))
    if asks:
        return _models(catalog.models, arguments)
    things: Iterable[CatalogEntry] = {
        "agents": catalog.agents,
        "tools": (*catalog.tools, *catalog.servers),
        "commands": catalog.commands,
    }[arguments.verb]
    theme, width = stdout_theme(), stdout_width()
    names = min(max((cells(_name(thing)) for thing in things), default=0), NAME_CELLS_MAX)
    for thing in things:
        if arguments.json:
            print_json(thing)
        else:
            say(_line(thing, theme, width, names))
    if not things and not arguments.json:
        say(f"no {arguments.verb} are configured; to see where to add some: tiller config path")
    return 0


def _models(models: tuple[ModelSummary, ...], arguments: Namespace) -> int:
    """Print the configured models, and others that providers list, unless there are too many."""
    if arguments.json:
        for model in models:
            print_json(model)
        return 0
    theme, width = stdout_theme(), stdout_width()
    listed: dict[str, list[ModelSummary]] = {}
    for model in models:
        if model.listed:
            listed.setdefault(model.name.partition("/")[0], []).append(model)
        else:
            say(_model_line(model, theme, width))
    for provider, more in listed.items():
        if len(more) <= LISTED_SHOWN_MAX or arguments.all:
            for model in more:
                say(_model_line(model, theme, width))
        else:
            say(theme.dim(f"{one_line(provider)}/… {len(more)} more: {program()} models --all"))
    if not models:
        say(f"no model is configured, and none was found; to set one up: {program()} init")
    return 0


def _model_line(model: ModelSummary, theme: Theme, width: int) -> str:
    notes = [one_line(model.api)]
    if model.default:
        notes.append("default")
    if model.context_window:
        notes.append(f"{count(model.context_window)} tokens")
    if model.price:
        notes.append(_price(model.price))
    if model.variants and not model.listed:
        notes.append(f"variants {', '.join(map(one_line, model.variants))}")
    name = one_line(model.name)
    line = (
        f"{theme.bold(name)} {theme.dim(cut(' · '.join(notes), max(20, width - cells(name) - 2)))}"
    )
    if model.rate_limits:
        left = cut(", ".join(map(_left, model.rate_limits)), max(20, width - 10))
        line += theme.dim(f"\n    left: {left}")
    return line + theme.bad(f"\n    {one_line(model.problem)}" if model.problem else "")


def _left(limit: RateLimit) -> str:
    """Return how much of a rate limit is left."""
    of = "" if limit.limit is None else f" of {count(limit.limit)}"
    return f"{count(limit.remaining)}{of} {one_line(limit.name)}"


def _price(price: Price) -> str:
    """Return the prices per million tokens."""
    cached = "" if price.cached_input is None else f" (cached {dollars(price.cached_input)})"
    return f"{dollars(price.input)}{cached} in, {dollars(price.output)} out"


def server_line(server: ServerSummary, theme: Theme) -> str:
    """Return the line for an MCP server, and below it any problem."""
    problem = f"\n    {one_line(server.problem)}" if server.problem else ""
    note = f"MCP server · {server.state} · {counted(server.tools, 'tool')}"
    bad = server.state in ("failed", "needs_login")
    line = f"{theme.bold(one_line(server.name))} {theme.dim(note)}"
    return line + (theme.bad(problem) if bad else theme.dim(problem))


def _name(thing: CatalogEntry) -> str:
    return f"{'/' if isinstance(thing, CommandSummary) else ''}{one_line(thing.name)}"


def _line(thing: CatalogEntry, theme: Theme, width: int, names: int) -> str:
    """Return the line for one entry; `names` is the width of the column of names."""
    match thing:
        case AgentSummary():
            only = "read only" if thing.read_only else ""
            steps = f"at most {thing.max_steps} steps" if thing.max_steps else ""
            model = " ".join(filter(None, (thing.model, thing.variant)))
            parts = (thing.problem, only, thing.description, model, steps)
            note = one_line(" · ".join(filter(None, parts)))
        case CommandSummary():
            done_by = "sub-agent" if thing.subtask else ""
            parts = (thing.problem, thing.description, done_by, thing.agent, thing.model)
            note = one_line(" · ".join(filter(None, parts)))
        case ToolSummary():
            server = f"MCP server {thing.server}" if thing.server else ""
            about = " · ".join(filter(None, (server, thing.description)))
            note = f"{thing.effect:<{EFFECT_CELLS}} {one_line(about)}"
        case ServerSummary():
            return server_line(thing, theme)
    name = _name(thing)
    name += " " * (names - cells(name))
    return f"{theme.bold(name)} {theme.dim(cut(note, max(10, width - cells(name) - 2)))}"
