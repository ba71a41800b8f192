"""The standard streams: how they are opened, and what happens if one can't be written.

As in coreutils: whoever reads stdout may leave at any time, any other failure to write it makes
the exit status 1, and what stderr can't take is lost without a word. The standard library only, as
every start needs this module.
"""

import os
import sys
from typing import TextIO

from tiller_client.errors import UnwritableOutput


def open_streams() -> None:
    """Let both outputs be UTF-8 in every locale, as JSON requires it, and open what is closed.

    A socket would take the number of a closed stream. Such a stream is the null device, opened so
    that what is read ends at once and what is written fails, as it would without it.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_RDONLY)
            assert opened == number
            setattr(sys, name, os.fdopen(number, "w" if number else "r"))
    for stream in (sys.stdout, sys.stderr):
        # What can't be encoded, such as half a character, is replaced.
        stream.reconfigure(encoding="utf-8", errors="replace")  # type: ignore[attr-defined]


def put(stream: TextIO, text: str) -> None:
    """Write text to stdout or stderr; it may wait in a buffer, until `flush`.

    Raises `BrokenPipeError` if stdout's reader has gone, and `UnwritableOutput` if it can't be
    written; after that, what is written to it is dropped.
    """
    try:
        stream.write(text)
    except OSError as error:
        _give_up(stream, error)


def flush(stream: TextIO) -> None:
    """Write what waits in the buffer; raises as `put`."""
    try:
        stream.flush()
    except OSError as error:
        _give_up(stream, error)


def put_bytes(descriptor: int, data: bytes) -> None:
    """Write all of `data`, also where whoever made the pipe has set it not to wait.

    Raises `BrokenPipeError` if nobody reads it, or `UnwritableOutput`.
    """
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(descriptor, rest) :]
        except BlockingIOError:
            import select  # rarely needed

            select.select([], [descriptor], [])
        except BrokenPipeError:
            raise
        except OSError as error:
            raise _unwritable(error) from None


def _give_up(stream: TextIO, error: OSError) -> None:
    """Drop what waits in the buffer, which Python would write at its end, and all that follows."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)
    if stream is sys.stderr:
        return
    if isinstance(error, BrokenPipeError):
        raise error
    raise _unwritable(error) from None


def _unwritable(error: OSError) -> UnwritableOutput:
    return UnwritableOutput(f"write error: {error.strerror}")
