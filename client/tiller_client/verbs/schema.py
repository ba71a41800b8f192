"""`schema`: the protocol as JSON Schema, for those who write another frontend."""

import json
import sys
from argparse import Namespace

from tiller_protocol.schema import json_schema


def run(arguments: Namespace) -> int:
    """Print one document: in one line with `--json`, else indented."""
    indent = None if arguments.json else 2
    sys.stdout.write(json.dumps(json_schema(), indent=indent, ensure_ascii=False) + "\n")
    return 0
