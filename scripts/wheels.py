"""Checks that every dependency has a wheel for every platform and Python that tiller supports.

Reads PyPI's index. Prints what lacks a wheel, and exits with status 1 if this is not known and
accepted. Needs `packaging`: run it with the Python of .venv.
"""

import json
import re
import subprocess
import sys
import tomllib
import urllib.request
from collections.abc import Iterable, Iterator
from pathlib import Path

from packaging.tags import Tag, compatible_tags, cpython_tags, mac_platforms
from packaging.utils import parse_wheel_filename

INDEX = "https://pypi.org/simple"
JSON = "application/vnd.pypi.simple.v1+json"
PYTHONS = ((3, 11), (3, 12), (3, 13), (3, 14))

ACCEPTED = {
    ("html-to-markdown", "Linux x86_64 musl"),
    ("html-to-markdown", "Linux aarch64 musl"),
    ("tree-sitter", "Linux aarch64 musl"),
}
"""There, an installation builds from source: the first with Rust, the second with a C compiler."""

MACOS = (15, 0)
"""The oldest macOS for which html-to-markdown has wheels."""

GLIBC_MINOR_MAX = 28
"""Debian 10, RHEL 8 and newer."""

PLATFORMS = {
    "macOS arm64": list(mac_platforms(MACOS, "arm64")),
    **{
        f"Linux {machine} {library}": platforms
        for machine in ("x86_64", "aarch64")
        for library, platforms in (
            (
                "glibc",
                [f"manylinux_2_{minor}_{machine}" for minor in range(5, GLIBC_MINOR_MAX + 1)]
                + [f"{old}_{machine}" for old in ("manylinux1", "manylinux2010", "manylinux2014")],
            ),
            ("musl", [f"musllinux_1_{minor}_{machine}" for minor in range(3)]),
        )
    },
}


def main() -> int:
    """Check the plain installation, then the extras, which are only reported."""
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    plain = _resolved(project["dependencies"])
    status = 0
    for name, version in sorted(plain.items()):
        for platform, text in _lacking(name, version):
            is_known = (name, platform) in ACCEPTED
            status = status if is_known else 1
            print(f"{text} (known)" if is_known else text)
    for extra, wanted in project["optional-dependencies"].items():
        for name, version in sorted(_resolved(wanted).items() - plain.items()):
            for _platform, text in _lacking(name, version):
                print(f"extra {extra}: {text}")
    print(f"checked {len(plain)} packages of a plain installation, and the extras")
    return status


def _resolved(wanted: Iterable[str]) -> dict[str, str]:
    """The versions of packages and of all that they need; markers are left out."""
    names = [requirement.partition(";")[0] for requirement in wanted]
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed"]
    command += ["--quiet", "--report", "-", *names]
    done = subprocess.run(command, capture_output=True, check=True)
    installed = json.loads(done.stdout)["install"]
    return {one["metadata"]["name"]: one["metadata"]["version"] for one in installed}


def _lacking(name: str, version: str) -> Iterator[tuple[str, str]]:
    """Yield each platform without a wheel for some Python, and a line that says so."""
    files = [file for file in _files(name) if version in re.split(r"-|\.tar", file)]
    wheels = [parse_wheel_filename(file)[3] for file in files if file.endswith(".whl")]
    sdist = "sdist" if len(files) > len(wheels) else "no sdist"
    for platform, names in PLATFORMS.items():
        pythons = [
            f"{major}.{minor}"
            for major, minor in PYTHONS
            if not any(_tags((major, minor), names) & wheel for wheel in wheels)
        ]
        if pythons:
            where = f"{platform}, Python {' '.join(pythons)}"
            yield platform, f"{name} {version}: no wheel for {where}; {sdist}"


def _files(name: str) -> list[str]:
    url = f"{INDEX}/{re.sub(r'[-_.]+', '-', name).lower()}/"
    request = urllib.request.Request(url, headers={"Accept": JSON})
    with urllib.request.urlopen(request, timeout=60) as response:
        return [file["filename"] for file in json.load(response)["files"] if not file.get("yanked")]


def _tags(python: tuple[int, int], platforms: list[str]) -> set[Tag]:
    name = f"cp{python[0]}{python[1]}"
    return {
        *cpython_tags(python, platforms=platforms),
        *compatible_tags(python, name, platforms),
    }


if __name__ == "__main__":
    sys.exit(main())
