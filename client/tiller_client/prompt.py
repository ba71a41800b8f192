"""Text and files that the user hands over on the command line, checked before anything is sent."""

import json
import os
import sys
from pathlib import Path
from typing import Any, cast

from tiller_client.errors import UsageError
from tiller_protocol.codec import INPUT_BYTES_MAX

FROM_STDIN = "-"


def read_text(argument: str) -> str:
    """The text that `argument` is, or that stdin has when it is `-`.

    Raises `UsageError` when it is empty, longer than `INPUT_BYTES_MAX` or not UTF-8.
    """
    if argument == FROM_STDIN:
        data = sys.stdin.buffer.read(INPUT_BYTES_MAX + 1)
    else:
        data = os.fsencode(argument)
    if len(data) > INPUT_BYTES_MAX:
        raise UsageError(
            f"the text is longer than {INPUT_BYTES_MAX // 1024 // 1024} MiB; put it into a file "
            "of the workspace and say its name"
        )
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise UsageError(f"the text is not UTF-8: byte {error.start + 1} does not fit") from None
    if not text.strip():
        raise UsageError("the text is empty; say what to do")
    return text


def read_workspace(argument: str) -> str:
    """The absolute path of an existing directory; raises `UsageError`."""
    path = Path(argument)
    if not path.is_dir():
        raise UsageError(f"{argument} is no directory; name the workspace with -C DIR")
    try:
        return str(path.resolve())
    except FileNotFoundError:
        raise UsageError(
            "the current directory is gone; go to another one, or name the workspace with -C DIR"
        ) from None


def read_schema(argument: str) -> dict[str, Any]:
    """The JSON Schema in a file; raises `UsageError` unless it is a JSON object."""
    try:
        schema: object = json.loads(Path(argument).read_bytes())
    except OSError as error:
        raise UsageError(f"{argument} can't be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{argument} is no JSON: {error}") from None
    if not isinstance(schema, dict):
        raise UsageError(f"{argument} is no JSON Schema: it has to be a JSON object")
    return cast("dict[str, Any]", schema)
