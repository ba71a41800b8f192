"""The demo: the real daemon, sockets, tools and log, from a failing test to a passing one."""

import ast
import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from itertools import chain
from pathlib import Path

import pytest

from support.event_bodies import Tiller
from tiller_client.demo_play import NEW_LINE, PROJECT, STEERING
from tiller_protocol.places import Places

pytestmark = pytest.mark.nightly

MODULE = "tiller_client.verbs.demo"

HERE = Path(__file__).parents[2]

OWN_PACKAGES = {"tiller_client", "tiller_daemon", "tiller_protocol", "shop"}
"""`shop` is the project of the demo."""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The parent of the demo's directory, without the pauses, which are for people."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr(f"{MODULE}.PAUSE_S", 0.0)
    return tmp_path


def test_the_demo_repairs_a_real_failing_test_and_leaves_nothing_behind_when_told(
    places: Places, tiller: Tiller, root: Path
) -> None:
    status, out, err = tiller("demo", "--remove")
    assert (status, err) == (0, "")
    assert "AssertionError: 850 != 849" in out
    assert "allowed once by tiller demo" in out
    assert f"» {STEERING} (steering)" in out
    assert f"+ {NEW_LINE}" in out.partition("What git sees")[2]
    assert "■ completed" in out
    assert not list(root.glob("tiller-demo-*"))
    assert not places.runtime.exists()


def test_the_demo_stays_to_be_looked_at(
    tiller: Tiller, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    status, out, _ = tiller("demo", "--json")
    events = [json.loads(line) for line in out.splitlines()]
    assert status == 0
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert Counter(event["body"]["type"] for event in events)["request_opened"] == 1
    (kept,) = root.glob("tiller-demo-*")
    assert NEW_LINE in (kept / "project" / "shop" / "prices.py").read_text()
    monkeypatch.setenv("TILLER_HOME", str(kept / "home"))
    assert tiller("daemon", "status")[0] == 1
    assert STEERING in tiller("show", "last")[1]
    assert tiller("daemon", "stop")[:2] == (0, "stopped\n")


def test_the_project_of_the_demo_fails_as_it_is_and_passes_when_repaired(tmp_path: Path) -> None:
    for name, text in PROJECT.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text.replace("time.sleep(1.2)", "time.sleep(0)"))
    assert run_tests(tmp_path) == 1
    prices = tmp_path / "shop" / "prices.py"
    lines = prices.read_text().splitlines(keepends=True)
    prices.write_text("".join([*lines[:-1], NEW_LINE]))
    assert run_tests(tmp_path) == 0


def test_the_script_needs_no_environment_and_removes_the_one_that_it_makes(tmp_path: Path) -> None:
    """In a checkout that nobody has set up; packages are found here, so pip fetches nothing."""
    checkout, temporary, home = (tmp_path / name for name in ("checkout", "t", "home"))
    temporary.mkdir()
    home.mkdir()
    listed = subprocess.run(["git", "ls-files"], cwd=HERE, capture_output=True, check=True)
    for name in listed.stdout.decode().splitlines():
        if not name.startswith(("tests/", "docs/")) and (HERE / name).is_file():
            (checkout / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(HERE / name, checkout / name)
    before = set(checkout.rglob("*"))
    done = subprocess.run(
        [checkout / "scripts" / "demo", "--json"],
        capture_output=True,
        check=False,
        text=True,
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "TMPDIR": str(temporary),
            "PYTHON": sys.executable,
            "PYTHONPATH": sysconfig.get_path("purelib"),
        },
    )
    assert done.returncode == 0, done.stderr
    assert '"outcome":"completed"' in done.stdout
    assert not list(temporary.iterdir())
    assert not [path for path in home.rglob("*") if "tiller" in path.name]
    assert set(checkout.rglob("*")) == before


def test_whatever_is_imported_is_installed_by_the_script() -> None:
    """It installs what the project depends on, and no tool of its developers."""
    project = tomllib.loads((HERE / "pyproject.toml").read_text())["project"]
    declared = [*project["dependencies"], *chain(*project["optional-dependencies"].values())]
    installed, providers = whole(declared), importlib.metadata.packages_distributions()
    missing = {
        name
        for name in imported_by_the_product() - sys.stdlib_module_names
        if not set(map(canonical, providers.get(name, [name]))) & installed
    }
    assert not missing


def whole(requirements: Iterable[str]) -> set[str]:
    """The names of these distributions and of all that they require."""
    names: set[str] = set()
    waiting = list(requirements)
    while waiting:
        name = canonical(re.split(r"[^\w.-]", waiting.pop(), maxsplit=1)[0])
        if name in names:
            continue
        names.add(name)
        with suppress(importlib.metadata.PackageNotFoundError):
            required = importlib.metadata.requires(name) or []
            waiting += [one for one in required if "extra ==" not in one]
    return names


def imported_by_the_product() -> set[str]:
    """The packages that are named in import statements, without the product's own."""
    names: set[str] = set()
    for path in HERE.glob("*/tiller_*/**/*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                names.add(node.module or "")
    return {name.partition(".")[0] for name in names} - OWN_PACKAGES


def canonical(name: str) -> str:
    return name.lower().replace("_", "-")


def run_tests(project: Path) -> int:
    command = [sys.executable, "-B", "-m", "unittest"]
    return subprocess.run(command, cwd=project, capture_output=True, check=False).returncode
