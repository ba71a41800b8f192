"""Files in every encoding and with every line end, and tools that change one line of them.

What the tool was not asked to change must be the same to the byte, and so must the mode. Used by
the tests and by `scripts/soak/file_bytes.py`.
"""

import shutil
import stat
from pathlib import Path
from typing import Final, NamedTuple

from hypothesis import strategies as st

from support.tool_calls import call
from tiller_daemon.files.whole_files import fingerprint
from tiller_daemon.tools.base import FileVersions, Tool, ToolFailure
from tiller_daemon.tools.editing.apply_patch import APPLY_PATCH
from tiller_daemon.tools.editing.edit import EDIT
from tiller_daemon.tools.editing.write import WRITE
from tiller_daemon.tools.read import READ

OLD: Final = "\tTARGET é"
ENDS: Final = {"LF": ["\n"], "CRLF": ["\r\n"], "mixed": ["\n", "\r\n"], "with CR": ["\n", "\r\n"]}
MODES: Final = (0o644, 0o755, 0o600, 0o664, 0o700)
WAYS: Final = ("edit", "edit but for white space", "apply_patch", "write")


class Written(NamedTuple):
    """An encoding for these files: byte order mark, Python's codec, and the content of lines."""

    name: str
    mark: bytes
    codec: str
    pieces: tuple[str, ...]


PLAIN: Final = ("a", "é", "ß", " ", "\t", "x = 1")
WIDE: Final = (*PLAIN, "→", "\U0001f600", "\ufeff", "\u2028", "\x85", "\x0c")
BYTES: Final = ("a", " ", "\t", "x = 1", "\xf6", "\xf8", "\xff", "\x80", "\x81", "\x93", "\x9d")
"""Pieces of lines, no two of which in a row are UTF-8 by chance."""

ENCODINGS: Final = (
    Written("utf-8", b"", "utf-8", WIDE),
    Written("utf-8 with a mark", b"\xef\xbb\xbf", "utf-8", WIDE),
    Written("utf-8 with stray bytes", b"", "utf-8", (*PLAIN, "\udcff", "\udce9", "\udc80")),
    Written("utf-16-le", b"\xff\xfe", "utf-16-le", (*WIDE, "\ud800", "\udc00", "\u0a0d")),
    Written("utf-16-be", b"\xfe\xff", "utf-16-be", (*WIDE, "\ud800", "\udc00", "\u0a0d")),
    Written("windows-1252", b"", "latin-1", BYTES),
)
STRAYS_MAX: Final = 9
"""Most stray bytes beside one `é`; with more, the file would count as Windows-1252."""


class Case(NamedTuple):
    """A file as lines with their line ends, and the change to the line at `place`."""

    encoding: Written
    lines: tuple[tuple[str, str], ...]
    place: int
    mode: int
    way: str
    new: tuple[str, ...]

    def file(self) -> bytes:
        """The bytes of the file."""
        return self.encoding.mark + b"".join(self.encode(line + end) for line, end in self.lines)

    def changed(self) -> bytes:
        """The bytes that the file must have afterwards."""
        before = b"".join(self.encode(line + end) for line, end in self.lines[: self.place])
        after = b"".join(self.encode(line + end) for line, end in self.lines[self.place + 1 :])
        end = self.lines[self.place][1]
        between = end or (self.lines[self.place - 1][1] if self.place else "\n")
        return self.encoding.mark + before + self.encode(between.join(self.new) + end) + after

    def encode(self, text: str) -> bytes:
        """Encode a text as in the file."""
        wide = self.encoding.codec.startswith("utf-16")
        return text.encode(self.encoding.codec, "surrogatepass" if wide else "surrogateescape")


