"""Plants faults in a copy of the tree, one at a time, and reports which test finds each fault.

    .venv/bin/python scripts/soak/planted.py [WORDS]   # WORDS: only faults that contain them

Each fault names the test that must find it. If that test passes, the simulation and the tests of
sessions, turns and snapshots run as well. Exits with status 1 when a fault survives, can't be
planted, is found by another test than it names, or is found although it is marked as equivalent.
A fault costs some six seconds of CPU time; a full run on an idle machine takes less than an hour.
"""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
import venv
from pathlib import Path

import faults_of_chat
import faults_of_hooks
import faults_of_input
import faults_of_permission
import faults_of_places
import faults_of_record
import faults_of_rules
import faults_of_search
import faults_of_snapshots
import faults_of_sub_agents
import faults_of_turns
from fault import Fault

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("daemon", "protocol", "client")
PYTHON = Path(".venv", "bin", "python")

FAULTS = (
    faults_of_chat.FAULTS
    + faults_of_hooks.FAULTS
    + faults_of_input.FAULTS
    + faults_of_permission.FAULTS
    + faults_of_places.FAULTS
    + faults_of_record.FAULTS
    + faults_of_rules.FAULTS
    + faults_of_search.FAULTS
    + faults_of_snapshots.FAULTS
    + faults_of_turns.FAULTS
    + faults_of_sub_agents.FAULTS
)

SUITES = (("tests/sim",), ("tests/session", "tests/turn", "tests/snapshots"))
"""Suites that run if the named test does not find a fault; the quick suite comes first."""

PROGRAMS = {
    "TILLER_PROGRAMS": os.environ.get("TILLER_PROGRAMS", "200"),
    "TILLER_INTERRUPTS": "2",
    "TILLER_PREFIX_PROGRAMS": "17",
    "TILLER_TREES": "20",
    "TILLER_SHRINK_PLAYS": "0",
}
TEST_S_MAX = 60
SUITE_S_MAX = 900.0
"""Seconds after which a test that hangs counts as finding the fault."""


def main(words: list[str]) -> int:
    """Plant each fault and print a line about it; returns the exit status."""
    chosen = [fault for fault in FAULTS if all(word in repr(fault) for word in words)]
    bad: list[str] = []
    with tempfile.TemporaryDirectory(prefix="tiller-planted-") as directory:
        tree = Path(directory)
        copy_tree(tree)
        install(tree)
        named = tuple(sorted({fault.found_by for fault in chosen} - {""}))
        if named and (failing := first_failure(tree, named)):
            print(f"{failing} fails without a fault, so it would seem to find every one")
            return 1
        for number, fault in enumerate(chosen, 1):
            began = time.monotonic()
            try:
                found, problem = try_fault(tree, fault)
            except LookupError as error:
                found, problem = "", str(error)
            bad += [f"{fault.breaks}: {problem}"] if problem else []
            print(f"{number:>3} {fault.breaks}  ({time.monotonic() - began:.0f} s)")
            print(f"      {found or '-'}" + (f": {problem}" if problem else ""), flush=True)
    print(f"\n{len(chosen)} faults planted, {len(bad)} problems")
    print("\n".join(bad))
    return 1 if bad else 0


def copy_tree(into: Path) -> None:
    """Copy the files that git tracks and new files, but no ignored files."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (into / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, into / name)


def install(tree: Path) -> None:
    """Make a Python that imports the tree. The daemon ignores PYTHONPATH, which is for `tiller`."""
    venv.create(tree / ".venv", symlinks=True)
    packages = sysconfig.get_path("purelib", "venv", {"base": str(tree / ".venv")})
    lines = [*(str(tree / room) for room in ROOMS), sysconfig.get_path("purelib")]
    Path(packages, "tree.pth").write_text("\n".join(lines))
    for program in Path(sys.executable).parent.iterdir():
        if not (tree / PYTHON).with_name(program.name).exists():
            (tree / PYTHON).with_name(program.name).symlink_to(program)


def try_fault(tree: Path, fault: Fault) -> tuple[str, str]:
    """Return the test that finds the fault, and a problem with this result; either may be empty.

    Raise `LookupError` when the fault can't be planted, or no test ran.
    """
    path = tree / fault.file
    whole, times = path.read_text(), path.stat()
    path.write_text(fault.plant(whole))
    try:
        if fault.found_by and (found := first_failure(tree, (fault.found_by,))):
            return found, ""
        found = next(filter(None, (first_failure(tree, where) for where in SUITES)), "")
    finally:
        path.write_text(whole)
        # With the old times, the bytecode of the original file is valid again.
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    if fault.equivalent:
        return found, "it is not equivalent" if found else ""
    return found, "name this test in `found_by`" if found else "it survived"


def first_failure(tree: Path, where: tuple[str, ...]) -> str:
    """Return the name of the first test that fails, or an empty string when all pass.

    Raise `LookupError` when no test ran.
    """
    path = os.pathsep.join(str(tree / room) for room in ROOMS)
    command = [str(tree / PYTHON), "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-n", "0"]
    command += [f"--timeout={TEST_S_MAX}", "--no-header", "--tb=no", *where]
    try:
        done = subprocess.run(
            command,
            cwd=tree,
            env={**os.environ, **PROGRAMS, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            timeout=SUITE_S_MAX,
        )
    except subprocess.TimeoutExpired:
        return "it hangs"
    if done.returncode == 0:
        return ""
    named = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    if named:
        return named[1].partition("[")[0]
    stuck = (
        re.search(r"(test_\w+)", done.stdout + done.stderr) if "Timeout" in done.stderr else None
    )
    if stuck:
        return f"timeout in {stuck[1]}"
    raise LookupError(f"no test ran: pytest ended with {done.returncode} in {' '.join(where)}")


if __name__ == "__main__":
    if {"-h", "--help"} & {*sys.argv[1:]}:
        print(__doc__)
    else:
        sys.exit(main(sys.argv[1:]))
