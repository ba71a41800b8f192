"""Takes an image from the clipboard, and puts text into it."""

import base64
import shutil
import subprocess
import tempfile
from pathlib import Path

READERS = (
    ("wl-paste", "--type", "image/png"),
    ("xclip", "-selection", "clipboard", "-target", "image/png", "-out"),
    ("pngpaste", "-"),
)
"""Programs that write the image in the clipboard to stdout, on Wayland, X11 and macOS."""

PROGRAMS = tuple(command[0] for command in READERS)

READ_S_MAX = 5.0
"""How long such a program may take; xclip waits for the program that has the image."""

COPIED_BYTES_MAX = 74_994
"""Longest text for the clipboard: many terminals ignore escapes over 100,000 bytes."""


class Clipboard:
    """The images taken from the clipboard, which are files until the chat ends."""

    def __init__(self) -> None:
        self._directory: tempfile.TemporaryDirectory[str] | None = None
        self._number = 0

    def take_image(self) -> str | None:
        """Store the clipboard's image in a file and return its path; `None` if there is none."""
        data = next((data for data in map(_output, READERS) if data), b"")
        if not data:
            return None
        if self._directory is None:
            self._directory = tempfile.TemporaryDirectory(prefix="tiller-")
        self._number += 1
        path = Path(self._directory.name, f"clipboard-{self._number}.png")
        path.write_bytes(data)
        return str(path)

    def close(self) -> None:
        """Remove the files."""
        if self._directory is not None:
            self._directory.cleanup()


def copying(text: str) -> str:
    """The escape (OSC 52) that lets the terminal put a text into the clipboard."""
    data = text.encode(errors="replace")[:COPIED_BYTES_MAX]
    return f"\x1b]52;c;{base64.b64encode(data).decode()}\x07"


def _output(command: tuple[str, ...]) -> bytes:
    if shutil.which(command[0]) is None:
        return b""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=READ_S_MAX,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return b""
    return done.stdout if done.returncode == 0 else b""
