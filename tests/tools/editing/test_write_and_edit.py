"""The tools that change a file: only what the model has seen, in one step, or not at all."""

import errno
import os
import stat

import pytest

from tiller_daemon.files import whole_files as disk
from tiller_daemon.tools.base import ToolFailure


async def test_a_new_file_is_written_with_its_directories(bench):
    result = await bench.call("write", path="src/deep/a.py", content="é\n")
    assert (bench.workspace / "src/deep/a.py").read_bytes() == "é\n".encode()
    assert result.output == "Created src/deep/a.py: 3 bytes."
    assert result.diff.endswith("@@ -0,0 +1 @@\n+é\n")


async def test_a_file_that_was_never_read_is_not_overwritten(bench):
    bench.put("a.txt", "mine\n")
    for name, rest in {"write": {"content": "x"}, "edit": {"old": "mine", "new": "x"}}.items():
        with pytest.raises(ToolFailure, match=r"a\.txt exists and has not been read yet"):
            await bench.call(name, path="a.txt", **rest)
    assert (bench.workspace / "a.txt").read_text() == "mine\n"


async def test_a_file_that_changed_since_it_was_read_is_left_as_it_is(bench):
    file = bench.put("a.txt", "one\n")
    await bench.call("read", path="a.txt")
    file.write_text("one, by the user\n")
    for name, rest in {"write": {"content": "x"}, "edit": {"old": "one", "new": "x"}}.items():
        with pytest.raises(ToolFailure, match="has changed since it was last read"):
            await bench.call(name, path="a.txt", **rest)
    assert file.read_text() == "one, by the user\n"


async def test_what_the_model_wrote_counts_as_seen(bench):
    await bench.call("write", path="a.txt", content="one\n")
    await bench.call("edit", path="a.txt", old="one", new="two")
    await bench.call("write", path="a.txt", content="three\n")
    assert (bench.workspace / "a.txt").read_text() == "three\n"


async def test_reading_through_a_link_allows_to_change_its_target_and_the_link_stays(bench):
    bench.put("real.txt", "one\n")
    (bench.workspace / "link.txt").symlink_to("real.txt")
    await bench.call("read", path="link.txt")
    await bench.call("edit", path="link.txt", old="one", new="two")
    assert (bench.workspace / "link.txt").is_symlink()
    assert (bench.workspace / "real.txt").read_text() == "two\n"


@pytest.mark.parametrize("mode", [0o600, 0o755, 0o664])
async def test_the_mode_of_a_file_is_kept(bench, mode):
    file = bench.put("run.sh", "one\n")
    file.chmod(mode)
    await bench.call("read", path="run.sh")
    await bench.call("edit", path="run.sh", old="one", new="two")
    assert stat.S_IMODE(file.stat().st_mode) == mode
    await bench.call("write", path="run.sh", content="three\n")
    assert stat.S_IMODE(file.stat().st_mode) == mode


async def test_a_new_file_gets_what_the_umask_leaves(bench):
    before = os.umask(0o027)
    try:
        await bench.call("write", path="a.txt", content="x")
    finally:
        os.umask(before)
    assert stat.S_IMODE((bench.workspace / "a.txt").stat().st_mode) == 0o640


