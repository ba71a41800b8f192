"""Keeps keys that are typed before the chat can read them: not echoed, and Enter stays Enter."""

import fcntl
import os
import struct
import termios
from collections.abc import Generator
from contextlib import contextmanager

_INPUT, _LOCAL, _CHARACTERS = 0, 3, 6
"""Positions of these modes in the result of `tcgetattr`."""

_COUNT = struct.Struct("i")


@contextmanager
def kept(descriptor: int) -> Generator[bytes]:
    """Keep the keys typed during the block, for a later reader; yield those typed before.

    Before the block, the terminal turned Enter into newlines. Ctrl-C still interrupts.
    """
    before = termios.tcgetattr(descriptor)
    modes = termios.tcgetattr(descriptor)
    modes[_INPUT] &= ~termios.ICRNL
    modes[_LOCAL] &= ~(termios.ECHO | termios.ICANON)
    modes[_CHARACTERS][termios.VMIN] = 1
    modes[_CHARACTERS][termios.VTIME] = 0
    termios.tcsetattr(descriptor, termios.TCSANOW, modes)
    try:
        yield waiting(descriptor).replace(b"\n", b"\r")
    finally:
        termios.tcsetattr(descriptor, termios.TCSANOW, before)


def waiting(descriptor: int) -> bytes:
    """The bytes that can be read without waiting."""
    answer = fcntl.ioctl(descriptor, termios.FIONREAD, bytes(_COUNT.size))
    (count,) = _COUNT.unpack(answer)
    return os.read(descriptor, count) if count else b""
