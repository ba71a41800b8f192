"""No file tool leads out of the workspace unasked: not by its path, not by a race (B58)."""

import itertools
import subprocess
import sys
from pathlib import Path

import pytest

from tiller_daemon.tools.base import ToolFailure

SWAPS_MIN = 10_000
ROUNDS_MIN = 1_000

TOOLS = 4

SEARCHES_MIN = 60
"""Of each search; two of them are of `grep`."""

SEARCHED = 40
"""Directories below the one that is swapped, so that a search takes a while."""

SECRET = "the secret"


@pytest.fixture
def outside(bench, tmp_path) -> Path:
    """What is beside the workspace, and ways that lead there."""
    outside = tmp_path / "outside"
    (outside / "deep").mkdir(parents=True)
    for name in ("f", "deep/f"):
        (outside / name).write_text(SECRET)
    bench.put("f", "mine")
    bench.put("deep/f", "mine")
    here = bench.workspace
    (here / "link").symlink_to(outside)
    (here / "relative").symlink_to("../outside")
    (here / "file").symlink_to(outside / "f")
    (here / "dangling").symlink_to(outside / "new")
    (here / "chain").symlink_to("link")
    (here / "deep/up").symlink_to("../../outside")
    (here / "root").symlink_to("/")
    (here / "parent").symlink_to("..")
    return outside


def snapshot(directory: Path) -> dict[str, tuple[str, int]]:
    return {
        str(path.relative_to(directory)): (
            path.read_text() if path.is_file() else "", path.stat().st_mtime_ns
        )
        for path in directory.rglob("*")
    }  # fmt: skip


def escapes(outside: Path) -> list[str]:
    """Spellings of paths that lead out: 9 ways, 5 places to go to, 8 spellings of each."""
    absolute = str(outside)
    ways = [
        "../outside", absolute, "link", "relative", "chain", "deep/up", f"root{absolute}",
        "parent/outside", "deep/../link",
    ]  # fmt: skip
    places = ["f", "deep/f", "new", "deep/new", "new/new"]
    plain = [f"{way}/{place}" for way, place in itertools.product(ways, places)] + [
        "file", "dangling", "../f", "..//../f",
    ]  # fmt: skip
    return [
        spelling
        for path in plain
        for spelling in (
            path,
            path if path.startswith("/") else f"./{path}",
            path if path.startswith("/") else f"deep/../{path}",
            path if path.startswith("/") else f"missing/../{path}",
            path.replace("/", "//"),
            path.replace("/", "/./"),
            f"{path}/.",
            path if path.startswith("/") else f"deep/.././/{path}",
        )
    ]


def arguments_of(name: str, path: str) -> dict[str, str]:
    text = f"*** Update File: {path}\n@@\n-{SECRET}\n+stolen\n"
    return {
        "read": {"path": path},
        "write": {"path": path, "content": "stolen"},
        "edit": {"path": path, "old": SECRET, "new": "stolen"},
        "apply_patch": {"patch": f"*** Begin Patch\n{text}*** End Patch\n"},
    }[name]


@pytest.mark.parametrize("name", ["read", "write", "edit", "apply_patch"])
@pytest.mark.promise("B58")
def test_each_way_out_asks_to_leave_the_workspace(bench, outside, name):
    paths = escapes(outside)
    assert len(set(paths)) >= 300
    for path in paths:
        requirements = bench.requirements(name, **arguments_of(name, path))
        assert [need.permission for need in requirements][-1] == "external_directory", path
        assert all(s.startswith("/") for need in requirements for s in need.subjects), path


@pytest.mark.parametrize("name", ["read", "write", "edit", "apply_patch"])
@pytest.mark.promise("B58")
async def test_what_leads_out_only_after_it_was_judged_is_left_alone(bench, outside, name):
    before = snapshot(outside)
    requirements = bench.requirements(name, **arguments_of(name, "deep/f"))
    assert [need.permission for need in requirements] == ["read" if name == "read" else "write"]
    (bench.workspace / "deep").rename(bench.workspace / "away")
    (bench.workspace / "deep").symlink_to(outside)
    with pytest.raises(ToolFailure, match="no longer leads where it did when this call was"):
        await bench.call_as_judged(name, requirements, **arguments_of(name, "deep/f"))
    assert snapshot(outside) == before


