r"""Searching without ripgrep, in a process of its own: slower, and the same answers otherwise.

It runs this file by its path, so it imports nothing of the daemon, and says what `ripgrep` says:
paths that end in NUL, or lines after a path and NUL. It is ended like ripgrep when it takes long,
which an expression of Python's may do for ever. What of an expression is not the same: character
classes such as `\pL` and `[[:alpha:]]` are an error, back-references and looking around are not,
and `.` also stands for a byte that is no text. Nothing is found before the first NUL of a binary
file, and the user's own ignore file of git is not read.
"""

import codecs
import io
import os
import re
import resource
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from operator import itemgetter
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple, TextIO, cast

MEMORY_BYTES_MAX: Final = 1024**3

BLOCK_CHARS: Final = 1024 * 1024
"""How much of a file is searched at once; a longer line is searched in parts."""

LOOK_CHARS: Final = 64 * 1024
"""A file with a NUL in its beginning is binary; ripgrep looks as far."""

RULES_BYTES_MAX: Final = 1024 * 1024
"""How much of an ignore file is read."""

PROGRAM = __file__
"""What is started: this file is a program of its own."""

LINE_CHARS_MAX: Final = 400
CUT: Final = " [... omitted end of long line]"
"""What ripgrep puts after a line that it cuts there."""

IGNORE_FILES: Final = (".rgignore", ".ignore", ".gitignore", ".git/info/exclude")
"""Where it stands what is left out, the strongest first; the weakest is named by the caller."""

_FAILED: Final = 2

_ALONE: Final = re.compile(r"\\[AZ]|\(\?[<=!]")
"""What makes an expression look at what is around a line, so that each is looked at by itself."""


class _Rule(NamedTuple):
    """A line of an ignore file."""

    fits: re.Pattern[str]
    ignores: bool
    directories_only: bool


_Rules = Sequence[_Rule]


class _Level(NamedTuple):
    """What the ignore files of a directory say, one for each kind, and those of the one above."""

    base: str
    kinds: tuple[_Rules, ...]
    above: "_Level | None"


def search(kind: str, weakest: str, target: str, pattern: str, out: BinaryIO) -> int:
    """Look for files, or for lines in them; returns the exit status."""
    try:
        # Only a line's own ends count, so that looking at many lines at once finds no other ones.
        wanted = re.compile(pattern, re.MULTILINE)
    except (re.error, RecursionError, OverflowError) as error:
        said = f"regex parse error: {error}. There is no ripgrep: expressions are those of Python."
        out.write(said.encode(errors="replace"))
        return _FAILED
    for path in _files(_path(target), _rules(_path(weakest)) if weakest else ()):
        if kind == "files":
            out.write(_name(path) + b"\0")
            continue
        with suppress(OSError):
            for number, line in _lines(_name(path), wanted):
                text = line if len(line) <= LINE_CHARS_MAX else line[:LINE_CHARS_MAX] + CUT
                encoded = text.encode(errors="surrogateescape")
                out.write(b"%s\0%d:%s\n" % (_name(path), number, encoded))
        # When time is up the process is killed: what was found until then is passed on.
        out.flush()
    return 0


def _path(name: str) -> str:
    """A path as it is used here: each character is a byte, as patterns of git take them."""
    return os.fsencode(name).decode("latin-1")


def _name(path: str) -> bytes:
    """The name of a file."""
    return path.encode("latin-1")


def _files(target: str, weakest: _Rules) -> Iterator[str]:
    """Every regular file below a directory that is not ignored; a file that is named always."""
    if not target.endswith("/"):
        yield target
        return
    root = _path(str(Path.cwd())).rstrip("/") + "/"
    waiting = [("", _levels_above(root))]
    while waiting:
        directory, level = waiting.pop()
        try:
            with os.scandir(_name(f"./{directory}")) as found:
                entries = [(one.name.decode("latin-1"), one) for one in found]
        except OSError:
            continue
        level = _level_in(root + directory, {name for name, _ in entries}, level)
        for name, entry in sorted(entries, key=itemgetter(0)):
            path = directory + name
            is_directory = entry.is_dir(follow_symlinks=False)
            if name == ".git" or not (is_directory or entry.is_file(follow_symlinks=False)):
                continue
            verdict = _verdict_of_all(level, root + path, is_directory=is_directory)
            if verdict is None:
                verdict = _verdict(weakest, path, is_directory=is_directory)
            if verdict:
                continue
            if is_directory:
                waiting.append((f"{path}/", level))
            else:
                yield f"./{path}"


def _levels_above(directory: str) -> _Level | None:
    level = None
    above = directory.rstrip("/").split("/")[:-1]
    for depth in range(len(above)):
        base = "/".join(above[: depth + 1]) + "/"
        level = _level_in(base, {".git", *IGNORE_FILES}, level)
    return level


