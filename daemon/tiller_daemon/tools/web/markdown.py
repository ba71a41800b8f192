"""Converts HTML to Markdown in a separate process, which runs this file."""

import re
import resource
import sys
from contextlib import suppress
from typing import Final

MEMORY_BYTES_MAX: Final = 1024**3
MARKDOWN_BYTES_MAX: Final = 5 * 1024 * 1024
"""As much as is read of a page. Many links relative to a long URL make hostile pages longer."""

_DATA: Final = re.compile(r"!\[([^\]]*)\]\(<?data:[^)]*\)")


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
