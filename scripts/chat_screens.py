"""Draws every state of `tiller chat` into docs/chat, and writes a page that shows the pictures.

    .venv/bin/python scripts/chat_screens.py
    .venv/bin/python scripts/chat_screens.py --everything --into /tmp/screens diff edit

Runs the real daemon with a scripted model on a terminal. Times and paths are replaced, so that
every run draws the same pictures. Every state is drawn in 80 columns and dark colours; the main
states, or with `--everything` all states, are drawn in both sizes and palettes. Outside docs/chat,
each state is written as text, too.
"""

import argparse
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests")]

import trio  # noqa: E402

from support.daemon import Daemon  # noqa: E402 - found there
from support.screens import STATES  # noqa: E402
from support.screens.drawing import PALETTES, Palette, draw  # noqa: E402
from support.screens.normal import normalised  # noqa: E402
from support.screens.stage import CONFIG, Stage, State, make_workspace  # noqa: E402

DOCS = ROOT / "docs/chat"
SIZES = ((80, 24), (200, 50))
SHOWN_AS = "/home/ann/accounts"
"""The workspace shown in the pictures; the real path is as long, so that lines break alike."""


PAGE = """\
# Every state of `tiller chat`

`scripts/chat_screens.py` draws these pictures, with a scripted model.
[chat.md](../chat.md) describes the keys and commands.
"""


async def play(state: State, size: tuple[int, int], palette: Palette, into: Path) -> None:
    """Play a state and draw it; in the first palette, write it as text, too."""
    prefix = "s" * (len(SHOWN_AS) - len("/tmp/12345678"))
    with (
        tempfile.TemporaryDirectory(prefix="d-", dir="/tmp") as home,
        tempfile.TemporaryDirectory(prefix=prefix, dir="/tmp") as workspace,
        Daemon(Path(home), CONFIG) as daemon,
    ):
        make_workspace(Path(workspace))
        async with trio.open_nursery() as nursery:
            variables = {"COLORTERM": "truecolor", "TILLER_THEME": palette.theme}
            stage = Stage(daemon, Path(workspace), nursery, size, **variables)
            try:
                await state.play(stage)
                await _write(stage, state, size, palette, into)
            finally:
                stage.close()
                nursery.cancel_scope.cancel()


async def _write(
    stage: Stage, state: State, size: tuple[int, int], palette: Palette, into: Path
) -> None:
    chat = stage.shown
    rows = normalised(chat.cells, str(stage.workspace), SHOWN_AS)
    name = f"{state.name}-{size[0]}x{size[1]}-{palette.theme}"
    draw(rows, chat.cursor, palette).save(into / f"{name}.png", optimize=True)
    text = "\n".join("".join(cell.data for cell in row).rstrip() for row in rows)
    if palette is PALETTES[0] and into != DOCS:
        (into / f"{state.name}-{size[0]}x{size[1]}.txt").write_text(text.rstrip() + "\n")


async def play_all(arguments: argparse.Namespace) -> None:
    """Play the requested states in each size and palette that is due, and write the page."""
    arguments.into.mkdir(exist_ok=True)
    for state in STATES:
        if arguments.states and state.name not in arguments.states:
            continue
        for size in SIZES:
            for palette in PALETTES:
                is_first = (size, palette) == (SIZES[0], PALETTES[0])
                if is_first or state.main or arguments.everything:
                    await play(state, size, palette, arguments.into)
        print(state.name)
    (arguments.into / "README.md").write_text(PAGE + "".join(map(_entry, STATES)))


def _entry(state: State) -> str:
    """Return the section of the page about a state."""
    first = f"{state.name}-{SIZES[0][0]}x{SIZES[0][1]}-{PALETTES[0].theme}.png"
    others = [
        f"[{columns} columns, {palette.theme}]({state.name}-{columns}x{lines}-{palette.theme}.png)"
        for columns, lines in SIZES
        for palette in PALETTES
        if (columns, palette) != (SIZES[0][0], PALETTES[0])
    ]
    also = f"\n\nAlso: {', '.join(others)}." if state.main else ""
    return f"\n## {state.about}\n\n![{state.about}]({first}){also}\n"


def main() -> None:
    """Read the arguments and draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("states", nargs="*", help="draw only these states")
    parser.add_argument("--into", type=Path, default=DOCS)
    parser.add_argument("--everything", action="store_true", help="draw all sizes and palettes")
    trio.run(play_all, parser.parse_args())


if __name__ == "__main__":
    main()
