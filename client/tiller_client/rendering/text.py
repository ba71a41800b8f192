"""Sanitizes, measures and truncates text for terminals; pure. `style` colours it.

Unicode properties decide which characters are shown as they are. The others are escaped: C0
controls as pictures (`␛`), the rest as code points (`⟨U+202E⟩`). If the output can't show these
signs (see `streams`), all escapes look like `<U+202E>`.
"""

import re
import sys
import time
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from tiller_client.streams import STAND_INS, showable, shows

_IGNORABLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u3164\ufe00-\ufe0f\uffa0"
    "\U000e0100-\U000e01ef]"
)
"""Letters and marks that are invisible, by the Unicode property `Default_Ignorable_Code_Point`.

All other characters with this property are recognised by their category.
"""

_JOINERS = "\u200c\u200d\ufe0e\ufe0f"
"""`Join_Control` and the two emoji selectors, which correct spelling needs in prose."""

_BLANK_SYMBOLS = "\u2800\U00016fe4\U0001d159"
"""Symbols and a mark that look blank but are not ignorable, such as the blank Braille pattern."""

_NOTATION = frozenset("⟨" + "".join(map(chr, range(0x2400, 0x2422))))
"""Characters with a meaning in verbatim text, which therefore never stand for themselves."""

_JOINING_LETTERS = re.compile("[\u1160-\u11ff\ud7b0-\ud7ff]")
"""Hangul vowels and finals, which terminals combine with the previous letter, or drop."""

_WIDER = re.compile(
    "[\u2630-\u2637\u268a-\u268f\u4dc0-\u4dff\U0001d300-\U0001d356\U0001d360-\U0001d376"
    "\U0001f1e6-\U0001f1ff]"
)
"""Characters that are wide since Unicode 16, and flag letters: terminals use one or two columns."""

ESCAPE = "\ud800"
"""Begins our own escapes until `on_screen`: a lone surrogate, which decoded text never contains."""

_SPACE = re.compile(r"\s+")
_TRAILING_BLANKS = re.compile(r" +$", re.MULTILINE)

UNCUT = sys.maxsize
"""A width or number of lines without a limit."""

ELLIPSIS = "…"
BLANK_SHOWN = "␠"

MARKS_MAX = 2
"""Maximum number of marks on one character in verbatim text: terminals may drop further ones."""

DOLLARS_SHOWN_MIN = 0.0001

SHORT_ID_CHARS = 8
"""Length of a short id: the last 40 bits of a ULID are random, while its beginning is the time."""


def sanitized(text: str) -> str:
    """Escape all characters that are invisible or control a terminal.

    Tabs and newlines stay; a carriage return before a newline is removed. A text can be sanitized
    in pieces, if no piece ends between these two. Sanitizing a text again does not change it.
    """
    return text.replace("\r\n", "\n").translate(_PROSE)


def one_line(text: str) -> str:
    """Sanitize a text, and replace every run of white space with one space."""
    return sanitized(_SPACE.sub(" ", text)).strip()


def below_home(path: str) -> str:
    """A path in which `~` stands for the user's home directory."""
    home = str(Path.home())
    return f"~{path[len(home) :]}" if f"{path}/".startswith(f"{home}/") else path


def quoted_path(path: str) -> str:
    """A path in one line; if it would be ambiguous there, it is quoted, as by git.

    That is a path with characters that `one_line` would change, or with a quote at its beginning.
    """
    if path == one_line(path) and not path.startswith('"'):
        return path
    return f'"{"".join(map(_in_quotes, path))}"'


