"""`schema`: the protocol as JSON Schema, for those who write another frontend."""

import json
from argparse import Namespace

from tiller_client.console import say
from tiller_protocol.schema import json_schema


def run(arguments: Namespace) -> int:
    """Print one document: in one line with `--json`, else indented."""
    indent = None if arguments.json else 2
    say(json.dumps(json_schema(), indent=indent))
    return 0
