"""Reads the text of a PDF file in a separate process, which runs this file.

The process prints JSON: `{"pages": ["text of page 1", …], "total": 12}`,
or `{"problem": "It is …"}`.
"""

import json
import logging
import resource
import sys
from contextlib import suppress
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pypdf import PdfReader

MEMORY_BYTES_MAX: Final = 1024**3
TEXT_CHARS_MAX: Final = 2_000_000
"""The most characters that are read: a book of 1,000 pages. Hostile files repeat the same text many
times."""

PAGES_READ_MAX: Final = 2_000


def _read(data: bytes) -> dict[str, Any]:
    from pypdf import PdfReader
    from pypdf.errors import PyPdfError

    try:
        reader = PdfReader(BytesIO(data))
        # Many files have an empty password, and only ask not to be printed.
        if reader.is_encrypted and not reader.decrypt(""):
            return {"problem": "It needs a password."}
        return _pages(reader)
    except PyPdfError as error:
        return {"problem": f"It is broken: {' '.join(str(error).split()) or 'unreadable'}."}


def _pages(reader: "PdfReader") -> dict[str, Any]:
    total = len(reader.pages)
    if not total:
        return {"problem": "It has no pages."}
    pages: list[str] = []
    left = TEXT_CHARS_MAX
    for page in reader.pages[:PAGES_READ_MAX]:
        text = "\n".join(line.rstrip() for line in page.extract_text().splitlines()).strip()
        pages.append(text[:left])
        left -= len(text)
        if left <= 0:
            break
    return {"pages": pages, "total": total}


def _main() -> None:
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
    # pypdf warns about each oddity of a file.
    logging.disable()
    found = _read(sys.stdin.buffer.read())
    sys.stdout.buffer.write(json.dumps(found).encode())


if __name__ == "__main__":
    _main()
