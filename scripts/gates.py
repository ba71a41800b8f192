#!/usr/bin/env python3
"""Checks the sizes of files, functions and classes, field descriptions and cited handles.

    .venv/bin/python scripts/gates.py [ROOT]

Prints each violation and exits with status 1 if there is one. The tables below list code that is
allowed to exceed a limit: an entry may only shrink, and goes when its code is within the limit.
"""

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PRODUCT = ("daemon", "protocol", "client")
MEASURED = (*PRODUCT, "scripts")

FILE_LINES_MAX = 400
FUNCTION_LINES_MAX = 60
FOLDER_MODULES_MAX = 25
"""Modules in a folder that a newcomer can still take in; a larger folder holds two features."""

FIELDS_MAX = 12
"""Fields that a struct or dataclass may declare; a larger one is a bag for everything."""

ATTRIBUTES_MAX = 16
"""Attributes that `__init__` may set; a class with more has too much state to follow."""

FIELDS_UNEXPLAINED_MAX = 4
"""A struct or dataclass with more fields documents each one; a test checks the wire's structs."""

WIRE = (
    "protocol/tiller_protocol/",
    "daemon/tiller_daemon/config/model_schema.py",
    "daemon/tiller_daemon/config/schema.py",
    "daemon/tiller_daemon/models/dialects/openai_responses/frames.py",
    "daemon/tiller_daemon/tools/web/sourcegraph_stream.py",
)
"""Places whose structs may have more fields, since they mirror messages or files of others."""

HANDLE = re.compile(r"\b[GBT][1-9][0-9]?\b")
"""A handle from docs/guarantees.md: tests cite handles, the product states the promise itself."""

LARGE_BUNDLES = {
    "daemon/tiller_daemon/models/base.py:ModelRequest": 14,
}

LARGE_CLASSES: dict[str, int] = {}


def main(root: Path) -> int:
    """Measure the tree, print the violations, and return the exit status."""
    found = sorted(violations(root))
    print("\n".join(found) or "gates: everything is within its limits")
    return 1 if found else 0


def violations(root: Path) -> Iterator[str]:
    """Yield a line for each violation below a root, with its place and the problem."""
    files: dict[str, int] = {}
    folders: Counter[str] = Counter()
    functions: dict[str, int] = {}
    bundles: dict[str, int] = {}
    classes: dict[str, int] = {}
    for place, source in _sources(root, MEASURED):
        files[place] = len(source.splitlines())
        folders[place.rpartition("/")[0]] += not place.endswith("/__init__.py")
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                named = f"{place}:{node.name}"
                lines = (node.end_lineno or 0) - node.lineno + 1
                functions[named] = max(lines, functions.get(named, 0))
            elif isinstance(node, ast.ClassDef) and not place.startswith(WIRE):
                bundles[f"{place}:{node.name}"] = _declared(node)
                classes[f"{place}:{node.name}"] = _assigned(node)
                if place.startswith(PRODUCT):
                    yield from _undocumented(node, f"{place}:{node.name}")
    yield from _over("lines", files, FILE_LINES_MAX, {})
    yield from _over("modules", folders, FOLDER_MODULES_MAX, {})
    yield from _over("lines", functions, FUNCTION_LINES_MAX, {})
    yield from _over("fields", bundles, FIELDS_MAX, LARGE_BUNDLES)
    yield from _over("attributes", classes, ATTRIBUTES_MAX, LARGE_CLASSES)
    yield from _handles(root)


def _declared(node: ast.ClassDef) -> int:
    """Return the number of fields that a struct or dataclass declares."""
    return sum(map(_is_field, node.body))


def _is_field(statement: ast.stmt) -> bool:
    if not isinstance(statement, ast.AnnAssign):
        return False
    return "ClassVar" not in ast.unparse(statement.annotation)


def _undocumented(node: ast.ClassDef, place: str) -> Iterator[str]:
    """Yield a line for each field of a large struct or dataclass that has no description."""
    if _declared(node) <= FIELDS_UNEXPLAINED_MAX:
        return
    for field, after in zip(node.body, [*node.body[1:], None], strict=True):
        if not isinstance(field, ast.AnnAssign) or not _is_field(field):
            continue
        if "Meta(" not in ast.unparse(field.annotation) and not _is_text(after):
            yield f"{place}: no text explains the field {ast.unparse(field.target)}"


def _is_text(statement: ast.stmt | None) -> bool:
    if not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Constant):
        return False
    return isinstance(statement.value.value, str)


def _assigned(node: ast.ClassDef) -> int:
    """Return the number of attributes that the `__init__` of a class sets."""
    made = [one for one in node.body if isinstance(one, ast.FunctionDef) and one.name == "__init__"]
    stored = [one for init in made for one in ast.walk(init) if isinstance(one, ast.Attribute)]
    return len({one.attr for one in stored if ast.unparse(one.value) == "self" and _is_set(one)})


def _is_set(attribute: ast.Attribute) -> bool:
    return isinstance(attribute.ctx, ast.Store)


def _handles(root: Path) -> Iterator[str]:
    """Yield a line for each line of the product that cites a handle."""
    for place, source in _sources(root, PRODUCT):
        for number, line in enumerate(source.splitlines(), 1):
            if match := HANDLE.search(line):
                yield f"{place}:{number}: cites {match[0]}; state the promise in words"


def _sources(root: Path, directories: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Yield the path of each source file, relative to the root, and its text."""
    for directory in directories:
        for path in sorted((root / directory).rglob("*.py")):
            yield path.relative_to(root).as_posix(), path.read_text()


def _over(what: str, sizes: dict[str, int], limit: int, excepted: dict[str, int]) -> Iterator[str]:
    """Yield a line for each size over its limit, and for each exception that is out of date."""
    for place, size in sizes.items():
        if size > excepted.get(place, limit):
            yield f"{place}: {size} {what}, more than {excepted.get(place, limit)}"
    for place, size in excepted.items():
        now = sizes.get(place, 0)
        if now <= limit:
            yield f"{place}: within the limit or gone; remove its exception from scripts/gates.py"
        elif now < size:
            yield f"{place}: {now} {what}; lower its exception in scripts/gates.py from {size}"


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve() if sys.argv[1:] else ROOT))
