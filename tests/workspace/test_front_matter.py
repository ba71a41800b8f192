"""The head of a Markdown file: what is understood, and what hostile ones cost."""

import time
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from support.each import each
from tiller_daemon.workspace.front_matter import FrontMatterError, parse, split


class Head(Struct, frozen=True):
    name: str = ""
    description: str = ""
    tools: tuple[str, ...] | None = None
    steps: int = 0


def test_texts_lists_and_folded_lines_are_understood_as_other_programs_write_them():
    text = (
        "---\nname: 'x'\ndescription: >\n  first\n  second\ntools: [read, ls]\nsteps: 3\n"
        "other: {a: [1]}\n---\n\nBody\n---\nmore\n"
    )
    head, body = parse(text, Head)
    assert head == Head("x", "first second\n", ("read", "ls"), 3)
    assert body == "\nBody\n---\nmore\n"
    assert parse("---\ntools:\n  - a\n  - b\n---\n", Head)[0].tools == ("a", "b")


@each("word", ["no", "on", "1.0", "2026-11-21", "0x10"])
def test_words_stay_words(word):
    assert parse(f"---\ndescription: {word}\n---\n", Head)[0].description == word


@each(
    "text",
    [
        "Set up the harness: hooks, servers",
        "[beta] does x",
        "[beta]",
        "@mention helper",
        "{a: b}",
        "it's *bold*: yes",
        "&a `code` %x",
        "!!python/object/apply:os.system ['true']",
    ],
)
def test_a_text_needs_no_quotes(text):
    rest = "tools: [read, ls]\nother: [1]\n"
    head, _ = parse(f"---\nname: x\ndescription: {text}\n{rest}---\n", Head)
    assert (head.description, head.tools) == (text, ("read", "ls"))
    head, _ = parse(f"---\ndescription: {text}\n  and more\nname: 'x'\n---\n", Head)
    assert (head.description, head.name) == (f"{text} and more", "x")


def test_a_text_without_a_head_is_all_body_and_an_empty_field_is_absent():
    assert parse("# Title\n---\n", Head) == (Head(), "# Title\n---\n")
    assert parse("---\ntools:\n---\nx", Head) == (Head(), "x")
    assert parse("---\n---\nx", Head) == (Head(), "x")


@each(
    "head",
    [
        "- a\n- b",
        "just text",
        "tools: read, ls",
        "steps: many",
        "tools: &a [*a]",
        "? [a]\n: b",
        "name: \x00",
        "name: a\n\tb: c\n[",
        "a: " + "[" * 100,
        "- " * 1000,
        "? " * 1000,
        "name: " + "x" * 5000,
    ],
)
def test_a_bad_head_is_refused_with_a_reason_and_soon(head):
    began = time.thread_time()
    with pytest.raises(FrontMatterError, match="front matter"):
        parse(f"---\n{head}\n---\n", Head)
    assert time.thread_time() - began < 1.0


def test_a_head_without_an_end_is_refused():
    with pytest.raises(FrontMatterError, match="no end"):
        parse("---\nname: x\n", Head)


@given(st.text(), st.text(st.characters(exclude_characters="-")))
def test_whatever_the_text_is_it_is_parsed_or_refused_and_no_body_is_lost(head, body):
    with suppress(FrontMatterError):
        assert parse(f"---\n{head}\n---\n{body}", Head)[1].endswith(body)
    assert split(f"x{head}") == ("", f"x{head}")
