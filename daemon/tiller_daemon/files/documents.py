"""PDF documents: recognised by content, checked, and read as text for models that take no files.

A provider that refuses a document refuses every later request of the session too. So no document
gets into the history unchecked.
"""

from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import Struct

from tiller_daemon.converter import CONVERT_S, convert
from tiller_daemon.files import pdf_text
from tiller_protocol.items import PDF, Image

SIGNATURE: Final = b"%PDF-"

PAGES_MAX: Final = 100
"""The most pages of a document that a model gets as a file. This is Anthropic's limit for models
with a context window of 200,000 tokens
(https://platform.claude.com/docs/en/build-with-claude/pdf-support)."""

TEXT_CHARS_MAX: Final = 400_000
"""The most characters of a document that a model gets as text: about 100,000 tokens."""


class DocumentProblem(Exception):
    """The bytes are not a usable PDF; the message says why, in sentences about "it"."""


class Pages(Struct, frozen=True):
    """The texts of a PDF's pages."""

    texts: tuple[str, ...]
    """The text of each page that was read; a scanned page has an empty text."""
    total: int
    """How many pages the PDF has."""

    @property
    def has_text(self) -> bool:
        """Whether any page has text; scans have none."""
        return any(self.texts)


class _Found(Struct, frozen=True):
    """The output of the process that reads a PDF."""

    pages: tuple[str, ...] = ()
    total: int = 0
    problem: str = ""


def is_pdf(beginning: bytes) -> bool:
    """Whether a file that starts with these bytes is a PDF."""
    return beginning.startswith(SIGNATURE)


async def read_pages(data: bytes, variables: Mapping[str, str]) -> Pages:
    """Read the text of a PDF, in up to `CONVERT_S` seconds; raises `DocumentProblem`.

    `variables` are the environment of the process that reads it.
    """
    printed = await convert(pdf_text.__file__, data, variables)
    if printed is None:
        raise DocumentProblem(f"It is broken, or takes more than {CONVERT_S:.0f} s to read.")
    found = msgspec.json.decode(printed, type=_Found)
    if found.problem:
        raise DocumentProblem(found.problem)
    return Pages(found.pages, found.total)


def with_marks(pages: Pages) -> str:
    """Return the text of all pages, each below a line with its number."""
    marked = [f"[Page {number}]\n{text}\n" for number, text in enumerate(pages.texts, start=1)]
    if len(pages.texts) < pages.total:
        marked.append(f"[Only {len(pages.texts)} of {pages.total} pages were read.]\n")
    return "\n".join(marked)


async def fit_document(data: bytes, variables: Mapping[str, str]) -> Image:
    """Check a PDF that the user attached, and read its text; raises `DocumentProblem`."""
    pages = await read_pages(data, variables)
    if pages.total > PAGES_MAX:
        raise DocumentProblem(
            f"It has {pages.total} pages; models take at most {PAGES_MAX}. Give its path with "
            "--file PATH instead, so that the model can read just the pages it needs."
        )
    text = with_marks(pages) if pages.has_text else ""
    if len(text) > TEXT_CHARS_MAX:
        text = f"{text[:TEXT_CHARS_MAX]}\n[The rest of the text is cut.]\n"
    return Image(PDF, data, text, pages.total)
