"""The page of events has every code that the daemon gives to errors and warnings."""

import re
from pathlib import Path
from typing import get_args

from tiller_daemon.models.base import ModelErrorKind

ROOT = Path(__file__).parents[2]

RAISED = re.compile(
    r'(?:WarningRaised|ErrorRaised)\(\s*"(\w+)"|Ending\("failed", ErrorInfo\("(\w+)"'
)


def _documented() -> set[str]:
    page = (ROOT / "docs" / "events.md").read_text().partition("## Errors and warnings")[2]
    first_cells = re.findall(r"^\| (`[^|]*) \|", page, re.MULTILINE)
    return {code for cell in first_cells for code in re.findall(r"`(\w+)`", cell)}


def test_every_code_of_an_error_or_a_warning_is_in_a_table() -> None:
    sources = (ROOT / "daemon" / "tiller_daemon").rglob("*.py")
    found = [match for source in sources for match in RAISED.findall(source.read_text())]
    raised = {warning or error for warning, error in found}
    assert {"context_full", "no_title"} <= raised
    assert (raised | set(get_args(ModelErrorKind))) - _documented() == set()