@pytest.mark.skipif(sys.platform != "linux", reason="names are exchanged by a call of Linux")
@pytest.mark.nightly
@pytest.mark.promise("B58")
async def test_ten_thousand_swaps_of_a_directory_and_a_link_lead_nobody_out(bench, outside):
    """Not one byte outside is read or written, and the tools do work in between."""
    bench.put("d/f", "mine\n")
    (bench.workspace / "d-link").symlink_to(outside)
    before = snapshot(outside)
    script = Path(__file__).with_name("swap_for_ever.py")
    command = [sys.executable, script, bench.workspace / "d", bench.workspace / "d-link"]
    done: dict[str, int] = {}
    told: list[str] = []
    with subprocess.Popen(  # noqa: ASYNC220
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as swapping:
        assert swapping.stdout
        assert swapping.stdout.readline() == "ready\n"
        for number in itertools.count():
            if number >= ROUNDS_MIN and len(done) == TOOLS:
                break
            patch = f"*** Add File: d/p{number}\n+x\n*** Add File: d/q{number}\n+x\n"
            for name, arguments in (
                ("read", {"path": "d/f"}),
                ("write", {"path": f"d/w{number}", "content": "x"}),
                ("edit", {"path": "d/f", "old": "mine", "new": f"mine{number}"}),
                ("edit", {"path": "d/f", "old": f"mine{number}", "new": "mine"}),
                ("apply_patch", {"patch": f"*** Begin Patch\n{patch}*** End Patch\n"}),
            ):
                try:
                    requirements = bench.requirements(name, **arguments)
                    if "external_directory" not in {need.permission for need in requirements}:
                        result = await bench.call_as_judged(name, requirements, **arguments)
                        told += [result.output, result.diff]
                        done[name] = done.get(name, 0) + 1
                except ToolFailure as failure:
                    told.append(str(failure))
        said, _ = swapping.communicate("stop\n", timeout=30)
    assert int(said) >= SWAPS_MIN
    assert [text for text in told if SECRET in text] == []
    assert snapshot(outside) == before
    assert list(bench.workspace.rglob(".tiller-*")) + list(bench.journals.iterdir()) == []


@pytest.mark.skipif(sys.platform != "linux", reason="names are exchanged by a call of Linux")
@pytest.mark.promise("B58")
@pytest.mark.nightly
async def test_searches_beside_swaps_of_a_directory_and_a_link_show_nothing_outside(bench, outside):
    """Not a line and not a name of what is outside; what is inside is found in between."""
    for number in range(SEARCHED):
        bench.put(f"a/d/{number}/f", "mine line\n")
        bench.put(f"a/d/{number}/mine", "mine line\n")
        (outside / f"{number}").mkdir()
        (outside / f"{number}/f").write_text(f"{SECRET} line\n")
        (outside / f"{number}/{SECRET}").write_text(f"{SECRET} line\n")
    (bench.workspace / "a/d-link").symlink_to(outside)
    script = Path(__file__).with_name("swap_for_ever.py")
    command = [sys.executable, script, bench.workspace / "a/d", bench.workspace / "a/d-link"]
    told: list[str] = []
    with subprocess.Popen(  # noqa: ASYNC220
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as swapping:
        assert swapping.stdout
        assert swapping.stdout.readline() == "ready\n"
        for _ in range(SEARCHES_MIN):
            for name, arguments in (
                ("grep", {"pattern": " line", "path": "a"}),
                ("grep", {"pattern": f"{SECRET}|mine", "path": "a/d"}),
                ("glob", {"pattern": "*", "path": "a"}),
                ("ls", {"path": "a/d/1"}),
            ):
                try:
                    requirements = bench.requirements(name, **arguments)
                    if "external_directory" not in {need.permission for need in requirements}:
                        told.append(
                            (await bench.call_as_judged(name, requirements, **arguments)).output
                        )
                except ToolFailure as failure:
                    told.append(str(failure))
        said, _ = swapping.communicate("stop\n", timeout=30)
    assert int(said) >= SWAPS_MIN
    assert [text for text in told if SECRET in text] == []
    found = [text for text in told if "mine line" in text]
    assert found


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("read", {"path": "~/zz"}),
        ("write", {"path": "~/zz", "content": "x"}),
        ("edit", {"path": "~/zz", "old": "a", "new": "b"}),
        ("apply_patch", {"patch": "*** Begin Patch\n*** Add File: ~/zz\n+x\n*** End Patch"}),
        ("ls", {"path": "~/zz"}),
        ("glob", {"pattern": "*", "path": "~/zz"}),
        ("grep", {"pattern": "x", "path": "~/zz"}),
    ],
)
async def test_the_home_directory_is_not_a_directory_of_the_workspace(bench, name, arguments):
    with pytest.raises(ToolFailure, match=r"begins with `~`.* Give the absolute path"):
        await bench.call(name, **arguments)
    assert not any(bench.workspace.iterdir())


async def test_a_name_that_begins_with_a_tilde_can_be_written_with_its_directory(bench):
    await bench.call("write", path="./~lock", content="x")
    assert (bench.workspace / "~lock").read_text() == "x"
