"""The tool `read`: a part of a text file or of a PDF, with line numbers, or an image."""

import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, BinaryIO, Final

import trio
from msgspec import Meta, Struct

from tiller_daemon.files.documents import DocumentProblem, is_pdf, read_pages, with_marks
from tiller_daemon.files.images import BEGINNING_BYTES, ImageProblem, fit_image, is_image
from tiller_daemon.files.paths import Location, PathProblem, open_regular
from tiller_daemon.files.whole_files import (
    EDITABLE_BYTES_MAX,
    SMALL_BYTES,
    fingerprint,
    read_if_small,
    read_whole,
)
from tiller_daemon.tools.base import (
    FileVersions,
    Requirement,
    Tool,
    ToolEnvironment,
    ToolFailure,
    ToolPermission,
    ToolResult,
    always,
)
from tiller_daemon.tools.encoding import (
    NUL_CHECKED_CHARS,
    UTF_8,
    EncodingProblem,
    FileText,
    decode_text,
    describe_encoding,
    printable_text,
)
from tiller_daemon.tools.path_access import file_requirements, resolve_approved_path, resolve_path
from tiller_daemon.tools.suggestions import did_you_mean_path
from tiller_daemon.tools.truncation import BYTES_MAX, LINES_MAX

LINE_CHARS_MAX: Final = 2000
"""A longer line is cut: minified code and data would fill the context window."""

SCAN_BYTES_MAX: Final = 1024**3
"""How far a huge file is searched for a line, which takes about a second."""

NOTE_BYTES_MAX: Final = 512
"""Reserved for the notes at the end, such as where to read on."""

UNSAVED: Final = (
    "(This is the text in the user's editor, with changes that are not saved. Searches and "
    "commands see the file on disk. You can change the file once the user has saved it.)"
)
"""A note at the end; `NOTE_BYTES_MAX` includes it."""

PDF_BYTES_MAX: Final = 32 * 1024**2
"""All of a PDF must be in memory to find its pages."""

TIMEOUT_S: Final = 30.0

_BLOCK_BYTES: Final = 1024**2


class ReadArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """The arguments of `read`."""

    path: Annotated[str, Meta(description="The file, relative to the workspace or absolute")]
    offset: Annotated[int, Meta(ge=1, description="The first line to show, from 1")] = 1
    limit: Annotated[int, Meta(ge=1, description="How many lines to show")] = LINES_MAX


def _requirements(arguments: ReadArguments, workspace: Path) -> tuple[Requirement, ...]:
    location = resolve_path(workspace, arguments.path)
    return file_requirements("read", location, title=f"Read {location.text}")


async def _run(arguments: ReadArguments, environment: ToolEnvironment) -> ToolResult:
    location = resolve_approved_path(environment, arguments.path)
    size_bytes, data = _look(location)
    if is_image(data[:BEGINNING_BYTES]):
        return await _show_image(location, environment.files.versions)
    if is_pdf(data[:BEGINNING_BYTES]):
        return await _show_document(location, size_bytes, arguments, environment)
    if (unsaved := await environment.files.editors.unsaved(location)) is not None:
        output, digest = _show(unsaved, location, arguments)
        output += f"\n{UNSAVED}"
    elif size_bytes <= SMALL_BYTES:
        output, digest = _show(data, location, arguments)
    else:
        output, digest = await trio.to_thread.run_sync(
            _show_large, location, size_bytes, arguments, abandon_on_cancel=True
        )
    if digest:
        environment.files.versions.fingerprints[location.path] = digest
    return ToolResult(output, title=location.text)


READ: Final = Tool(
    name="read",
    description=(
        "Read a text file or the text of a PDF, or look at an image (PNG, JPEG, GIF, WebP). Each "
        "line is prefixed with its number and a tab, which are not in the file. Returns at most "
        f"{LINES_MAX} lines or {BYTES_MAX // 1024} KiB; use `offset` to read on. Read a file "
        "before you edit or overwrite it. Use `ls` for a directory."
    ),
    arguments=ReadArguments,
    effect="read",
    timeout_s=TIMEOUT_S,
    requirements=_requirements,
    permission=ToolPermission("read"),
    run=_run,
    repeatable=always,
)


