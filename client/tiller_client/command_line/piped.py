"""Reads the context of a prompt from stdin; imported only if something is piped in."""

import os
import select

from tiller_client.connecting.runtime import STDIN
from tiller_client.errors import UsageError

CONTEXT_BYTES_MAX = 1024 * 1024
"""Longest context from stdin: about 300,000 tokens, more than most models take."""

SAID_AFTER_S = 1.0
"""After so much silence the user is told that this waits for stdin."""


def read_context() -> str:
    """Read stdin to its end as context of a prompt; raises `UsageError` unless it is short text."""
    data = _read_to_end()
    if len(data) > CONTEXT_BYTES_MAX:
        raise UsageError(
            f"stdin has more than {CONTEXT_BYTES_MAX // 1024 // 1024} MiB, which is too much for "
            "context; save it to a file and give --file PATH, or send only a part: tail -c 1M"
        )
    problem = "it contains a NUL byte" if b"\0" in data else ""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        problem = f"byte {error.start + 1} is not UTF-8"
        text = ""
    if problem:
        raise UsageError(
            f"stdin is not text, so it can't be context: {problem}; attach an image with --image, "
            "mention any other file with --file PATH, or give no stdin: < /dev/null"
        )
    return text


def _read_to_end() -> bytes:
    """Read stdin to its end, or until it exceeds `CONTEXT_BYTES_MAX`."""
    data = bytearray()
    said = False
    while len(data) <= CONTEXT_BYTES_MAX:
        # A pipe that nobody writes to, as programs leave it open, must not look like a hang.
        if not said and not select.select([STDIN], [], [], SAID_AFTER_S)[0]:
            said = True
            from tiller_client.console import complain  # the daemon comes first

            complain(
                "waiting for the end of stdin, which is context for the prompt; "
                "to give no context: < /dev/null"
            )
        piece = os.read(STDIN, 65536)
        if not piece:
            break
        data += piece
    return bytes(data)
