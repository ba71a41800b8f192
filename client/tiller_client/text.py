"""Text for terminals, pure: making it harmless, measuring it in cells, cutting it, painting it."""

import re
import unicodedata

_CONTROL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""C0 but tab and newline, DEL, C1, the marks that turn the direction of text, lone surrogates."""

_C1_OR_LINE_END = re.compile("[\x7f-\x9f\u2028\u2029]")

_SPACE = re.compile(r"\s+")

ELLIPSIS = "…"

DOLLARS_SHOWN_MIN = 0.0001


def harmless(text: str) -> str:
    """`text` with every character that could steer a terminal made visible instead.

    An escape becomes `␛`, a C1 control or a mark of direction `�`; tab and newline stay, a carriage
    return before a newline goes. Pieces give what the whole gives, unless cut between those two.
    """
    return _CONTROL.sub(_visible, text.replace("\r\n", "\n"))


def one_line(text: str) -> str:
    """`harmless`, with every run of white space made one space."""
    return harmless(_SPACE.sub(" ", text)).strip()


def json_line(encoded: bytes) -> str:
    """Encoded JSON as text that is one line to every reader and harmless on a terminal.

    Controls of C1 and the Unicode line ends, which JSON allows in strings, are escaped.
    """
    text = encoded.decode()
    return _C1_OR_LINE_END.sub(lambda found: f"\\u{ord(found.group()):04x}", text)


def cells(text: str) -> int:
    """How many columns a terminal uses for a harmless text of one line."""
    return sum(_cell(character) for character in text)


def cut(text: str, width: int) -> str:
    """`text` of one line in at most `width` columns, with an ellipsis where it was cut."""
    if cells(text) <= width:
        return text
    kept: list[str] = []
    left = width - 1
    for character in text:
        left -= _cell(character)
        if left < 0:
            break
        kept.append(character)
    return "".join(kept) + ELLIPSIS if width > 0 else ""


def pad(text: str, width: int) -> str:
    """`text` cut or filled with blanks to exactly `width` columns."""
    text = cut(text, width)
    return text + " " * (width - cells(text))


def indent(text: str, margin: str) -> str:
    """Every line of `text` behind `margin`, without a newline at the end."""
    return "\n".join(margin + line for line in text.rstrip("\n").split("\n"))


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
    """How long ago something was, in one unit: `17 s`, `3 min`, `2 h`, `4 d`."""
    whole = max(0, int(elapsed_s))
    for unit_s, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if whole >= unit_s:
            return f"{whole // unit_s} {unit}"
    return f"{whole} s"


def dollars(cost: float) -> str:
    """An amount of money: `$12.30`, `$0.0042`, and `<$0.0001` for what is less but not nothing."""
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


class Paint:
    """Colours, or none: every method returns its text, painted if `colour` is true."""

    def __init__(self, *, colour: bool) -> None:
        self.colour = colour

    def dim(self, text: str) -> str:
        """For what matters less."""
        return self._painted("2", text)

    def bold(self, text: str) -> str:
        """For names and headings."""
        return self._painted("1", text)

    def good(self, text: str) -> str:
        """For what succeeded, and for added lines."""
        return self._painted("32", text)

    def bad(self, text: str) -> str:
        """For what failed, and for removed lines."""
        return self._painted("31", text)

    def asking(self, text: str) -> str:
        """For what waits or wants an answer."""
        return self._painted("33", text)

    def _painted(self, code: str, text: str) -> str:
        """Each line is painted by itself, so that a cut output leaves no colour behind."""
        if not self.colour or not text:
            return text
        return "\n".join(f"\x1b[{code}m{line}\x1b[0m" if line else "" for line in text.split("\n"))


def _visible(found: re.Match[str]) -> str:
    code = ord(found.group())
    if code < 0x20:
        return chr(0x2400 + code)
    return "\u2421" if code == 0x7F else "\ufffd"


def _cell(character: str) -> int:
    if unicodedata.combining(character) or unicodedata.category(character) in ("Cf", "Me", "Mn"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
