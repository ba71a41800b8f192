"""`apply_patch`: what it changes, what it leaves alone, and what it tells the model."""

import os
import stat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.each import each
from support.pictures import picture
from tiller_daemon.tools.base import ToolFailure
from tiller_daemon.tools.editing.patch_format import BadPatch, parse_patch

TWO = "*** Update File: a.py\n@@\n-one\n+1\n*** Update File: b.py\n@@\n-two\n+2\n"


def patch(body: str) -> str:
    return f"*** Begin Patch\n{body}*** End Patch\n"


async def put(bench, path: str, content: bytes | str):
    file = bench.put(path, content)
    await bench.call("read", path=path)
    return file


async def applied(bench, body: str):
    return await bench.call("apply_patch", patch=patch(body))


async def refused(bench, body: str) -> str:
    with pytest.raises(ToolFailure) as failure:
        await applied(bench, body)
    return str(failure.value)


def tree(bench) -> dict[str, bytes]:
    files = (path for path in bench.workspace.rglob("*") if path.is_file())
    return {str(path.relative_to(bench.workspace)): path.read_bytes() for path in files}


async def test_several_files_change_in_one_call(bench):
    await put(bench, "a.py", "zero\none\n")
    await put(bench, "old.py", "old\nkept\n")
    await put(bench, "gone.py", "x\n")
    result = await applied(
        bench,
        "*** Update File: a.py\n@@ zero\n-one\n+1\n"
        "*** Update File: old.py\n*** Move to: deep/new.py\n@@\n-old\n+new\n kept\n"
        "*** Add File: b/c.py\n+first\n+\n"
        "*** Delete File: gone.py\n",
    )
    assert tree(bench) == {
        "a.py": b"zero\n1\n",
        "deep/new.py": b"new\nkept\n",
        "b/c.py": b"first\n\n",
    }
    assert result.output == "Changed:\nM a.py\nM old.py -> deep/new.py\nA b/c.py\nD gone.py"
    assert "--- a/a.py\n+++ b/a.py\n@@ -1,2 +1,2 @@\n zero\n-one\n+1\n" in result.diff
    assert "--- a/gone.py\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n" in result.diff
    assert list(bench.journals.iterdir()) == []


async def test_a_patch_that_fails_in_its_last_file_changes_none(bench):
    await put(bench, "a.py", "one\n")
    await put(bench, "b.py", "three\n")
    refusal = await refused(bench, TWO)
    where = "Hunk 1 of b.py (line 7 of the patch) should change these lines:"
    assert f"{where}\n       \ttwo\n" in refusal
    assert refusal.endswith("No file was changed.")
    assert tree(bench) == {"a.py": b"one\n", "b.py": b"three\n"}


async def test_a_patch_of_a_file_that_was_not_read_or_has_changed_changes_none(bench):
    await put(bench, "a.py", "one\n")
    file = bench.put("b.py", "two\n")
    assert "b.py exists and has not been read yet" in await refused(bench, TWO)
    await bench.call("read", path="b.py")
    file.write_text("two\nby the user\n")
    assert "b.py has changed since it was last read" in await refused(bench, TWO)
    assert tree(bench) == {"a.py": b"one\n", "b.py": b"two\nby the user\n"}


@pytest.mark.parametrize(
    "body",
    [
        "*** Add File: b.py\n+mine\n",
        "*** Update File: a.py\n*** Move to: b.py\n@@\n-one\n+1\n",
        "*** Delete File: b.py\n",
    ],
)
async def test_no_part_of_a_patch_destroys_what_was_not_read(bench, body):
    await put(bench, "a.py", "one\n")
    bench.put("b.py", "two\n")
    assert "b.py exists and has not been read yet" in await refused(bench, body)
    assert tree(bench) == {"a.py": b"one\n", "b.py": b"two\n"}


async def test_what_a_patch_wrote_counts_as_seen_and_what_it_removed_does_not(bench):
    await put(bench, "a.py", "one\n")
    await applied(bench, "*** Update File: a.py\n*** Move to: b.py\n@@\n-one\n+two\n")
    await applied(bench, "*** Update File: b.py\n@@\n-two\n+three\n")
    bench.put("a.py", "somebody's\n")
    refusal = await refused(bench, "*** Delete File: a.py\n")
    assert "a.py exists and has not been read yet" in refusal
    assert tree(bench)["b.py"] == b"three\n"