def verbatim(text: str) -> str:
    """Show `text` unambiguously, character by character; lines stay lines.

    For text that the user approves: nothing is invisible or ambiguous. A tab becomes `␉`, a space
    at the end of a line `␠`. Code points replace other kinds of space, marks without a character,
    too many marks on one character, and the characters of this notation.
    """
    if not shows("⟨"):
        # Text that imitates an escape must not look like one.
        pieces = ("".join(_with_few_marks(piece)) for piece in text.split("<U+"))
        return _TRAILING_BLANKS.sub(_shown_blanks, f"{_visible('<')}U+".join(pieces))
    if not text.isascii():
        return _TRAILING_BLANKS.sub(_shown_blanks, "".join(_with_few_marks(text)))
    return _TRAILING_BLANKS.sub(_shown_blanks, text.translate(_VERBATIM))


def rows(text: str, width: int) -> list[str]:
    """Split a verbatim line into rows of at most `width` columns, with trailing spaces visible."""
    pieces: list[str] = []
    begin = column = 0
    for at, character in enumerate(text):
        needed = _cell(character)
        if column + needed > width and at > begin:
            pieces.append(_TRAILING_BLANKS.sub(_shown_blanks, text[begin:at]))
            begin, column = at, 0
        column += needed
    return [*pieces, text[begin:]]


def json_line(encoded: bytes) -> str:
    """Decode JSON to text that is one line to every reader, and safe on a terminal.

    Invisible and control characters in strings are escaped, which does not change the value.
    """
    return encoded.decode().translate(_JSON)


def on_screen(text: str) -> str:
    """Sanitize text and complete our own escapes, just before it is written to a terminal.

    All text passes through here, so that even text that was not sanitized before is safe.
    """
    return text.translate(_SCREEN)


def cells(text: str) -> int:
    """Number of columns that a terminal uses for a sanitized line."""
    return len(text) if text.isascii() else sum(_cell(character) for character in text)


def cut(text: str, width: int) -> str:
    """Truncate a line to at most `width` columns, with an ellipsis at its end."""
    if cells(text) <= width:
        return text
    fitting: list[str] = []
    mark = showable(ELLIPSIS)[:width]
    left = width - len(mark)
    for character in text:
        left -= _cell(character)
        if left < 0:
            break
        fitting.append(character)
    return "".join(fitting) + mark if width > 0 else ""


def cut_beginning(text: str, width: int) -> str:
    """Truncate a line to at most `width` columns, with an ellipsis at its beginning."""
    if cells(text) <= width:
        return text
    mark = showable(ELLIPSIS)[:width]
    begin, left = len(text), width - len(mark)
    while begin and (left := left - _cell(text[begin - 1])) >= 0:
        begin -= 1
    return mark + text[begin:].lstrip(_JOINERS) if width > 0 else ""


def pad(text: str, width: int) -> str:
    """Truncate a line, or pad it with spaces, to exactly `width` columns."""
    text = cut(text, width)
    return text + " " * (width - cells(text))


