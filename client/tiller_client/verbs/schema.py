"""`schema`: prints the protocol as JSON Schema or TypeScript, for authors of other frontends."""

import json
from argparse import Namespace

from tiller_client.console import say
from tiller_protocol.schema import json_schema


def run(arguments: Namespace) -> int:
    """Print the schema. JSON is indented, or with `--json` on one line."""
    if arguments.typescript:
        from tiller_protocol.schema import typescript

        say(typescript(), end="")
        return 0
    indent = None if arguments.json else 2
    say(json.dumps(json_schema(), indent=indent))
    return 0