async def test_parts_see_what_the_parts_before_them_did(bench):
    await put(bench, "a", "one\n")
    await applied(
        bench,
        "*** Update File: a\n@@\n-one\n+two\n*** Update File: a\n*** Move to: b\n@@\n-two\n+three\n"
        "*** Update File: b\n@@\n-three\n+four\n*** Add File: a\n+five\n",
    )
    assert tree(bench) == {"a": b"five\n", "b": b"four\n"}


@pytest.mark.parametrize("mode", [0o600, 0o755])
async def test_modes_are_kept_also_by_a_file_that_moves_twice(bench, mode):
    (await put(bench, "run.sh", "one\n")).chmod(mode)
    await applied(bench, "*** Update File: run.sh\n@@\n-one\n+two\n")
    assert stat.S_IMODE((bench.workspace / "run.sh").stat().st_mode) == mode
    await applied(
        bench,
        "*** Update File: run.sh\n*** Move to: b.sh\n*** Update File: b.sh\n*** Move to: c.sh\n",
    )
    assert stat.S_IMODE((bench.workspace / "c.sh").stat().st_mode) == mode


@pytest.mark.parametrize(
    ("before", "body", "after"),
    [
        (b"a\r\nb\r\nc\r\n", "@@\n a\n-b\n+x\n+y\n", b"a\r\nx\r\ny\r\nc\r\n"),
        (b"a\r\nb", "@@\n b\n+c\n", b"a\r\nb\r\nc"),
        (b"a\r\nb", "@@\n+c\n", b"a\r\nb\r\nc"),
        (b"a\nb", "@@\n-a\n+x\n", b"x\nb"),
        (b"a\nb", "@@\n-b\n", b"a"),
        (b"\xef\xbb\xbfa\nb\n", "@@\n-a\n+x\n", b"\xef\xbb\xbfx\nb\n"),
        (b"caf\xe9\nb\n\xff", "@@\n-b\n+x\n", b"caf\xe9\nx\n\xff"),
        (b"  a \nb\n", "@@\n a\n-b\n+x\n", b"  a \nx\n"),
        (b"a\n", "@@\n-a\n", b""),
        (b"", "@@\n+a\n", b"a\n"),
        (b"a\n\x0c\x85\n b\n", "@@\n-a\n+x\n", b"x\n\x0c\x85\n b\n"),
    ],
)
async def test_what_no_hunk_changes_stays_to_the_byte(bench, before, body, after):
    file = await put(bench, "f", before)
    await applied(bench, f"*** Update File: f\n{body}")
    assert file.read_bytes() == after


async def test_nested_contexts_narrow_where_a_hunk_is_looked_for(bench):
    text = "class A:\n  def f():\n    x\nclass B:\n  def f():\n    x\n"
    await put(bench, "f", text)
    await applied(bench, "*** Update File: f\n@@ class B:\n@@   def f():\n-    x\n+    y\n")
    assert tree(bench)["f"].decode() == f"{text[:-6]}    y\n"


async def test_a_hunk_that_is_not_there_is_shown_with_what_is(bench):
    await put(bench, "f", "import os\n\ndef connect(host):\n    return host\n")
    refusal = await refused(bench, "*** Update File: f\n@@\n-def connect(hots):\n+x\n")
    assert "The most similar ones are:\n     3\tdef connect(host):" in refusal
    refusal = await refused(bench, "*** Update File: f\n@@ class Elsewhere\n-import os\n")
    where = "Hunk 1 of f (line 3 of the patch) should come after this line:"
    assert f"{where}\n       \tclass Else" in refusal


async def test_hunks_in_the_wrong_order_are_told_so(bench):
    await put(bench, "f", "a\nb\nc\n")
    refusal = await refused(bench, "*** Update File: f\n@@\n-c\n+C\n@@\n-a\n+A\n")
    assert "Hunk 2 of f (line 6 of the patch)" in refusal
    assert "only before line 4, where this search began. Put hunks in" in refusal


async def test_nothing_but_text_is_patched(bench):
    bench.put("f", picture())
    await bench.call("read", path="f")
    os.mkfifo(bench.workspace / "fifo")
    assert "It is binary" in await refused(bench, "*** Update File: f\n@@\n-a\n+b\n")
    assert "is a FIFO" in await refused(bench, "*** Delete File: fifo\n")
    assert "does not exist" in await refused(bench, "*** Delete File: g\n")
    assert "is a directory" in await refused(bench, "*** Add File: .\n+a\n")


