"""HTML as Markdown, in a process of its own.

The library holds Python's lock while it works, 2 s for the largest page, and nobody knows what a
page of the web does to it: here it may take time and memory, and even crash. The process runs this
file by its path, so it imports nothing of the daemon.
"""

import re
import resource
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

import trio

CONVERT_S: Final = 15.0
MEMORY_BYTES_MAX: Final = 1024**3
MARKDOWN_BYTES_MAX: Final = 5 * 1024 * 1024
"""As much as is read of a page: hostile ones get longer, by many links below a long address."""

_DATA: Final = re.compile(r"!\[([^\]]*)\]\(<?data:[^)]*\)")


async def to_markdown(html: str, base_url: str, variables: Mapping[str, str]) -> str | None:
    """Return a page as Markdown with whole links; None when that could not be done.

    `variables` are the environment of the process.
    """
    with trio.move_on_after(CONVERT_S):
        done = await trio.run_process(
            [sys.executable, "-I", __file__],
            # Not in the arguments, which every user of the machine may see.
            stdin=f"{base_url}\n{html}".encode(errors="replace"),
            capture_stdout=True,
            stderr=subprocess.DEVNULL,
            check=False,
            deliver_cancel=_kill,
            env=dict(variables),
        )
        return done.stdout.decode(errors="replace") if done.returncode == 0 else None
    return None


async def _kill(process: trio.Process) -> None:
    process.kill()
    await trio.lowlevel.checkpoint()


def _convert() -> None:
    """What the process does: an address, a line end and HTML in, Markdown out."""
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
    import html_to_markdown

    base_url, _, html = sys.stdin.buffer.read().decode(errors="replace").partition("\n")
    options = html_to_markdown.ConversionOptions(base_url=base_url, extract_metadata=False)
    text = html_to_markdown.convert(html, options).content or ""
    # Pictures within a page are long, and nothing to read.
    shown = _DATA.sub(r"\1", text).strip().encode(errors="replace")
    sys.stdout.buffer.write(shown[:MARKDOWN_BYTES_MAX])


if __name__ == "__main__":
    _convert()