def _look(location: Location) -> tuple[int, bytes]:
    """Return the size of a file and its first bytes; if it is small, all of its bytes."""
    try:
        return read_if_small(location, BEGINNING_BYTES)
    except PathProblem as problem:
        if isinstance(problem.__cause__, FileNotFoundError):
            raise ToolFailure(
                f"{location.text} does not exist.{did_you_mean_path(location)}"
            ) from None
        raise


async def _show_image(location: Location, files: FileVersions) -> ToolResult:
    data = await trio.to_thread.run_sync(read_whole, location)
    try:
        image = await fit_image(data)
    except ImageProblem as problem:
        raise ToolFailure(f"{location.text} can't be shown. {problem}") from None
    files.fingerprints[location.path] = fingerprint(data)
    width, height = image.before
    output = f"{location.text} is an image of {width} x {height} pixels. It is attached"
    if image.size != image.before:
        output += f", scaled to {image.size[0]} x {image.size[1]}"
    return ToolResult(f"{output}.", title=location.text, images=(image.image,))


async def _show_document(
    location: Location, size_bytes: int, arguments: ReadArguments, environment: ToolEnvironment
) -> ToolResult:
    if size_bytes > PDF_BYTES_MAX:
        raise ToolFailure(
            f"{location.text} can't be shown. It is a PDF of more than {PDF_BYTES_MAX // 1024**2} "
            "MiB. Use a command such as `pdftotext` to read a part of it."
        )
    data = await trio.to_thread.run_sync(read_whole, location)
    try:
        pages = await read_pages(data, environment.commands.variables())
    except DocumentProblem as problem:
        raise ToolFailure(f"{location.text} can't be shown. {problem}") from None
    if not pages.has_text:
        raise ToolFailure(
            f"{location.text} is a PDF of {pages.total} page{'' if pages.total == 1 else 's'} "
            "without text; it may be a scan. Use a command such as `pdftoppm -png` to make images "
            "of its pages, and look at these."
        )
    text = with_marks(pages).encode(errors="replace")
    return ToolResult(_page(io.BytesIO(text), location, arguments, ""), title=location.text)


def _show_large(location: Location, size_bytes: int, arguments: ReadArguments) -> tuple[str, str]:
    """Return the numbered lines and the fingerprint; empty if the file is too large to edit."""
    if size_bytes <= EDITABLE_BYTES_MAX:
        return _show(read_whole(location), location, arguments)
    with os.fdopen(open_regular(location), "rb") as stream:
        _, encoding = _text(stream.read(NUL_CHECKED_CHARS), location)
        # Line feeds are two bytes, so lines can't be found in the bytes.
        if encoding.codec.startswith("utf-16"):
            raise ToolFailure(
                f"{location.text} is in {encoding.name} and too large to be converted here. "
                "Convert it to UTF-8 with `iconv` first."
            )
        stream.seek(len(encoding.bom))
        return _page(stream, location, arguments, ""), ""


def _show(data: bytes, location: Location, arguments: ReadArguments) -> tuple[str, str]:
    """Return the numbered lines of a whole file, and its fingerprint."""
    text, encoding = _text(data, location)
    is_utf_8 = encoding.codec == UTF_8.codec
    in_utf_8 = data[len(encoding.bom) :] if is_utf_8 else printable_text(text).encode()
    page = _page(io.BytesIO(in_utf_8), location, arguments, describe_encoding(encoding))
    return page, fingerprint(data)


def _text(data: bytes, location: Location) -> FileText:
    try:
        return decode_text(data)
    except EncodingProblem as problem:
        raise ToolFailure(
            f"{location.text} can't be shown. {problem} Use a command such as `file` or `xxd` to "
            "look at it."
        ) from None


