#!/usr/bin/env python3
"""Fills the generated sections of docs/protocol.md and writes the types for TypeScript.

    .venv/bin/python scripts/protocol_page.py

Run it after you change the wire or `client/examples`; a test fails until you do.
"""

import ast
import inspect
import re
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import get_args

import msgspec
from msgspec import Struct

from tiller_protocol.answers import AnyResult
from tiller_protocol.codec import INPUT_BYTES_MAX, MESSAGE_BYTES_MAX, REPLAY_BYTES_MAX
from tiller_protocol.events import LIFECYCLE_BODIES, AnyBody
from tiller_protocol.ids import ID_CHARS_MAX
from tiller_protocol.items import Item
from tiller_protocol.ops import AnyOp
from tiller_protocol.schema import typescript
from tiller_protocol.sessions import (
    INPUTS_LIMIT_MAX,
    LIST_LIMIT_MAX,
    QUERY_CHARS_MAX,
    REPLAY_LIMIT_MAX,
    SEARCH_LIMIT_MAX,
)

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "protocol.md"

TYPES = ROOT / "client" / "typescript" / "src" / "protocol.ts"

SECTION = re.compile(r"(<!-- generated: (.+?) -->\n).*?(<!-- end -->)", re.DOTALL)

EXAMPLE = "example in "
"""Begins the name of a section whose text is the example in a module's docstring."""

LIMITS = (
    ("a message in either direction", MESSAGE_BYTES_MAX, "bytes"),
    ("the text and images of an input", INPUT_BYTES_MAX, "bytes"),
    ("an answer to `replay` that has more than one event", REPLAY_BYTES_MAX, "bytes"),
    ("an answer to `replay`", REPLAY_LIMIT_MAX, "events"),
    ("an answer to `session_list`", LIST_LIMIT_MAX, "sessions"),
    ("an answer to `session_search`", SEARCH_LIMIT_MAX, "sessions"),
    ("a query of `session_search`", QUERY_CHARS_MAX, "characters"),
    ("an answer to `input_history`", INPUTS_LIMIT_MAX, "inputs"),
    ("an id that a frontend chooses", ID_CHARS_MAX, "characters"),
)


def filled(page: str) -> str:
    """Return the page with every generated section up to date."""
    return SECTION.sub(lambda found: found[1] + _section(found[2]) + found[3], page)


def _section(name: str) -> str:
    match name:
        case "ops":
            return _messages("Op", get_args(AnyOp))
        case "results":
            results = get_args(AnyResult)
            rows = (
                (f"`{one.__name__}`", f"`{_tag(one)}`", _fields(one), _meaning(one))
                for one in results
            )
            return _table(("Result", "`type`", "Fields", "Meaning"), rows)
        case "events":
            return _messages("Event body", get_args(AnyBody), starred=LIFECYCLE_BODIES)
        case "items":
            return _messages("Item", get_args(Item))
        case "limits":
            limits = ((of, f"{most:,} {unit}") for of, most, unit in LIMITS)
            return _table(("Limit for", "Maximum"), limits)
        case _ if name.startswith(EXAMPLE):
            documentation = ast.get_docstring(ast.parse((ROOT / name[len(EXAMPLE) :]).read_text()))
            _, _, example = (documentation or "").partition("::\n")
            return f"```python\n{textwrap.dedent(example).strip()}\n```\n"
        case _:
            path = ROOT / name
            language = {".py": "python", ".ts": "typescript"}[path.suffix]
            return f"```{language}\n{path.read_text(encoding='utf-8').rstrip()}\n```\n"


def _messages(
    title: str, structs: Iterable[type[Struct]], starred: Iterable[type[Struct]] = ()
) -> str:
    """Return a table with each type's tag, its fields, and its docstring on one line."""
    rows = (
        (f"`{_tag(one)}`{' *' if one in starred else ''}", _fields(one), _meaning(one))
        for one in structs
    )
    return _table((title, "Fields", "Meaning"), rows)


def _fields(struct: type[Struct]) -> str:
    """Name the fields on the wire, those that may be absent in brackets."""
    fields = msgspec.structs.fields(struct)
    names = (f"`{one.encode_name}`" if one.required else f"[`{one.encode_name}`]" for one in fields)
    return ", ".join(names)


def _tag(struct: type[Struct]) -> str:
    return str(struct.__struct_config__.tag)


def _meaning(struct: type[Struct]) -> str:
    return " ".join((inspect.getdoc(struct) or "").split()).replace("|", "\\|")


def _table(titles: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    head = f"| {' | '.join(titles)} |\n{'|---' * len(titles)}|\n"
    return head + "".join(f"| {' | '.join(cells)} |\n" for cells in rows)


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    TYPES.write_text(typescript(), encoding="utf-8")