@pytest.mark.parametrize("step", ["write", "fsync", "fchmod"])
@pytest.mark.promise("B51")
async def test_a_disk_that_fails_in_the_middle_leaves_the_old_file(bench, monkeypatch, step):
    file = bench.put("a.txt", "one\n")
    await bench.call("read", path="a.txt")

    def fail(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(disk.os, step, fail)
    with pytest.raises(ToolFailure, match="No space left on device"):
        await bench.call("write", path="a.txt", content="two\n")
    monkeypatch.undo()
    assert file.read_text() == "one\n"
    assert list(bench.workspace.iterdir()) == [file]
    await bench.call("edit", path="a.txt", old="one", new="two")


async def test_a_file_that_may_not_be_written_is_not_replaced(bench, monkeypatch):
    file = bench.put("a.txt", "one\n")
    await bench.call("read", path="a.txt")
    # Root may write anything, so the system's answer is what is put in here.
    monkeypatch.setattr(disk.os, "access", lambda *_, **__: False)
    with pytest.raises(ToolFailure, match=r"a\.txt is read-only"):
        await bench.call("write", path="a.txt", content="two\n")
    assert file.read_text() == "one\n"


@pytest.mark.promise("B58")
async def test_nothing_but_a_file_is_replaced(bench):
    os.mkfifo(bench.workspace / "fifo")
    (bench.workspace / "src").mkdir()
    bench.put("a.txt", "")
    for path, said in {
        "fifo": "is a FIFO",
        "src": "is a directory",
        "a.txt/b": "a part of its path is a file",
        ".": "is a directory",
    }.items():
        with pytest.raises(ToolFailure, match=said):
            await bench.call("write", path=path, content="x")
    with pytest.raises(ToolFailure, match="does not exist"):
        await bench.call("edit", path="b.txt", old="a", new="b")


async def test_an_edit_says_where_and_shows_what(bench):
    bench.put("a.py", "one\ntwo\nthree\n")
    await bench.call("read", path="a.py")
    result = await bench.call("edit", path="a.py", old="two", new="2")
    assert result.output == "Edited a.py at line 2."
    assert result.diff == "--- a/a.py\n+++ b/a.py\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n"


async def test_an_edit_of_what_is_not_there_shows_what_is(bench):
    bench.put("a.py", "def connect(host):\n    pass\n")
    await bench.call("read", path="a.py")
    with pytest.raises(
        ToolFailure, match=r"(?s)most similar lines are:\n     1\tdef connect\(host\):"
    ):
        await bench.call("edit", path="a.py", old="def connect(hots):", new="x")


async def test_an_edit_that_is_right_but_for_white_space_is_made_and_shown(bench):
    bench.put("a.py", "def f():\n\tif x:\n\t\treturn 1\n")
    await bench.call("read", path="a.py")
    old, new = "    if x:\n        return 1\n", "    if x:\n        return 2\n    return 3\n"
    (need,) = bench.requirements("edit", path="a.py", old=old, new=new)
    assert "-\t\treturn 1\n+\t\treturn 2\n+\treturn 3\n" in need.detail
    result = await bench.call("edit", path="a.py", old=old, new=new)
    assert (bench.workspace / "a.py").read_text() == "def f():\n\tif x:\n\t\treturn 2\n\treturn 3\n"
    assert result.output.startswith(
        "Edited a.py at line 2, where the text differed from `old` in white space."
    )
    assert result.output.endswith("     2\t\tif x:\n     3\t\t\treturn 2\n     4\t\treturn 3")


async def test_all_places_are_replaced_when_asked(bench):
    bench.put("a.py", "x = 1\ny = x\n")
    await bench.call("read", path="a.py")
    result = await bench.call("edit", path="a.py", old="x", new="z", all=True)
    assert (bench.workspace / "a.py").read_text() == "z = 1\ny = z\n"
    assert result.output == "Edited a.py at 2 places, lines 1, 2."


def test_an_approval_shows_the_change(bench):
    bench.put("a.py", "one\ntwo\n")
    (edit,) = bench.requirements("edit", path="a.py", old="two", new="2")
    assert "-two\n+2\n" in edit.detail
    (write,) = bench.requirements("write", path="a.py", content="one\n")
    assert (write.permission, write.subjects) == ("write", ("a.py",))
    assert "-two\n" in write.detail
    (new,) = bench.requirements("write", path="b.py", content="one\n")
    assert new.detail.startswith("--- /dev/null\n+++ b/b.py\n")


def test_an_approval_of_an_edit_of_a_file_that_is_not_there_yet_shows_both_texts(bench):
    (need,) = bench.requirements("edit", path="later.py", old="two", new="2")
    assert "-two" in need.detail
    assert "+2" in need.detail


def test_an_approval_of_a_change_outside_asks_for_the_outside_too(bench, tmp_path):
    write, leave = bench.requirements("write", path="../other/a.txt", content="x")
    assert write.subjects == (str(tmp_path / "other/a.txt"),)
    assert leave.subjects == (str(tmp_path / "other"),)


def test_a_star_in_a_directory_is_no_pattern(bench, tmp_path):
    _, leave = bench.requirements("read", path="../a*b/c.txt")
    assert leave.always == (f"{tmp_path}/a\\*b", f"{tmp_path}/a\\*b/*")


URL = "https://me:hunter2@host/"
SEEN = "https://me:[secret]@host/"


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("write", {"path": "a.txt", "content": f"{SEEN}\nb\n"}),
        ("write", {"path": "new.txt", "content": SEEN}),
        ("write", {"path": "a.txt", "content": "https://[secret]@host"}),
        ("edit", {"path": "a.txt", "old": "a\n", "new": f"{SEEN}\n"}),
        ("edit", {"path": "a.txt", "old": URL, "new": SEEN}),
        ("apply_patch", {"patch": f"*** Update File: a.txt\n@@\n-{URL}\n+{SEEN}\n"}),
        ("apply_patch", {"patch": f"*** Add File: b.txt\n+{SEEN}\n"}),
        ("apply_patch", {"patch": f"*** Delete File: a.txt\n*** Add File: b.txt\n+{SEEN}\n"}),
    ],
)
async def test_a_placeholder_never_replaces_a_password(bench, name, arguments):
    file = bench.put("a.txt", f"{URL}\na\n")
    await bench.call("read", path="a.txt")
    if "patch" in arguments:
        arguments = {"patch": f"*** Begin Patch\n{arguments['patch']}*** End Patch\n"}
    why = r"In a URL, \[secret\] stands for a password"
    with pytest.raises(ToolFailure, match=why):
        bench.check(name, **arguments)
    with pytest.raises(ToolFailure, match=why):
        await bench.call(name, **arguments)
    assert [path.name for path in bench.workspace.iterdir()] == ["a.txt"]
    assert file.read_text() == f"{URL}\na\n"


async def test_a_placeholder_that_is_there_can_stay_and_move(bench):
    file = bench.put("a.txt", f"{SEEN}\na\n")
    await bench.call("read", path="a.txt")
    await bench.call("write", path="a.txt", content=f"{SEEN}\nb\n")
    assert file.read_text() == f"{SEEN}\nb\n"
    moved = (
        "*** Begin Patch\n*** Update File: a.txt\n*** Move to: b.txt\n@@\n-b\n+c\n*** End Patch\n"
    )
    await bench.call("apply_patch", patch=moved)
    assert (bench.workspace / "b.txt").read_text() == f"{SEEN}\nc\n"
