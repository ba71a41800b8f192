"""What gets installed and published: the programs, and the files beside them."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tiller_protocol import VERSION

ROOT = Path(__file__).parents[1]
TILLER, TILLERD = (Path(sys.executable).with_name(name) for name in ("tiller", "tillerd"))


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["schema"], 0, '"$schema"'),
        (["acp", "--help"], 0, "usage: tiller acp"),
        (["exce", "hello"], 2, "did you mean: tiller exec?"),
        (["--version"], 0, "tillerd "),
        (["--check-config"], 0, "The configuration is valid"),
    ],
)
def test_tillerd_with_a_verb_is_tiller(
    tmp_path: Path, words: list[str], status: int, said: str
) -> None:
    """`uvx tillerd VERB` can run only the program that is named like the package."""
    environment = {"TILLER_HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [TILLERD, *words],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == status, done.stderr
    assert said in done.stdout + done.stderr


@pytest.mark.parametrize("words", [["fleet", "ls"], ["gateway"], ["--host", "fleet:box", "ls"]])
def test_without_the_extra_the_fleet_says_what_to_install(tmp_path: Path, words: list[str]) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.modules['nats'] = None")
    done = subprocess.run(
        [TILLER, *words],
        env={"TILLER_HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "PYTHONPATH": str(tmp_path)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (1, 2)
    assert "uv tool install 'tillerd[fleet]'" in done.stderr


def test_the_plugin_for_neovim_is_where_its_lines_say() -> None:
    done = subprocess.run([TILLER, "editors", "nvim"], capture_output=True, text=True, check=True)
    [lazy, plain] = re.findall(r'"(.+)"', done.stdout)
    assert lazy == plain
    assert Path(plain, "plugin/tiller.lua").exists()


def test_workflows_use_actions_at_fixed_commits() -> None:
    """A tag can be moved to other code."""
    used = [
        use
        for file in (ROOT / ".github/workflows").iterdir()
        for use in re.findall(r"uses: *(.+)", file.read_text(encoding="utf-8"))
    ]
    assert len(used) > 5
    for use in used:
        assert re.fullmatch(r"[\w/-]+@[0-9a-f]{40} # v[\d.]+", use)


def test_the_extension_for_vs_code_has_the_version_of_tiller() -> None:
    for name in ("package.json", "package-lock.json"):
        file = ROOT / "client/editors/vscode" / name
        assert json.loads(file.read_text(encoding="utf-8"))["version"] == VERSION


def test_the_locked_versions_fit_and_name_no_index() -> None:
    lock = (ROOT / "scripts/packaging/requirements-dev.txt").read_text(encoding="utf-8")
    assert not re.findall(r"://|@ ", lock)
    locked = dict(re.findall(r"^([a-z0-9-]+)==([^ ;]+)", lock, re.MULTILINE))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    for line in (*project["project"]["dependencies"], *project["dependency-groups"]["dev"]):
        wanted = Requirement(line)
        assert wanted.specifier.contains(locked[wanted.name.replace(".", "-").lower()]), line


def test_the_image_of_a_fleet_host_copies_what_the_build_needs() -> None:
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    wheel = build["targets"]["wheel"]
    needed = {*wheel["packages"], wheel["hooks"]["custom"]["path"], "pyproject.toml", "README.md"}
    lines = (ROOT / "docs/fleet/Containerfile").read_text().splitlines()
    copied = {Path(word) for line in lines if line.startswith("COPY ") for word in line.split()[1:]}
    for path in map(Path, needed):
        assert {path, *path.parents[:-1]} & copied, path
