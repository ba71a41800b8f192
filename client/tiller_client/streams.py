"""Opens the standard streams, finds out what they can show, and handles failures to write them.

As in coreutils, the reader of stdout may leave at any time. Any other failure to write stdout makes
the exit status 1. Failures to write stderr are ignored. This module imports only the standard
library, as every start needs it.
"""

import os
import sys
from typing import TextIO

from tiller_client.errors import UnwritableOutput

STAND_INS = {"…": "...", "→": "->", "↗": "->", "◷": "@"} | dict(
    zip(
        "·»\u203a▸↳↑↓✓✗●○■▪•◦☐◐☑↻⟲≡±∴⚙─│┼━┄⋯∥“”␊␠␛␡⟨⟩\ufffd",
        '|>>>>^v+x*o#-*-o*x~<=+~&-|+=.~|""$_^^<>?',
        strict=True,
    )
)
"""Replacements for our signs on outputs that can't show them, mostly of the same width."""


class Repertoire(dict[int, str]):
    """The text for each character, for `str.translate`; computed on first use.

    A character that the encoding lacks becomes its code point. Our signs become stand-ins then, and
    always on a dumb terminal.
    """

    def __init__(self, encoding: str, *, dumb: bool) -> None:
        super().__init__()
        self._encoding = encoding
        self._dumb = dumb

    def __missing__(self, code: int) -> str:
        character = chr(code)
        if self._has(character) and not (self._dumb and character in STAND_INS):
            shown = character
        else:
            shown = STAND_INS.get(character, f"<U+{code:04X}>")
        self[code] = shown
        return shown

    def _has(self, character: str) -> bool:
        try:
            return bool(character.encode(self._encoding))
        except UnicodeEncodeError:
            return False


class Output:
    """The abilities of this process's outputs; set by `open_streams`."""

    encoding = "utf-8"
    """The encoding of the locale, or the one in PYTHONIOENCODING."""
    repertoire: Repertoire | None = None
    """The replacements of characters; `None` if every character is shown as it is."""


def open_streams() -> None:
    """Open closed streams, and find out what the outputs can show.

    A closed stream is replaced by the null device, because a socket could get its number. Reading
    the device ends at once, and writing fails, as on a closed stream.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_RDONLY)
            assert opened == number
            setattr(sys, name, os.fdopen(number, "w" if number else "r"))
    Output.encoding = sys.stdout.encoding.lower()
    Output.repertoire = None
    dumb = os.environ.get("TERM") == "dumb"
    if dumb or not _is_utf_8():
        Output.repertoire = Repertoire(Output.encoding, dumb=dumb)
    for stream in (sys.stdout, sys.stderr):
        # Characters that can't be encoded, such as lone surrogates, are replaced.
        stream.reconfigure(  # type: ignore[attr-defined]
            encoding=Output.encoding, errors="replace"
        )


def showable(text: str) -> str:
    """Replace the characters that the outputs can't show."""
    return (
        text if Output.repertoire is None or text.isascii() else text.translate(Output.repertoire)
    )


def shows(character: str) -> bool:
    """Whether the outputs show this character as it is."""
    return showable(character) == character


def encoded(text: str) -> bytes:
    """Encode text for a terminal or a pager."""
    return showable(text).encode(Output.encoding, "replace")


def show_all() -> None:
    """Show every character as it is, in UTF-8: this verb writes for a program."""
    Output.encoding, Output.repertoire = "utf-8", None


def put(stream: TextIO, text: str, *, exact: bool = False) -> None:
    """Write text to stdout or stderr; it may wait in a buffer, until `flush`.

    `exact` text is written without stand-ins if the encoding has all characters. Raises
    `BrokenPipeError` if stdout's reader is gone, and `UnwritableOutput` if stdout can't be written;
    later output to stdout is dropped.
    """
    try:
        stream.write(text if exact and _is_utf_8() else showable(text))
    except OSError as error:
        _give_up(stream, error)


def flush(stream: TextIO) -> None:
    """Write the contents of the buffer; raises the same errors as `put`."""
    try:
        stream.flush()
    except OSError as error:
        _give_up(stream, error)


def put_bytes(descriptor: int, data: bytes) -> None:
    """Write all of `data`, even if the pipe is non-blocking.

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


def _is_utf_8() -> bool:
    return Output.encoding in ("utf-8", "utf8")


def _give_up(stream: TextIO, error: OSError) -> None:
    """Drop all later output, and the buffer, which Python would otherwise write when it exits."""
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
