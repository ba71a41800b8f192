"""`editors`: prints the lines that load the plugin that is installed with tiller."""

from argparse import Namespace
from pathlib import Path

import msgspec

import tiller_client
from tiller_client.console import print_json, say
from tiller_client.errors import TillerError

LINES = """\
-- for lazy.nvim, in the list of plugins:
{{ dir = {path} }},
-- without a plugin manager, in init.lua:
vim.opt.runtimepath:append({path})"""


class Plugin(msgspec.Struct, tag_field="type", tag="plugin"):
    """Result of `editors --json`."""

    editor: str
    path: str


def run(arguments: Namespace) -> int:
    """Print where the plugin is and how the editor loads it."""
    package = Path(tiller_client.__file__).parent
    # A checkout has the plugin beside the package.
    places = (package / "editors" / arguments.editor, package.parent / "editors" / arguments.editor)
    path = next((str(place) for place in places if place.is_dir()), "")
    if not path:
        raise TillerError(f"the plugin is not in {places[0]}; install tiller again")
    if arguments.json:
        print_json(Plugin(arguments.editor, path))
    else:
        # A JSON string of a path is also a string of Lua.
        say(LINES.format(path=msgspec.json.encode(path).decode()))
    return 0