@st.composite
def case(draw: st.DrawFn) -> Case:
    """Draw any case."""
    encoding = draw(st.sampled_from(ENCODINGS))
    style = draw(st.sampled_from(sorted(ENDS)))
    pieces = [*encoding.pieces, *(["\r"] if style == "with CR" else [])]
    texts = draw(st.lists(st.lists(st.sampled_from(pieces), max_size=4).map("".join), max_size=6))
    strays = 0
    lines: list[str] = []
    for text in texts:
        strays += sum("\udc80" <= letter <= "\udcff" for letter in text)
        # A final CR would belong to the line end, and an initial mark to the file.
        lines.append(text.rstrip("\r").lstrip("\ufeff") if strays <= STRAYS_MAX else "a")
    place = draw(st.integers(0, len(lines)))
    lines.insert(place, OLD)
    ends = [draw(st.sampled_from(ENDS[style])) for _ in lines]
    if draw(st.booleans()):
        ends[-1] = ""
    way = draw(st.sampled_from(WAYS))
    new = draw(st.sampled_from([("\tNEW é",), ("\tNEW", "\tß"), ("\tNEW", "", "\tx")]))
    return Case(encoding, tuple(zip(lines, ends, strict=True)), place,
                draw(st.sampled_from(MODES)), way, new)  # fmt: skip


def meet(one: Case, root: Path) -> None:
    """Change the line, and check all bytes and the mode."""
    work = root / "work"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    file = work / "f"
    file.write_bytes(one.file())
    file.chmod(one.mode)
    seen = FileVersions()
    shown = said_by(READ, {"path": "f"}, work, seen)
    assert f"{one.place + 1:>6}\t{OLD}\n" in shown, shown
    assert seen.fingerprints == {file: fingerprint(one.file())}
    if one.encoding.name == "windows-1252":
        meet_refusal(work, seen)
    if one.way == "write":
        meet_write(one, work, seen)
    else:
        said_by(*_change(one, "\n".join(one.new)), work, seen)
        assert file.read_bytes() == one.changed()
    assert stat.S_IMODE(file.stat().st_mode) == one.mode
    assert list(work.iterdir()) == [file]


def meet_write(one: Case, work: Path, seen: FileVersions) -> None:
    """Rewrite the file: it keeps its encoding, and CRLF if it has no other line ends."""
    content = "\n".join(one.new)
    said = said_by(WRITE, {"path": "f", "content": content}, work, seen)
    text = "".join(line + end for line, end in one.lines)
    if 0 < text.count("\r\n") == text.count("\n"):
        content = content.replace("\n", "\r\n")
        assert ("lines end in CRLF" in said) == ("\n" in content)
    assert (work / "f").read_bytes() == one.encoding.mark + one.encode(content)


def meet_refusal(work: Path, seen: FileVersions) -> None:
    """Write a character that the encoding lacks: a sentence refuses it, and the file stays."""
    before = (work / "f").read_bytes()
    try:
        said_by(EDIT, {"path": "f", "old": OLD, "new": "→"}, work, seen)
    except ToolFailure as failure:
        said = str(failure)
    else:
        said = ""
    assert "Its encoding, Windows-1252, has no `→`" in said
    assert (work / "f").read_bytes() == before


def said_by(tool: Tool, given: dict[str, str], work: Path, seen: FileVersions) -> str:
    """Call a tool and return its output, all of which can be sent."""
    result = call(tool, given, work, seen)
    assert f"{result.output}{result.diff}".encode()
    return result.output


def _change(one: Case, new: str) -> tuple[Tool, dict[str, str]]:
    if one.way == "apply_patch":
        added = "".join(f"+{line}\n" for line in one.new)
        patch = f"*** Begin Patch\n*** Update File: f\n@@\n-{OLD}\n{added}*** End Patch\n"
        return APPLY_PATCH, {"patch": patch}
    if one.way == "edit":
        return EDIT, {"path": "f", "old": OLD, "new": new}
    blanks = str.maketrans({"\t": "    "})
    return EDIT, {"path": "f", "old": OLD.translate(blanks), "new": new.translate(blanks)}
