"""The tool `read`, on every kind of thing that a path can lead to (B58)."""

import io
import os
import socket
import threading

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from support.pdfs import locked, pdf
from support.pictures import picture
from tiller_daemon.files.whole_files import EDITABLE_BYTES_MAX, SMALL_BYTES, fingerprint
from tiller_daemon.tools import read as room
from tiller_daemon.tools.base import ToolFailure
from tiller_daemon.tools.truncation import BYTES_MAX, LINES_MAX


async def test_lines_come_with_their_numbers(bench):
    bench.put("a.txt", "one\ntwo\n")
    result = await bench.call("read", path="a.txt")
    assert result.output == "     1\tone\n     2\ttwo\n(End of file, 2 lines.)"


async def test_a_part_says_where_to_read_on(bench):
    bench.put("a.txt", "".join(f"line {i}\n" for i in range(1, 11)))
    result = await bench.call("read", path="a.txt", offset=3, limit=2)
    assert result.output == (
        "     3\tline 3\n     4\tline 4\n(The file goes on. Read on with offset=5.)"
    )


async def test_reading_on_from_page_to_page_gives_every_line_once(bench):
    bench.put("a.txt", "".join(f"{i} {'x' * 90}\n" for i in range(3000)))
    offset, fingerprints = 1, []
    while offset:
        output = (await bench.call("read", path="a.txt", offset=offset)).output
        *lines, note = output.split("\n")
        fingerprints += [line.split("\t")[1].split()[0] for line in lines]
        assert len(output.encode()) <= BYTES_MAX
        offset = int(note.partition("offset=")[2].rstrip(".)") or 0)
    assert fingerprints == [str(i) for i in range(3000)]


async def test_no_more_lines_are_shown_than_a_result_may_have(bench):
    bench.put("a.txt", "x\n" * 3000)
    output = (await bench.call("read", path="a.txt", limit=5000)).output
    assert output.count("\tx\n") == LINES_MAX
    assert output.endswith(f"Read on with offset={LINES_MAX + 1}.)")


async def test_an_interrupt_does_not_wait_for_a_disk_that_hangs(bench, monkeypatch):
    bench.put("a.txt", "x" * (SMALL_BYTES + 1))
    reading, goes_on = trio.Event(), threading.Event()

    def hang(*_):
        trio.from_thread.run_sync(reading.set)
        goes_on.wait()
        return "", ""

    monkeypatch.setattr(room, "_show", hang)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: bench.call("read", path="a.txt"))
        await reading.wait()
        nursery.cancel_scope.cancel()
    goes_on.set()


async def test_an_offset_beyond_the_end_names_the_end(bench):
    bench.put("a.txt", "one\n")
    with pytest.raises(ToolFailure, match="has 1 line; offset 5 is beyond its end"):
        await bench.call("read", path="a.txt", offset=5)


async def test_an_empty_file_is_said_to_be_empty(bench):
    bench.put("a.txt", "")
    assert (await bench.call("read", path="a.txt")).output == "(The file is empty.)"


async def test_a_missing_file_brings_names_like_it(bench):
    bench.put("src/connection.py", "")
    with pytest.raises(ToolFailure, match=r"Did you mean `src/connection\.py`\?"):
        await bench.call("read", path="src/conection.py")


async def test_a_missing_file_in_a_missing_directory_is_said_to_be_missing(bench):
    with pytest.raises(ToolFailure, match=r"no/such/file does not exist\."):
        await bench.call("read", path="no/such/file")


async def test_a_directory_brings_a_hint(bench):
    (bench.workspace / "src").mkdir()
    with pytest.raises(ToolFailure, match="src is a directory, not a file; use `ls`"):
        await bench.call("read", path="src")


async def test_a_file_in_place_of_a_directory_is_said(bench):
    bench.put("a.txt", "one\n")
    with pytest.raises(ToolFailure, match="a part of its path is a file"):
        await bench.call("read", path="a.txt/b.txt")


