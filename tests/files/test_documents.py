"""PDF documents: what is read of them, and what is refused."""

import random
from contextlib import suppress

import pytest
import trio

from support.each import each
from support.pdfs import locked, pdf
from tiller_daemon.converter import convert
from tiller_daemon.files import pdf_text
from tiller_daemon.files.documents import (
    PAGES_MAX,
    DocumentProblem,
    fit_document,
    is_pdf,
    read_pages,
    with_marks,
)


async def test_each_page_comes_under_its_number() -> None:
    data = pdf("First line\nsecond line", "", "The end")
    assert is_pdf(data[:12])
    pages = await read_pages(data, {})
    assert pages.texts == ("First line\nsecond line", "", "The end")
    assert with_marks(pages) == (
        "[Page 1]\nFirst line\nsecond line\n\n[Page 2]\n\n\n[Page 3]\nThe end\n"
    )


async def test_a_document_is_kept_as_it_is_with_its_text_and_pages() -> None:
    data = pdf("a", "b")
    fitted = await fit_document(data, {})
    assert (fitted.media_type, fitted.data, fitted.pages) == ("application/pdf", data, 2)
    assert fitted.text == "[Page 1]\na\n\n[Page 2]\nb\n"


async def test_a_scan_has_no_text_and_an_empty_password_opens_a_file() -> None:
    assert (await fit_document(pdf("", ""), {})).text == ""
    assert (await read_pages(locked(pdf("open"), ""), {})).texts == ("open",)


@each(
    ("data", "problem"),
    [
        (b"%PDF-1.7\nnothing more", "It is broken"),
        (b"%PDF-", "It is broken"),
        (locked(pdf("secret"), "word"), "It needs a password."),
        (pdf(), "It has no pages."),
        (pdf(*("x",) * (PAGES_MAX + 1)), f"It has {PAGES_MAX + 1} pages; models take at most"),
    ],
)
async def test_what_can_not_be_used_is_said(data: bytes, problem: str) -> None:
    with pytest.raises(DocumentProblem, match="^" + problem):
        await fit_document(data, {})


@each("seed", range(12))
async def test_broken_bytes_are_a_problem_or_read_and_nothing_else(seed: int) -> None:
    chance = random.Random(seed)
    data = bytearray(pdf("some text\nand more", "another page"))
    for _ in range(chance.randrange(1, 30)):
        data[chance.randrange(5, len(data))] = chance.randrange(256)
    with suppress(DocumentProblem):
        pages = await read_pages(bytes(data[: chance.randrange(20, len(data) + 1)]), {})
        assert pages.total >= 1


async def test_a_cancelled_reader_leaves_no_process(mock_clock) -> None:
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(convert, pdf_text.__file__, pdf("x"), {})
            await trio.testing.wait_all_tasks_blocked(0.01)
            scope.cancel()
    assert scope.cancelled_caught
