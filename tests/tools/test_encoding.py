"""Encodings: a file is read as its people wrote it, and keeps each byte that is not changed."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.each import each
from support.written_files import case, meet
from tiller_daemon.tools.base import ToolFailure
from tiller_daemon.tools.encoding import EncodingProblem, decode_text, encode_text, printable_text

CASES = 150


@pytest.mark.nightly
def test_one_changed_line_leaves_all_other_bytes_and_the_mode(tmp_path):
    """`scripts/soak/file_bytes.py` plays as many as one likes."""
    settings(max_examples=CASES, deadline=None)(given(case())(lambda one: meet(one, tmp_path)))()


@given(st.binary(max_size=60), st.sampled_from([b"", b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff"]))
def test_any_bytes_are_the_same_again_or_binary(data, bom):
    data = bom + data
    try:
        text, encoding = decode_text(data)
    except EncodingProblem:
        assert b"\0" in data or len(data) % 2 == 1
    else:
        assert encode_text(text, encoding) == data
        assert len(printable_text(text).encode()) >= len(text)


@each(
    ("data", "text", "name"),
    [
        (b"", "", "UTF-8"),
        ("é→".encode(), "é→", "UTF-8"),
        (b"\xef\xbb\xbfa", "a", "UTF-8"),
        ("é→\U0001f600\n".encode("utf-16"), "é→\U0001f600\n", "UTF-16 LE"),
        (b"\xfe\xff\0a\0\n", "a\n", "UTF-16 BE"),
        (b"caf\xe9 \x80 \x93x\x94 \x81", "café € “x” \x81", "Windows-1252"),
        (b"gr\xf6\xdfer " * 5 + b"MEN\xdc\x93", "größer " * 5 + "MENÜ“", "Windows-1252"),
        (b"caf\xc3\xa9 \xff\xe9", "café \udcff\udce9", "UTF-8"),
    ],
)  # fmt: skip
def test_which_encoding_a_file_has(data, text, name):
    found = decode_text(data)
    assert (found.text, found.encoding.name) == (text, name)
    assert encode_text(*found) == data


@each("data", [b"a\0b", b"\xff\xfe\0\0a\0\0\0", b"\xff\xfea", b"\x7fELF\0"])
def test_what_is_no_text(data):
    with pytest.raises(EncodingProblem, match=r"binary and begins with the bytes [0-9a-f ]+\.$"):
        decode_text(data)


async def test_files_of_windows_are_read_and_said_to_be_so(bench):
    bench.put("app.rc", "STRINGTABLE\r\nIDS_É\r\n".encode("utf-16"))
    assert (await bench.call("read", path="app.rc")).output == (
        "     1\tSTRINGTABLE\n     2\tIDS_É\n"
        "(End of file, 2 lines, in UTF-16 LE, lines end in CRLF.)"
    )
    bench.put("old.c", b"/* caf\xe9 */\n")
    assert (await bench.call("read", path="old.c")).output == (
        "     1\t/* café */\n(End of file, 1 line, not UTF-8 but probably Windows-1252.)"
    )


async def test_a_file_of_windows_stays_one_when_it_is_written_anew(bench):
    file = bench.put("app.reg", "Windows\r\n".encode("utf-16"))
    await bench.call("read", path="app.reg")
    result = await bench.call("write", path="app.reg", content="Registry\n→\n")
    assert result.output == "Replaced app.reg: 28 bytes, in UTF-16 LE, lines end in CRLF."
    assert file.read_bytes() == "Registry\r\n→\r\n".encode("utf-16")
    assert "-Windows\r\n+Registry\r\n" in result.diff
    patch = "*** Begin Patch\n*** Add File: app.reg\n+one\n*** End Patch\n"
    await bench.call("apply_patch", patch=patch)
    assert file.read_bytes() == "one\r\n".encode("utf-16")


async def test_a_character_that_the_file_can_not_have_is_named_and_nothing_is_changed(bench):
    file = bench.put("old.c", b"/* caf\xe9 */\n")
    bench.put("a", "x\n")
    for path in ("old.c", "a"):
        await bench.call("read", path=path)
    patch = "*** Update File: a\n@@\n-x\n+y\n*** Update File: old.c\n@@\n-/* café */\n+→\n"
    for name, arguments in {
        "edit": {"path": "old.c", "old": "café", "new": "→"},
        "write": {"path": "old.c", "content": "é→"},
        "apply_patch": {"patch": f"*** Begin Patch\n{patch}*** End Patch\n"},
    }.items():
        with pytest.raises(ToolFailure) as failure:
            await bench.call(name, **arguments)
        assert str(failure.value) == (
            "old.c can't be changed like this. Its encoding, Windows-1252, has no `→`. Avoid "
            "that character, or convert the file first with `iconv -f WINDOWS-1252 -t UTF-8`. "
            "No file was changed."
        )
    assert file.read_bytes() == b"/* caf\xe9 */\n"
    assert (bench.workspace / "a").read_text() == "x\n"


async def test_half_a_character_is_refused_before_anything_is_written(bench):
    bench.put("a", b"caf\xc3\xa9\xff\n")
    await bench.call("read", path="a")
    for name, arguments in {
        "edit": {"path": "a", "old": "caf", "new": "\udce9"},
        "write": {"path": "b", "content": "\udcff"},
        "apply_patch": {"patch": "*** Begin Patch\n*** Add File: b\n+\udcff\n*** End Patch"},
    }.items():
        with pytest.raises(ToolFailure, match="half a surrogate pair"):
            await bench.call(name, **arguments)
    assert (bench.workspace / "a").read_bytes() == b"caf\xc3\xa9\xff\n"
    assert not (bench.workspace / "b").exists()


async def test_what_is_shown_of_stray_bytes_can_be_sent(bench):
    bench.put("a", b"\tcaf\xc3\xa9 \xff\n\tx\n")
    await bench.call("read", path="a")
    result = await bench.call("edit", path="a", old="  x\n", new="  y\n")
    assert f"{result.output}{result.diff}".encode()
    for old in ("    caf\xe9 \xfe?", "tcafé!"):
        with pytest.raises(ToolFailure) as failure:
            await bench.call("edit", path="a", old=old, new="z")
        assert str(failure.value).encode()


async def test_text_of_windows_is_found_by_a_search(bench):
    bench.put("app.rc", "one\r\nIDS_É needle\r\n".encode("utf-16"))
    bench.put("old.c", b"/* caf\xe9: needle */\n")
    result = await bench.call("grep", pattern="(É|:) needle")
    assert "app.rc\n     2\tIDS_É needle" in result.output
    assert "old.c\n     1\t/* café: needle */" in result.output
