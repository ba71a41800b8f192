"""What is typed before the chat can read keys: it is kept and not echoed, and Enter stays Enter."""

import fcntl
import os
import struct
import termios
from collections.abc import Generator
from contextlib import contextmanager

_INPUT, _LOCAL, _CHARACTERS = 0, 3, 6
"""Where `tcgetattr` has these modes."""

_COUNT = struct.Struct("i")


@contextmanager
def kept(descriptor: int) -> Generator[bytes]:
    """Keep what is typed during the block; gives what was typed before it.

    Before the block the terminal turned Enter into newlines. Ctrl-C still interrupts.
    """
    before = termios.tcgetattr(descriptor)
    modes = termios.tcgetattr(descriptor)
    modes[_INPUT] &= ~termios.ICRNL
    modes[_LOCAL] &= ~(termios.ECHO | termios.ICANON)
    modes[_CHARACTERS][termios.VMIN] = 1
    modes[_CHARACTERS][termios.VTIME] = 0
    termios.tcsetattr(descriptor, termios.TCSANOW, modes)
    try:
        yield _waiting(descriptor).replace(b"\n", b"\r")
    finally:
        termios.tcsetattr(descriptor, termios.TCSANOW, before)


def _waiting(descriptor: int) -> bytes:
    """What can be read at once."""
    answer = fcntl.ioctl(descriptor, termios.FIONREAD, bytes(_COUNT.size))
    (count,) = _COUNT.unpack(answer)
    return os.read(descriptor, count) if count else b""
