"""A file system without room, a real one: each tool says so and leaves all files as they were."""

import subprocess
from collections.abc import Generator
from pathlib import Path

import pytest

from tiller_daemon.tools.base import ToolFailure

ROOM = "size=400k"
LINE = f"{'x' * 99}\n"
FILE = LINE * 1500
"""Two files of it fit, a third one does not."""


@pytest.fixture
def disk(tmp_path: Path) -> Generator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", ROOM, "none", place], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"a small file system can't be mounted here: {mounted.stderr.decode()}")
    yield place
    subprocess.run(["umount", "--lazy", place], check=True)


@pytest.mark.promise("B51")
async def test_without_room_no_file_is_changed_and_with_room_all_goes_on(disk, bench_in):
    bench = bench_in(disk)
    for name in "ab":
        bench.put(name, FILE)
        await bench.call("read", path=name, limit=1)
    new = f"+{LINE}" * 700
    update = f"*** Update File: a\n@@\n-{LINE}+y\n*** Update File: b\n@@\n-{LINE}+y\n"
    patch = f"*** Begin Patch\n{update}*** Add File: d/c\n{new}*** End Patch\n"
    for name, arguments in {
        "write": {"path": "a", "content": FILE * 2},
        "edit": {"path": "a", "old": LINE, "new": f"y{LINE}", "all": True},
        "apply_patch": {"patch": patch},
    }.items():
        with pytest.raises(ToolFailure, match=r"No space left on device\. No file was changed\.$"):
            await bench.call(name, **arguments)
        left = {path.name: path.read_text() for path in bench.workspace.rglob("*")}
        assert left == {"a": FILE, "b": FILE}
        assert list(bench.journals.iterdir()) == []
    await bench.call("write", path="a", content=LINE)
    assert "Changed" in (await bench.call("apply_patch", patch=patch)).output
