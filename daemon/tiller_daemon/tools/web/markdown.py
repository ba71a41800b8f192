"""Converts HTML to Markdown in a separate process.

The library blocks the interpreter while it works, for 2 s with the largest page, and a hostile page
may make it take more time and memory, or crash. The process runs this file by its path, so it
imports nothing of the daemon.
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
"""As much as is read of a page. Hostile pages get longer by many links relative to a long URL."""

_DATA: Final = re.compile(r"!\[([^\]]*)\]\(<?data:[^)]*\)")


async def to_markdown(html: str, base_url: str, variables: Mapping[str, str]) -> str | None:
    """Return a page as Markdown with absolute links; None if the conversion failed.

    `variables` are the environment of the process.
    """
    with trio.move_on_after(CONVERT_S):
        done = await trio.run_process(
            [sys.executable, "-I", __file__],
            # Not in the arguments, which all users of the machine can see.
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
    """Run as the process: read an address, a line feed and HTML, and write Markdown."""
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
    import html_to_markdown

    base_url, _, html = sys.stdin.buffer.read().decode(errors="replace").partition("\n")
    options = html_to_markdown.ConversionOptions(base_url=base_url, extract_metadata=False)
    text = html_to_markdown.convert(html, options).content or ""
    # Inline images are long and not readable.
    shown = _DATA.sub(r"\1", text).strip().encode(errors="replace")
    sys.stdout.buffer.write(shown[:MARKDOWN_BYTES_MAX])


if __name__ == "__main__":
    _convert()
