"""What a start of `tiller` imports, by names and counts: times depend on the machine, these do not.

A maximum may be raised for something that a start can't do without, in the same commit.
"""

import ast
import os
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import tiller_client
from support.event_bodies import ended
from support.fake_daemon import FakeDaemon
from tiller_client.command_line.arguments import parse
from tiller_client.command_line.verb_arguments import VERBS
from tiller_protocol.places import Places

HELP_MODULES_MAX = 88
"""Modules in memory after `tiller --help`; Python begins with 33."""

EXEC_MODULES_MAX = 156
"""Modules in memory when `tiller exec` submits its turn to a running daemon."""

HEAVY = {"asyncio", "ssl", "inspect", "logging", "pynng", "trio", "structlog", "rich", "httpx2"} | {
    *("markdown_it", "pygments", "PIL"),
}
FOREIGN_TO_HELP = HEAVY | {"msgspec", "pathlib", "socket", "subprocess", "json", "tiller_daemon"}
FOREIGN_TO_EXEC = HEAVY | {
    *("typing_extensions", "dataclasses", "hashlib", "json", "subprocess", "sqlite3"),
    *("tiller_daemon", "tiller_client.rendering.events", "tiller_client.console"),
}

HELP = """
import sys
from tiller_client.__main__ import main
try:
    main(["--help"])
except SystemExit:
    print(sorted(sys.modules))
"""

EXEC = """
import sys
from tiller_client.__main__ import main
submitted = []
def note(frame, event, _argument):
    if event == "call" and frame.f_code.co_qualname == "RequestSocket.send":
        submitted.append(sorted(sys.modules))
sys.setprofile(note)
main(["exec", "hello"])
sys.setprofile(None)
greeting, creation, turn, *_ = submitted
print(turn)
"""
"""The order of imports is a part of what is tested, so nothing is imported to be patched."""


def modules_of(program: str, directory: Path) -> set[str]:
    """The modules that a program prints in its last line."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", program],
        cwd=directory,
        env={name: value for name, value in os.environ.items() if "COVERAGE" not in name},
        capture_output=True,
        check=True,
        text=True,
    )
    return set(ast.literal_eval(done.stdout.splitlines()[-1]))


def test_help_imports_nothing_but_a_little_of_the_standard_library(tmp_path: Path) -> None:
    modules = modules_of(HELP, tmp_path)
    assert modules & FOREIGN_TO_HELP == set()
    assert len(modules) <= HELP_MODULES_MAX


def test_exec_submits_before_it_imports_what_shows_the_turn(places: Places, tmp_path: Path) -> None:
    with FakeDaemon(places.runtime, lambda daemon, session: daemon.add(session, [ended()])):
        modules = modules_of(EXEC, tmp_path)
    assert modules & FOREIGN_TO_EXEC == set()
    assert len(modules) <= EXEC_MODULES_MAX


def test_each_verb_is_known_without_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(["--help"])
    listed = capsys.readouterr().out
    verbs = [verb for verbs in VERBS.values() for verb in verbs]
    shown = [line.split()[0] for line in listed.splitlines() if line.startswith("    ")]
    assert shown == verbs
    for verb in verbs:
        with pytest.raises(SystemExit):
            parse([verb, "--help"])
        assert f"usage: tiller {verb}" in capsys.readouterr().out


def test_no_module_imports_itself_through_others() -> None:
    """Imports for types alone do not count; those in functions do."""
    root = Path(tiller_client.__file__).parent
    names = {_module_name(root, path): path for path in root.rglob("*.py")}
    imports = {name: _imports(path) & names.keys() for name, path in names.items()}
    TopologicalSorter(imports).prepare()  # raises CycleError


def _module_name(root: Path, path: Path) -> str:
    return ".".join(path.relative_to(root.parent).with_suffix("").parts).removesuffix(".__init__")


def _imports(path: Path) -> set[str]:
    found: set[str] = set()
    waiting: list[ast.AST] = [ast.parse(path.read_text())]
    while waiting:
        node = waiting.pop()
        match node:
            case ast.If(test=ast.Name("TYPE_CHECKING")):
                continue
            case ast.Import(names):
                found.update(one.name for one in names)
            case ast.ImportFrom(module=str(module), names=names):
                modules = {f"{module}.{one.name}" for one in names}
                found |= modules | {module}
            case _:
                waiting += ast.iter_child_nodes(node)
    return found