@pytest.mark.promise("B58")
async def test_a_fifo_a_device_a_socket_and_a_loop_are_refused_without_a_hang(bench):
    os.mkfifo(bench.workspace / "fifo")
    (bench.workspace / "loop").symlink_to("loop")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(bench.workspace / "socket"))
    for path, kind in {
        "fifo": "a FIFO",
        "/dev/zero": "a character device",
        "socket": "a socket",
        "loop": "a link that leads nowhere",
    }.items():
        with pytest.raises(ToolFailure, match=f"{path} is {kind}"):
            await bench.call("read", path=path)


@pytest.mark.promise("B58")
async def test_a_path_that_is_no_path_is_refused(bench):
    for path in ("", "a\0b", "a" * 5000, "\ud800"):
        with pytest.raises(ToolFailure, match="is not a path"):
            await bench.call("read", path=path)


@pytest.mark.promise("B58")
async def test_a_huge_file_is_read_from_its_beginning_and_not_whole(bench):
    file = bench.put("huge.txt", "one\ntwo\n")
    os.truncate(file, 10 * 1024**3)
    with pytest.raises(ToolFailure, match="It is binary"):
        await bench.call("read", path="huge.txt")
    with file.open("r+b") as opened:
        opened.write(b"line\n" * 4000)
    result = await bench.call("read", path="huge.txt", limit=2)
    assert result.output.startswith("     1\tline\n     2\tline\n(The file goes on.")
    with file.open("r+b") as opened:
        opened.write(b"\xff\xfe" + b"x\0" * 8000)
    with pytest.raises(ToolFailure, match=r"huge\.txt is in UTF-16 LE and too large .* `iconv`"):
        await bench.call("read", path="huge.txt")
    with file.open("r+b") as opened:
        opened.write(b"\xef\xbb\xbf1" + b"\n" * 20_000)
    result = await bench.call("read", path="huge.txt", limit=1)
    assert result.output.startswith("     1\t1\n(The file goes on.")
    assert file.resolve() not in bench.files.fingerprints


@pytest.mark.promise("B58")
async def test_a_line_far_into_a_huge_file_is_looked_for_only_so_far(bench, monkeypatch):
    monkeypatch.setattr(room, "SCAN_BYTES_MAX", 2 * 1024**2)
    file = bench.put("huge.txt", b"line\n" * 4000)
    os.truncate(file, EDITABLE_BYTES_MAX + 1)
    with pytest.raises(ToolFailure, match=r"huge\.txt is too large"):
        await bench.call("read", path="huge.txt", offset=5000)
    result = await bench.call("read", path="huge.txt", offset=4000)
    assert result.output.startswith("  4000\tline\n  4001\t")
    assert result.output.endswith("use a command such as `tail`.)")


@pytest.mark.promise("B58")
async def test_binary_is_named_with_its_first_bytes(bench):
    bench.put("a.bin", b"\x7fELF\x02\x01\0\0")
    with pytest.raises(ToolFailure, match="It is binary and begins with the bytes 7f 45 4c 46"):
        await bench.call("read", path="a.bin")


@pytest.mark.promise("B58")
async def test_bytes_that_are_no_text_are_replaced(bench):
    bench.put("a.txt", b"caf\xc3\xa9 \xed\xa0\x80\n")
    output = (await bench.call("read", path="a.txt")).output
    assert output.startswith("     1\tcafé \ufffd")
    assert output.encode()


@pytest.mark.promise("B58")
async def test_line_ends_and_byte_order_mark_are_not_shown_but_said(bench):
    bench.put("dos.txt", b"\xef\xbb\xbfone\r\ntwo\r\n")
    bench.put("cut.txt", b"one\ntwo")
    assert (await bench.call("read", path="dos.txt")).output == (
        "     1\tone\n     2\ttwo\n(End of file, 2 lines, lines end in CRLF.)"
    )
    assert (await bench.call("read", path="cut.txt")).output.endswith(
        "     2\ttwo\n(End of file, 2 lines, no newline at the end.)"
    )


async def test_a_long_line_is_cut_and_the_next_one_is_there(bench):
    bench.put("a.txt", f"{'x' * 3_000_000}\nnext\n")
    first, second, _ = (await bench.call("read", path="a.txt")).output.split("\n")
    assert len(first) < 2100
    assert first.endswith("[... the rest of this long line is cut ...]")
    assert second == "     2\tnext"


