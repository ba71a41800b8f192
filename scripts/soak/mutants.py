"""Changes one place of the code at a time, and lists the changes that no test notices.

    .venv/bin/python scripts/soak/mutants.py                       # 200 places, chosen by chance
    .venv/bin/python scripts/soak/mutants.py --count 50 --seed 7 daemon/tiller_daemon/turn/loop.py

First, all tests of `TESTS` run once in a copy of the tree, to learn which tests run which line.
Then each chosen place is changed (a *mutant*), and the tests that run its line must fail: at most
`TESTS_MAX` of them, those that run the fewest lines first. A mutant that survives is either
equivalent, or shows what no test checks. A mutant costs about five seconds of CPU time.
"""

import argparse
import ast
import os
import random
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import venv
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from coverage import CoverageData

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("daemon", "protocol", "client")
CORE = tuple(f"daemon/tiller_daemon/{name}" for name in ("turn", "session", "policy", "store"))
TESTS = tuple(
    f"tests/{name}" for name in ("turn", "session", "policy", "store", "snapshots", "sim")
)
TESTS_MAX = 200
TESTS_S_MAX = 300.0
"""Seconds after which tests that hang count as failed."""

OPERATORS: dict[type[ast.operator], type[ast.operator]] = {ast.Add: ast.Sub, ast.Sub: ast.Add}
CONNECTIVES: dict[type[ast.boolop], type[ast.boolop]] = {ast.And: ast.Or, ast.Or: ast.And}
COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip


class Mutant(NamedTuple):
    """A change of one expression or statement."""

    file: str
    node: ast.expr | ast.stmt
    """What is replaced."""
    statement: ast.stmt
    after: str

    def applied(self, source: bytes) -> bytes:
        """The file with the change."""
        lines = source.splitlines(keepends=True)
        starts = [0]
        for line in lines:
            starts.append(starts[-1] + len(line))
        node = self.node
        begin = starts[node.lineno - 1] + node.col_offset
        end = starts[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)
        return source[:begin] + self.after.encode() + source[end:]

    def __str__(self) -> str:
        """One line that says where and what."""
        before = " ".join(ast.unparse(self.node).split())
        return f"{self.file}:{self.node.lineno}: {before}  ->  {self.after}"


def mutants(file: str) -> Iterator[Mutant]:
    """All mutants of the functions of a file."""
    for function in ast.walk(ast.parse((ROOT / file).read_bytes())):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for statement in function.body:
                yield from _in_statement(file, statement)


def _in_statement(file: str, statement: ast.stmt) -> Iterator[Mutant]:
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return  # `mutants` meets it by itself
    whole = isinstance(statement, ast.Expr | ast.AugAssign | ast.Raise)
    if whole and not _is_remark(statement):
        yield Mutant(file, statement, statement, "pass")
    if isinstance(statement, ast.If | ast.While):
        yield Mutant(file, statement.test, statement, f"(not ({ast.unparse(statement.test)}))")
    if isinstance(statement, ast.Break | ast.Continue):
        after = "continue" if isinstance(statement, ast.Break) else "break"
        yield Mutant(file, statement, statement, after)
    for child in ast.iter_child_nodes(statement):
        if isinstance(child, ast.stmt):
            yield from _in_statement(file, child)
        elif isinstance(child, ast.ExceptHandler | ast.match_case):
            for one in child.body:
                yield from _in_statement(file, one)
        elif isinstance(child, ast.expr) and not _is_remark(statement):
            if isinstance(statement, ast.AnnAssign) and child is statement.annotation:
                continue
            for node in ast.walk(child):
                for after in _changes(node):
                    assert isinstance(node, ast.expr)
                    yield Mutant(file, node, statement, f"({after})")