@each(
    ("text", "refusal"),
    [
        ("", "first line of a patch is `*** Begin Patch`, not ``"),
        ("*** Begin Patch\n*** Delete File: x", "last line of a patch is `*** End Patch`"),
        (patch(""), "changes no file"),
        (patch("*** Frob File: x\n"), "Line 2 of the patch is `*** Frob File: x`; it should"),
        (patch("*** Add File: x\n+a\nb\n"), "Line 4 of the patch is `b`; it should begin with"),
        (patch("*** Update File: x\n"), "Line 2 of the patch names x, but no change to it"),
        (patch("*** Update File: x\n@@\n"), "Line 4 of the patch should be the first of a hunk"),
        (patch("*** Update File: x\n@@\n-a\nfoo\n"), "Line 5 of the patch is `foo`; a line of a"),
        ("\n\n" + patch("*** Update File: x\n@@\n*a\n"), "Line 6 of the patch should be the first"),
    ],
)
def test_what_is_wrong_with_a_patch_is_said_with_its_line(text, refusal):
    with pytest.raises(BadPatch) as bad:
        parse_patch(text)
    assert refusal in str(bad.value)


PIECES = st.sampled_from(
    ["*** Begin Patch", "*** End Patch", "*** Add File: a", "*** Update File: a", "*** Move to: b",
     "*** Delete File: a", "*** End of File", "@@", "@@ x", "+x", "-x", " x", "", "x", "\ud800"]
)  # fmt: skip


@given(st.lists(PIECES, max_size=12).map("\n".join) | st.text())
def test_any_text_is_a_patch_or_is_refused_with_a_sentence(text):
    for patch_text in (text, patch(f"{text}\n")):
        refusal = ""
        try:
            assert parse_patch(patch_text)
        except ToolFailure as bad:
            refusal = str(bad)
        assert refusal == "" or refusal.endswith(".")


def test_one_approval_shows_all_files_and_the_way_out(bench, tmp_path):
    bench.put("a.py", "one\n")
    write, leave = bench.requirements(
        "apply_patch",
        patch=patch("*** Update File: a.py\n@@\n-one\n+1\n*** Add File: ../x/y\n+z\n"),
    )
    assert (write.permission, write.kind) == ("write", "path")
    assert write.subjects == ("a.py", str(tmp_path / "x/y"))
    assert "-one\n+1\n" in write.detail
    assert "+++ b/" in write.detail
    assert (leave.permission, leave.subjects) == ("external_directory", (str(tmp_path / "x"),))


def test_an_approval_of_a_patch_that_does_not_apply_yet_shows_the_patch(bench):
    text = patch("*** Update File: later.py\n@@\n-one\n+1\n")
    (need,) = bench.requirements("apply_patch", patch=text)
    assert need.detail == text


async def test_a_disk_that_fails_at_any_step_leaves_all_files(bench, monkeypatch):
    await put(bench, "a.py", "one\n")
    await put(bench, "b.py", "two\n")
    before = tree(bench)
    body = f"{TWO}*** Add File: new/c.py\n+c\n"
    failures = 0
    for step in ("write", "fsync", "link", "rename", "mkdir"):
        real = getattr(os, step)
        for number in range(1, 20):
            calls = 0

            def fail(*given, real=real, number=number, **named):
                nonlocal calls
                calls += 1
                if calls == number:
                    raise OSError(28, "No space left on device")
                return real(*given, **named)

            with monkeypatch.context() as patched:
                patched.setattr(os, step, fail)
                refusal = ""
                try:
                    await applied(bench, body)
                except ToolFailure as failure:
                    refusal = str(failure)
            if not refusal:
                break
            failures += 1
            assert "o file was changed" in refusal
            assert tree(bench) == before
            assert not (bench.workspace / "new").exists()
        # A link that fails is replaced by a copy, and the patch goes through.
        for name, content in before.items():
            bench.put(name, content)
            await bench.call("read", path=name)
        (bench.workspace / "new/c.py").unlink()
        (bench.workspace / "new").rmdir()
        bench.files.fingerprints.pop(bench.workspace / "new/c.py")
    assert failures >= 15
