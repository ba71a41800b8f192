"""Installs and compiles this repository's TypeScript packages in other directories, for tests."""

import shutil
import subprocess
from pathlib import Path

import pytest

INSTALL_S = 90.0
"""Longest time to fetch a few packages; it takes some seconds."""

NODE_MAJOR = 18


def install(package: Path, directory: Path, *options: str) -> None:
    """Copy a package and install its locked dependencies; skip the test if that fails."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if not node or not npm:
        pytest.skip("node and npm are not installed")
    version = subprocess.run([node, "--version"], capture_output=True, check=True, text=True).stdout
    if int(version.strip("v").split(".")[0]) < NODE_MAJOR:
        pytest.skip(f"node {version.strip()} is older than {NODE_MAJOR}")
    ignored = shutil.ignore_patterns("node_modules", "dist")
    shutil.copytree(package, directory, ignore=ignored, dirs_exist_ok=True)
    command = [
        npm,
        "ci",
        "--ignore-scripts",
        "--no-audit",
        "--no-fund",
        "--fetch-retries=1",
        *options,
    ]
    try:
        subprocess.run(command, cwd=directory, check=True, capture_output=True, timeout=INSTALL_S)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        pytest.skip(f"the packages of {package.name} can't be installed: {error}")


def compile_ts(directory: Path, *arguments: str | Path) -> None:
    """Compile an installed package; fail with the compiler's output."""
    compiler = directory / "node_modules" / ".bin" / "tsc"
    done = subprocess.run(
        [compiler, *arguments], cwd=directory, capture_output=True, check=False, text=True
    )
    assert done.returncode == 0, done.stdout