def _level_in(base: str, names: set[str], above: _Level | None) -> _Level | None:
    """The level of a directory in which are these names; that above when it says nothing."""
    kinds = tuple(
        _rules(base + name) if name.partition("/")[0] in names else () for name in IGNORE_FILES
    )
    return _Level(base, kinds, above) if any(kinds) else above


def _rules(path: str) -> _Rules:
    """The lines of an ignore file, the last one first, as that is what counts."""
    import pathspec

    text = _text_of_rules(path)
    rules: list[_Rule] = []
    for line in reversed(text.split("\n")):
        text = line if line.endswith("\\ ") else line.rstrip()
        # The library takes what is below a directory for a part of it; here each is looked at by
        # itself. It drops blanks at the end, of which one that is behind a slash now is none.
        plain = text.removesuffix("/")
        if plain.endswith(" ") and plain != text:
            plain = plain[:-1] + "\\ "
        with suppress(ValueError):
            for one in pathspec.GitIgnoreSpec.from_lines([plain]).patterns:
                fits = cast("re.Pattern[str] | None", getattr(one, "regex", None))
                if fits and one.include is not None and plain not in ("", "!"):
                    rules += [_Rule(fits, one.include, plain != text)]
    return rules


def _text_of_rules(path: str) -> str:
    """What is in an ignore file; nothing if that is no file, such as a FIFO, where one waits."""
    with suppress(OSError):
        opened = os.open(_name(path), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(opened, "rb") as file:
            if stat.S_ISREG(os.fstat(opened).st_mode):
                data = file.read(RULES_BYTES_MAX).removeprefix(codecs.BOM_UTF8)
                return data.decode("latin-1")
    return ""


def _verdict_of_all(level: _Level | None, path: str, *, is_directory: bool) -> bool | None:
    """What the ignore files say of an absolute path: the strongest kind, in it the nearest one."""
    levels: list[_Level] = []
    while level:
        levels.append(level)
        level = level.above
    for kind in range(len(IGNORE_FILES)):
        for one in levels:
            if one.kinds[kind]:
                below = path[len(one.base) :]
                verdict = _verdict(one.kinds[kind], below, is_directory=is_directory)
                if verdict is not None:
                    return verdict
    return None


def _verdict(rules: _Rules, path: str, *, is_directory: bool) -> bool | None:
    """Whether rules leave a path out or keep it; None when they say nothing about itself."""
    for rule in rules:
        if rule.directories_only and not is_directory:
            continue
        fits = rule.fits.search(path)
        # A group is there when it was a directory above that fits.
        if fits and fits.lastindex is None:
            return rule.ignores
    return None


def _lines(path: bytes, wanted: re.Pattern[str]) -> Iterator[tuple[int, str]]:
    """The lines of a file that fit, with their numbers, until it turns out to be binary."""
    with open(path, "rb") as opened:  # noqa: PTH123
        wide = opened.peek(2)[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
        encoding, errors = ("utf-16", "replace") if wide else ("utf-8-sig", "surrogateescape")
        file = io.TextIOWrapper(opened, encoding, errors, newline="\n")
        number = 1
        for block in _blocks(file):
            if "\0" in block:
                return
            yield from _lines_of(block, number, wanted)
            number += block.count("\n")


def _blocks(file: TextIO) -> Iterator[str]:
    """The text in pieces of whole lines."""
    block = file.read(LOOK_CHARS)
    while block:
        if not block.endswith("\n"):
            block += file.readline(BLOCK_CHARS)
        yield block
        block = file.read(BLOCK_CHARS)


def _lines_of(block: str, number: int, wanted: re.Pattern[str]) -> Iterator[tuple[int, str]]:
    """The lines that fit: where something fits the block its line is looked at by itself."""
    if _ALONE.search(wanted.pattern):
        lines = enumerate(block.removesuffix("\n").split("\n"), number)
        yield from ((at, line) for at, line in lines if wanted.search(line))
        return
    place = counted = 0
    while place < len(block) and (found := wanted.search(block, place)):
        begin = block.rfind("\n", 0, found.start()) + 1
        end = block.find("\n", found.start())
        end = len(block) if end < 0 else end
        if begin == len(block):
            return
        line = block[begin:end]
        number += block.count("\n", counted, begin)
        counted = begin
        if wanted.search(line):
            yield number, line
        place = end + 1


def _main() -> int:
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
    kind, weakest, target, pattern = sys.argv[1:]
    try:
        return search(kind, weakest, target, pattern, sys.stdout.buffer)
    except (OSError, MemoryError, RecursionError) as error:
        sys.stdout.buffer.write(f"The search broke off: {error!r}".encode(errors="replace"))
        return _FAILED


if __name__ == "__main__":
    sys.exit(_main())