def _page(stream: BinaryIO, location: Location, arguments: ReadArguments, encoding: str) -> str:
    """Return numbered lines of a UTF-8 stream; `encoding` describes the file's own, if other."""
    last = arguments.offset + min(arguments.limit, LINES_MAX) - 1
    bytes_left = BYTES_MAX - NOTE_BYTES_MAX
    numbered: list[str] = []
    skipped, skipped_bytes = _skip_lines(stream, arguments.offset - 1)
    if skipped_bytes >= SCAN_BYTES_MAX:
        return _beyond_scan(numbered, skipped + 1, location)
    number, line = skipped, b""
    for number, next_line in enumerate(_lines(stream, skipped_bytes), start=skipped + 1):
        if next_line is None:
            return _beyond_scan(numbered, number, location)
        line = next_line
        text = f"{number:>6}\t{_printed(line)}\n"
        bytes_left -= len(text.encode())
        if number > last or bytes_left < 0:
            return f"{''.join(numbered)}(The file goes on. Read on with offset={number}.)"
        numbered.append(text)
    if number == 0:
        return "(The file is empty.)"
    if not numbered:
        raise ToolFailure(
            f"{location.text} has {_count(number)}; offset {arguments.offset} is beyond its end."
        )
    return f"{''.join(numbered)}(End of file, {_count(number)}{encoding}{_line_ends(line)}.)"


def _count(lines: int) -> str:
    return "1 line" if lines == 1 else f"{lines} lines"


def _skip_lines(stream: BinaryIO, lines: int) -> tuple[int, int]:
    """Skip this many lines; returns how many lines and bytes were skipped.

    The stream may end before. No more than `SCAN_BYTES_MAX` bytes are skipped.
    """
    skipped_lines = skipped_bytes = 0
    block = b""
    while skipped_lines < lines and skipped_bytes < SCAN_BYTES_MAX:
        # Counting in blocks takes a twentieth of the time of reading line by line.
        if not (more := stream.read(min(_BLOCK_BYTES, SCAN_BYTES_MAX - skipped_bytes))):
            # The last line may have no end.
            return skipped_lines + (block != b"" and not block.endswith(b"\n")), skipped_bytes
        block = more
        in_block = block.count(b"\n")
        if skipped_lines + in_block >= lines:
            end = _end_of_line(block, lines - skipped_lines)
            stream.seek(end - len(block), io.SEEK_CUR)
            return lines, skipped_bytes + end
        skipped_lines += in_block
        skipped_bytes += len(block)
    return skipped_lines, skipped_bytes


def _end_of_line(block: bytes, number: int) -> int:
    """Return where the line with this number, counted from 1, ends in a block."""
    end = 0
    for _ in range(number):
        end = block.index(b"\n", end) + 1
    return end


def _lines(stream: BinaryIO, scanned_bytes: int) -> Iterator[bytes | None]:
    """Yield each line with its line end, cut if very long; None after `SCAN_BYTES_MAX`.

    `scanned_bytes` is the number of bytes before the first line.
    """
    while line := stream.readline(_BLOCK_BYTES):
        scanned_bytes += len(line)
        if not line.endswith(b"\n"):
            scanned_bytes += _skip_line(stream, SCAN_BYTES_MAX - scanned_bytes)
        yield line
        if scanned_bytes >= SCAN_BYTES_MAX:
            yield None


def _skip_line(stream: BinaryIO, bytes_max: int) -> int:
    skipped_bytes = 0
    while skipped_bytes < bytes_max and (more := stream.readline(_BLOCK_BYTES)):
        skipped_bytes += len(more)
        if more.endswith(b"\n"):
            break
    return skipped_bytes


def _printed(line: bytes) -> str:
    text = line.rstrip(b"\r\n").decode(errors="replace")
    if len(text) <= LINE_CHARS_MAX:
        return text
    return f"{text[:LINE_CHARS_MAX]} [... the rest of this long line is cut ...]"


def _line_ends(last: bytes) -> str:
    if last.endswith(b"\r\n"):
        return ", lines end in CRLF"
    return "" if last.endswith(b"\n") else ", no newline at the end"


def _beyond_scan(numbered: list[str], number: int, location: Location) -> str:
    scanned = f"{SCAN_BYTES_MAX // 1024**3} GiB"
    if not numbered:
        raise ToolFailure(
            f"{location.text} is too large: its first {scanned} have only {number - 1} lines. "
            "Use a command such as `sed -n` or `tail`."
        )
    shown = "".join(numbered)
    return f"{shown}(The rest is beyond the first {scanned}; use a command such as `tail`.)"
