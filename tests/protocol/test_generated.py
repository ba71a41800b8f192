"""What is generated from the protocol is current: the page for authors, types for TypeScript."""

import runpy
from pathlib import Path
from typing import get_args

from tiller_protocol.errors import RejectionCode
from tiller_protocol.schema import json_schema, typescript

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "protocol.md").read_text(encoding="utf-8")
TYPES = (ROOT / "client" / "typescript" / "src" / "protocol.ts").read_text(encoding="utf-8")


def test_the_generated_sections_of_the_page_are_current() -> None:
    filled = runpy.run_path(str(ROOT / "scripts" / "protocol_page.py"))["filled"]
    assert filled(PAGE) == PAGE, "run: .venv/bin/python scripts/protocol_page.py"


def test_every_rejection_code_is_explained_on_the_page() -> None:
    assert [code for code in get_args(RejectionCode) if f"\n| `{code}` | " not in PAGE] == []


def test_the_typescript_types_are_current() -> None:
    assert typescript() == TYPES, "run: .venv/bin/python scripts/protocol_page.py"


def test_every_field_of_a_large_struct_is_described_in_the_schema() -> None:
    """Except the tag of a struct, and the tiers of a price, whose type can carry no description."""
    silent = [
        f"{name}.{field}"
        for name, struct in json_schema()["$defs"].items()
        if len(struct.get("properties", {})) >= 5
        for field, what in struct["properties"].items()
        if "description" not in what and field != "type"
    ]
    assert silent == ["Price.tiers"]
