"""`schema`: the protocol as JSON Schema or TypeScript, for those who write another frontend."""

import json
from argparse import Namespace

from tiller_client.console import say
from tiller_protocol.schema import json_schema


def run(arguments: Namespace) -> int:
    """Print one document; JSON in one line with `--json`, else indented."""
    if arguments.typescript:
        from tiller_protocol.typescript import typescript

        say(typescript(), end="")
        return 0
    indent = None if arguments.json else 2
    say(json.dumps(json_schema(), indent=indent))
    return 0