def _changes(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Compare(left, [op], [right]):
            yield ast.unparse(ast.Compare(left, [COMPARISONS[type(op)]()], [right]))
        case ast.BoolOp(op, values):
            yield ast.unparse(ast.BoolOp(CONNECTIVES[type(op)](), values))
        case ast.UnaryOp(ast.Not(), operand):
            yield ast.unparse(operand)
        case ast.IfExp(test, body, orelse):
            yield ast.unparse(ast.IfExp(test, orelse, body))
        case ast.BinOp(left, op, right) if type(op) in OPERATORS:
            yield ast.unparse(ast.BinOp(left, OPERATORS[type(op)](), right))
        case ast.Constant(bool() as value):
            yield str(not value)
        case ast.Constant(int() as value):
            yield str(value + 1)
        case _:
            pass


def _is_remark(statement: ast.stmt) -> bool:
    """Whether a statement is a docstring or only logs."""
    text = ast.unparse(statement)
    return text.startswith(("'", '"', "log.", "await log.", "assert "))


class Tree:
    """A copy of the files that git tracks, with a Python that imports it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        listed = subprocess.check_output(["git", "ls-files", "-z"], cwd=ROOT, text=True)
        for name in filter(None, listed.split("\0")):
            if (ROOT / name).is_file():
                (path / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, path / name)
        venv.create(path / ".venv", symlinks=True)
        packages = sysconfig.get_path("purelib", "venv", {"base": str(path / ".venv")})
        paths = [*(str(path / room) for room in ROOMS), sysconfig.get_path("purelib")]
        Path(packages, "tree.pth").write_text("\n".join(paths))

    def failing(self, *arguments: str, limit_s: float | None = TESTS_S_MAX) -> set[str]:
        """Run tests and return those that fail; the set contains `hang` if they hang."""
        python = str(self._path / ".venv" / "bin" / "python")
        command = [
            python,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "--no-header",
            *arguments,
        ]
        paths = os.pathsep.join(str(self._path / room) for room in ROOMS)
        environment = {**os.environ, "PYTHONPATH": paths, "TILLER_PROGRAMS": "50"}
        try:
            done = subprocess.run(
                command,
                cwd=self._path,
                env=environment,
                capture_output=True,
                text=True,
                timeout=limit_s,
            )
        except subprocess.TimeoutExpired:
            return {"hang"}
        named = set(re.findall(r"^(?:FAILED|ERROR) (.+?)(?: - |$)", done.stdout, re.MULTILINE))
        return named or ({"hang"} if done.returncode else set())

    def tests_by_line(self) -> dict[str, dict[int, list[str]]]:
        """Run all tests; return the tests that run each line, by file, the most specific first."""
        measured = [f"--cov={room}" for room in CORE]
        options = ["--cov-context=test", "--cov-report=", "-n2", "-m", "not nightly"]
        # What fails without a mutant, for example beside the measurement, can't notice one.
        useless = self.failing(*options, *measured, *TESTS, limit_s=None)
        data = CoverageData(str(self._path / ".coverage"))
        data.read()
        found: dict[str, dict[int, list[str]]] = {}
        lines_of = Counter[str]()
        for file in data.measured_files():
            by_line = data.contexts_by_lineno(file)
            names = {
                line: [c.partition("|")[0] for c in all_ if c] for line, all_ in by_line.items()
            }
            found[str(Path(file).relative_to(self._path))] = names
            lines_of.update(name for all_ in names.values() for name in all_)
        for by_line in found.values():
            for names in by_line.values():
                names[:] = sorted({*names} - useless, key=lambda name: (lines_of[name], name))[
                    :TESTS_MAX
                ]
        return found

    def survives(self, mutant: Mutant, tests: list[str]) -> bool:
        """Whether all these tests pass with the mutant."""
        path = self._path / mutant.file
        source = path.read_bytes()
        path.write_bytes(mutant.applied(source))
        try:
            return not self.failing("-x", "--timeout=60", *tests)
        finally:
            path.write_bytes(source)


def main() -> int:
    """Try mutants and print those that survive; returns the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    parser.add_argument("paths", nargs="*", default=CORE)
    options = parser.parse_args()
    files = [
        str(file.relative_to(ROOT))
        for path in options.paths
        for file in (
            sorted((ROOT / path).rglob("*.py")) if (ROOT / path).is_dir() else [ROOT / path]
        )
    ]
    every = [mutant for file in files for mutant in mutants(file)]
    chosen = random.Random(options.seed).sample(every, min(options.count, len(every)))
    print(f"{len(chosen)} of {len(every)} mutants, --seed {options.seed}", flush=True)
    survived = 0
    with tempfile.TemporaryDirectory(prefix="tiller-mutants-") as directory:
        tree = Tree(Path(directory))
        covering = tree.tests_by_line()
        for mutant in chosen:
            by_line = covering.get(mutant.file, {})
            first, last = mutant.statement.lineno, mutant.node.end_lineno or 0
            lines = range(last, first - 1, -1)
            tests = next((by_line[line] for line in lines if by_line.get(line)), list[str]())
            if not tests or tree.survives(mutant, tests):
                survived += 1
                print(mutant, "" if tests else " (no test runs this line)", flush=True)
    print(f"{survived} of {len(chosen)} survived")
    return 0


if __name__ == "__main__":
    sys.exit(main())