async def test_reading_remembers_what_the_model_saw(bench):
    file = bench.put("a.txt", "one\n")
    await bench.call("read", path="a.txt", limit=1)
    assert bench.files.fingerprints == {file.resolve(): fingerprint(b"one\n")}


async def test_an_image_is_shown_whatever_its_name_and_may_then_be_replaced(bench):
    bench.put("shot.txt", picture("GIF"))
    result = await bench.call("read", path="shot.txt")
    assert result.output == ("shot.txt is an image of 120 x 80 pixels. It is attached.")
    assert [image.media_type for image in result.images] == ["image/png"]
    assert "Replaced" in (await bench.call("write", path="shot.txt", content="x")).output


async def test_a_pdf_is_read_as_text_with_its_pages(bench):
    bench.put("paper.bin", pdf("Title\nby me", "The end"))
    result = await bench.call("read", path="paper.bin")
    shown = ["[Page 1]", "Title", "by me", "", "[Page 2]", "The end"]
    lines = "".join(f"{n:>6}\t{line}\n" for n, line in enumerate(shown, start=1))
    assert result.output == f"{lines}(End of file, 6 lines.)"
    rest = await bench.call("read", path="paper.bin", offset=6)
    assert rest.output.startswith("     6\tThe end\n")


async def test_a_pdf_without_text_says_how_to_look_at_it(bench):
    bench.put("scan.pdf", pdf("", ""))
    with pytest.raises(ToolFailure, match=r"^scan\.pdf is a PDF of 2 pages without text; "):
        await bench.call("read", path="scan.pdf")
    bench.put("locked.pdf", locked(pdf("x"), "p"))
    with pytest.raises(ToolFailure, match=r"^locked\.pdf can't be shown\. It needs a password\."):
        await bench.call("read", path="locked.pdf")


async def test_a_text_that_is_called_an_image_is_read_as_text(bench):
    bench.put("a.png", "no pixels\n")
    result = await bench.call("read", path="a.png")
    assert (result.output.split("\n")[0], result.images) == ("     1\tno pixels", ())


async def test_an_image_that_can_not_be_shown_is_said(bench):
    bench.put("a.png", picture()[:50])
    with pytest.raises(ToolFailure, match=r"^a\.png can't be shown\. It is broken: "):
        await bench.call("read", path="a.png")


@pytest.mark.promise("B58")
async def test_a_link_to_the_outside_needs_permission_for_the_outside(bench, tmp_path):
    outside = tmp_path / "secret" / "key.txt"
    outside.parent.mkdir()
    outside.write_text("key\n")
    (bench.workspace / "inside.txt").symlink_to(outside)
    (bench.workspace / "door").symlink_to(outside.parent)
    for path in ("inside.txt", "door/key.txt", "../secret/key.txt", "door/../secret/key.txt"):
        read, leave = bench.requirements("read", path=path)
        assert (read.permission, read.subjects) == ("read", (str(outside),))
        assert (leave.permission, leave.subjects) == ("external_directory", (str(outside.parent),))
        assert leave.always == (str(outside.parent), f"{outside.parent}/*")


async def test_a_path_inside_is_judged_relative_to_the_workspace(bench):
    (bench.workspace / "src").mkdir()
    (bench.workspace / "door").symlink_to("src")
    for path in ("src/a.py", "./src//a.py", "door/a.py", str(bench.workspace / "src/../src/a.py")):
        (need,) = bench.requirements("read", path=path)
        assert (need.subjects, need.kind) == (("src/a.py",), "path")


@given(
    lines=st.lists(st.sampled_from(("", "x", "a\r", "y" * 40)), max_size=40),
    offset=st.integers(1, 45),
    block_bytes=st.integers(1, 9),
    ended=st.booleans(),
)
def test_lines_are_skipped_in_blocks_as_if_they_were_counted_one_by_one(
    lines: list[str], offset: int, block_bytes: int, *, ended: bool
):
    data = ("\n".join(lines) + ("\n" if ended else "")).encode()
    stream = io.BytesIO(data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(room, "_BLOCK_BYTES", block_bytes)
        skipped = room._skip_lines(stream, offset - 1)
    before = io.BytesIO(data).readlines()[: offset - 1]
    assert skipped == (len(before), len(b"".join(before)))
    assert stream.tell() == skipped[1]
