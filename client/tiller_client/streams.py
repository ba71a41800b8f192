"""The standard streams: opening them, what they can show, and what happens if one can't be written.

As in coreutils: whoever reads stdout may leave at any time, any other failure to write it makes
the exit status 1, and what stderr can't take is lost without a word. The standard library only, as
every start needs this module.
"""

import os
import sys
from typing import TextIO

from tiller_client.errors import UnwritableOutput

STAND_INS = {"…": "...", "→": "->", "↗": "->", "◷": "@"} | dict(
    zip(
        "·»\u203a▸↳↑↓✓✗●○■▪•◦☐◐☑↻⟲≡±∴⚙─│┼━┄⋯▄∥“”␊␠␛␡⟨⟩\ufffd",
        '|>>>>^v+x*o#-*-o*x~<=+~&-|+=.~#|""$_^^<>?',
        strict=True,
    )
)
"""What is written for our signs where they can't be shown; mostly as wide as the sign."""


class Repertoire(dict[int, str]):
    """How each character is written, for `str.translate`; computed on first use.

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
    """What the outputs of this process can show; set by `open_streams`."""

    encoding = "utf-8"
    """The encoding of the locale, or the one in PYTHONIOENCODING."""
    repertoire: Repertoire | None = None
    """`None`: every character is shown as it is."""


def open_streams() -> None:
    """Open closed streams, and find out what the outputs can show.

    A socket would take the number of a closed stream, so the null device takes it. Reading it ends
    at once, and writing fails, as on a closed stream.
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
        # What can't be encoded, such as half a character, is replaced.
        stream.reconfigure(  # type: ignore[attr-defined]
            encoding=Output.encoding, errors="replace"
        )


def showable(text: str) -> str:
    """Text as the outputs can show it, with stand-ins for signs that they lack."""
    return (
        text if Output.repertoire is None or text.isascii() else text.translate(Output.repertoire)
    )


def shows(character: str) -> bool:
    """Whether the outputs show this character as it is."""
    return showable(character) == character


def encoded(text: str) -> bytes:
    """Text as bytes for a terminal or a pager."""
    return showable(text).encode(Output.encoding, "replace")


def show_all() -> None:
    """Show every character as it is: what this verb writes goes to a program, as UTF-8."""
    Output.encoding, Output.repertoire = "utf-8", None


def put(stream: TextIO, text: str, *, exact: bool = False) -> None:
    """Write text to stdout or stderr; it may wait in a buffer, until `flush`.

    It has no stand-ins if it is `exact` and the encoding has all characters. Raises
    `BrokenPipeError` if stdout's reader has gone, and `UnwritableOutput` if stdout can't be
    written; later output to it is dropped.
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
    """Drop the buffer, which Python would write when it exits, and all later output."""
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