def seconds(duration_s: float) -> str:
    """A duration for people: `80 ms`, `1.2 s`, `3 min 20 s`, `2 h 5 min`, `4 d`."""
    if duration_s < 0.9995:
        return f"{max(duration_s, 0) * 1000:.0f} ms"
    if duration_s < 59.95:
        return f"{duration_s:.1f} s"
    whole = round(duration_s)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    if whole < 86_400:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{whole // 86_400} d"


def age(elapsed_s: float) -> str:
    """Elapsed time in one unit: `17 s`, `3 min`, `2 h`, `4 d`."""
    whole = max(0, int(elapsed_s))
    for unit_s, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if whole >= unit_s:
            return f"{whole // unit_s} {unit}"
    return f"{whole} s"


def local_time(time_s: float) -> str:
    """A Unix time in the local time zone: `2026-03-01 14:05:09`."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(time_s))


def dollars(cost: float) -> str:
    """An amount of money: `$12.30`, `$0.0042`; `<$0.0001` for a smaller amount above zero."""
    if cost >= 10:
        return f"${cost:,.2f}"
    if 0 < cost < DOLLARS_SHOWN_MIN:
        return f"<${DOLLARS_SHOWN_MIN}"
    cents, rest = f"{cost:.4f}"[:-2], f"{cost:.4f}"[-2:]
    return f"${cents}{rest.rstrip('0')}"


def count(number: int) -> str:
    """A number for people: `950`, `1.2k`, `3.4M`."""
    if number < 1000:
        return str(number)
    if number < 999_950:
        return f"{number / 1000:.1f}k"
    return f"{number / 1_000_000:.1f}M"


def counted(number: int, noun: str) -> str:
    """A number with its noun: `1 turn`, `2 turns`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


class _Table(dict[int, str]):
    """The text for each character, for `str.translate`; computed on first use."""

    def __init__(self, show: Callable[[str], str], given: Mapping[str, str]) -> None:
        super().__init__({ord(character): shown for character, shown in given.items()})
        self._show = show

    def __missing__(self, code: int) -> str:
        shown = self[code] = self._show(chr(code))
        return shown


def _is_visible(character: str) -> bool:
    """Whether this is not a control, format, private-use, unassigned or ignorable character.

    Unusual spaces count as visible, as they take up columns.
    """
    printable = character.isprintable() or unicodedata.category(character) == "Zs"
    return printable and not _IGNORABLE.match(character)


def _in_prose(character: str) -> str:
    visible = _is_visible(character) or character in _JOINERS
    # Our signs may get their stand-ins later; the rest must have its final width now.
    visible = visible and (shows(character) or character in STAND_INS)
    return character if visible else _visible(character)


def _in_verbatim(character: str) -> str:
    visible = character.isprintable() and not _IGNORABLE.match(character)
    ambiguous = character in _NOTATION or character in _BLANK_SYMBOLS
    ambiguous = ambiguous or _JOINING_LETTERS.match(character) or not shows(character)
    return character if visible and not ambiguous else _visible(character)


def _in_quotes(character: str) -> str:
    if escape := _PATH_ESCAPES.get(character):
        return escape
    if character == " " or (sanitized(character) == character and not character.isspace()):
        return character
    return "".join(f"\\{byte:03o}" for byte in character.encode("utf-8", "surrogatepass"))


def _in_json(character: str) -> str:
    if _is_visible(character):
        return character
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def _visible(character: str) -> str:
    code = ord(character)
    if not shows("⟨"):
        return f"<U+{code:04X}>"
    if code < 0x20:
        return chr(0x2400 + code)
    return "␡" if code == 0x7F else f"⟨U+{code:04X}⟩"


_PATH_ESCAPES = {'"': r"\"", "\\": r"\\", "\n": r"\n", "\r": r"\r", "\t": r"\t"}
_AS_IT_IS = {"\n": "\n", "\t": "\t"}
_PROSE = _Table(_in_prose, _AS_IT_IS)
_VERBATIM = _Table(_in_verbatim, {"\n": "\n"})
_JSON = _Table(_in_json, {})
_SCREEN = _Table(_in_prose, _AS_IT_IS | {ESCAPE: "\x1b"})


def _with_few_marks(text: str) -> Iterator[str]:
    """Yield each character; escape marks, except the first few on a character."""
    marks_left = 0
    for character in text:
        shown = _VERBATIM[ord(character)]
        if shown != character or character.isspace():
            marks_left = 0
        elif not _is_mark(character):
            marks_left = MARKS_MAX
        elif marks_left:
            marks_left -= 1
        else:
            shown = _visible(character)
        yield shown


def _shown_blanks(match: re.Match[str]) -> str:
    shown = BLANK_SHOWN if shows(BLANK_SHOWN) else _visible(" ")
    return shown * len(match.group())


def _is_mark(character: str) -> bool:
    return unicodedata.category(character) in ("Me", "Mn")


def _cell(character: str) -> int:
    if unicodedata.category(character) in ("Cf", "Me", "Mn") or _JOINING_LETTERS.match(character):
        return 0
    is_wide = unicodedata.east_asian_width(character) in "WF" or _WIDER.match(character)
    return 2 if is_wide else 1
