"""What a person sees of `tiller chat` in every state, on terminals of several sizes."""

from collections.abc import AsyncGenerator, Callable, Generator
from pathlib import Path
from typing import Any

import pytest
import trio
from pyte.screens import Char

from support.chat import ChatTerminal
from support.daemon import Daemon
from support.pictures import picture
from support.screens import STATES
from support.screens.stage import (
    BUSY,
    CONFIG,
    MODEL,
    READY,
    Stage,
    State,
    make_workspace,
    says,
    stays,
)
from support.tmux import TMUX, Tmux
from tiller_client.chat.rows import PROMPT
from tiller_daemon.models.scripted import TextPart

PICTURES = Path(__file__).parents[3] / "docs/chat"
SIZES = ((80, 24), (200, 50))

NARROW = {
    "beside": " ∥3",
    "delegating": "○ task scout: Find out … running",
    "help": "  Esc Esc            revert to an earl…",
    "plan": "  ☐ Add a test with names in capitals",
    "slash": "/sessions  open a recent session, or…",
    "thought": "· 1 step · ",
}
"""Texts as they look on a terminal with 40 columns, by state."""

Stages = Callable[..., Stage]


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Generator[Daemon]:
    with Daemon(tmp_path_factory.mktemp("d"), CONFIG) as daemon:
        yield daemon


@pytest.fixture
async def stages(
    daemon: Daemon,
    new_daemon: Callable[..., Daemon],
    tmp_path: Path,
    nursery: trio.Nursery,
) -> AsyncGenerator[Stages]:
    """Yield a function that makes stages, with a separate daemon for a stage that needs one."""
    made: list[Stage] = []

    def make(size: tuple[int, int] = SIZES[0], *, alone: bool = False, **variables: str) -> Stage:
        used = new_daemon(CONFIG) if alone else daemon
        if alone:
            used.start()
        workspace = tmp_path / "accounts"
        make_workspace(workspace)
        made.append(Stage(used, workspace, nursery, size, **variables))
        return made[-1]

    yield make
    for stage in made:
        stage.close()


@pytest.fixture(scope="module")
def tmux() -> Generator[Tmux | None]:
    """Yield tmux where it is installed, else None."""
    if TMUX is None:
        yield None
        return
    with Tmux() as tmux:
        yield tmux


def visible(rows: list[list[Char]]) -> list[list[Char]]:
    """Return the cells without the style of blank cells, as tmux omits blanks."""
    look = {"fg": "default", "bold": False, "blink": False}
    return [[one._replace(**look) if one.data == " " else one for one in row] for row in rows]


def check_in_tmux(chat: ChatTerminal, tmux: Tmux) -> None:
    """Check that a real terminal shows the same as the emulator."""
    tmux.show(chat.written, chat.size)
    assert [row.rstrip() for row in tmux.captured()] == chat.rows
    assert visible(tmux.cells(chat.size)) == visible(chat.cells)
    assert tmux.cursor == chat.cursor


def check(chat: ChatTerminal) -> None:
    """Check what holds on every screen."""
    filled = [row for row in chat.rows if row]
    assert any(f" {word}" in f" {filled[-1]}" for word in ("build", "·")), "the status is last"
    editor = [number for number, row in enumerate(chat.rows) if row.startswith(PROMPT.strip())]
    assert len(editor) == 1, "there is one place to write in"
    assert chat.cursor[0] >= editor[0], "the cursor is there"
    assert "\n\n\n" not in chat.text.strip(), "no two blank rows follow each other"
    assert not set(chat.text) & set("␛␀⟨"), "nothing had to be escaped"
    assert chat.text == chat.text_of_a_wider_one, "no line is wider than the terminal"


@pytest.mark.parametrize(
    ("state", "size"),
    # All states in both sizes would take a minute more. `scripts/chat_screens.py --everything`
    # draws them.
    [(state, size) for state in STATES for size in (SIZES if state.main else SIZES[:1])],
    ids=lambda one: one.name if isinstance(one, State) else f"{one[0]}x{one[1]}",
)
@pytest.mark.nightly
async def test_a_person_sees_it(
    stages: Stages, tmux: Tmux | None, state: State, size: tuple[int, int]
) -> None:
    stage = stages(size, alone=state.alone)
    await state.play(stage)
    check(stage.shown)
    if tmux is not None:
        check_in_tmux(stage.shown, tmux)


@pytest.mark.parametrize(("state", "shown"), NARROW.items())
async def test_a_narrow_terminal_says_less(stages: Stages, state: str, shown: str) -> None:
    stage = stages((40, 24))
    await next(one for one in STATES if one.name == state).play(stage)
    await stage.shown.shows(shown)
    check(stage.shown)


def test_every_state_has_a_picture_and_every_picture_a_state() -> None:
    """`scripts/chat_screens.py` draws them."""
    drawn = {path.name.split("-")[0] for path in PICTURES.glob("*.png")}
    assert drawn == {state.name for state in STATES}


@pytest.mark.parametrize(
    ("variables", "sequence"),
    [
        ({"term": "xterm-kitty"}, "\x1b_Ga=T,f=100,q=2,c=52,r=16,m="),
        ({"TERM_PROGRAM": "iTerm.app"}, "\x1b]1337;File=inline=1;size="),
        ({"TERM_PROGRAM": "WezTerm"}, "\x1b]1337;File=inline=1;size="),
        ({"term": "foot"}, '\x1bP0;1;0q"1;1;509;318#'),
    ],
)
async def test_an_image_is_drawn_where_the_terminal_can(
    stages: Stages, variables: dict[str, Any], sequence: str
) -> None:
    stage = stages()
    (stage.workspace / "login.png").write_bytes(picture(size=(640, 400)))
    chat = await stage.chat(says(TextPart("It is blue.")), **variables)
    chat.press("what is this: @login.png ?\r")
    await chat.shows("640x400", "■ completed")
    assert chat.written.count(sequence) == 1


@pytest.mark.parametrize(
    ("arguments", "command", "now"),
    [
        (("-m", "local/devstral-small"), "model", "local/devstral-small"),
        ((), "model", "local/qwen3-coder"),
        (("--variant", "deep"), "variant", "deep"),
        ((), "variant", "default"),
        (("--agent", "plan"), "agent", "plan"),
        (("--approve", "never"), "approve", "never"),
        (("--sandbox", "workspace_write"), "sandbox", "workspace write"),
        ((), "sandbox", "full access"),
    ],
)
async def test_a_menu_opens_at_what_holds_now(
    stages: Stages, arguments: tuple[str, ...], command: str, now: str
) -> None:
    stage = stages()
    chat = stage.open("chat", "-C", str(stage.workspace), *arguments)
    await chat.sees(READY)
    chat.press(f"/{command}\r")
    await chat.sees(f"{command}:", f"▸ {now}")


async def test_a_chat_may_begin_with_a_message(stages: Stages) -> None:
    stage = stages()
    stage.daemon.play(MODEL, says(TextPart("Repaired.")), says(TextPart("Again.")))
    directory = ("-C", str(stage.workspace))
    for words in (
        ("repair the test", *directory),
        ("chat", *directory, "repair the test"),
        (*directory, "--plain", "repair the test"),
    ):
        chat = stage.open(*words)
        await chat.sees("repair the test", "Repaired.")
    again = stage.open("chat", *directory, "last", "twice")
    await again.sees("Repaired.", "twice", "Again.", READY)


async def test_a_session_that_is_opened_again_tells_an_interruption_once(stages: Stages) -> None:
    stage = stages()
    chat = await stage.asked(stays(TextPart("I look at")), prompt="repair it")
    await chat.sees("I look at", BUSY)
    chat.press("\x1b")
    await chat.sees("■ interrupted", READY)
    again = stage.open("chat", "-C", str(stage.workspace), "-c")
    await again.sees("I look at", "(interrupted)", READY)
    assert again.text.count("interrupted") == 1


async def test_who_ends_with_the_last_step_is_told_of_the_limit(stages: Stages) -> None:
    stage = stages()
    arguments = ("--max-steps", "1")
    chat = await stage.asked(says(TextPart("Done.")), prompt="repair it", arguments=arguments)
    await chat.sees("■ limit reached", "! The turn's limit of 1 step is reached.", READY)
    assert chat.text.index("Done.") < chat.text.index("■ limit reached")
    assert chat.text.count("limit of 1 step") == 1


async def test_that_the_daemon_is_away_is_said_as_quietly_as_the_rest(stages: Stages) -> None:
    stage = stages(alone=True)
    chat = await stage.chat()
    hint = colours(chat, READY)
    await stage.daemon.terminate()
    await chat.sees("the daemon is not running; your next message starts it")
    assert colours(chat, "the daemon is not running") == hint
    assert hint.isdisjoint({"default", "red"})


def colours(chat: ChatTerminal, text: str) -> set[str]:
    """Return the colours of a text on the screen, after the editor's mark."""
    row = next(number for number, row in enumerate(chat.rows) if text in row)
    return {cell.fg for cell in chat.cells[row][len(PROMPT) :] if cell.data.strip()}


async def test_no_colours_are_shown_to_who_wants_none(stages: Stages) -> None:
    stage = stages(NO_COLOR="1")
    chat = await stage.asked(says(TextPart("# One\n\n`two` **three**")), prompt="say it")
    await chat.sees("# One", "`two` three", "■ completed", READY)
    cells = [cell for row in chat.cells for cell in row]
    assert {(cell.fg, cell.bg, cell.bold, cell.blink) for cell in cells} == {
        ("default", "default", False, False)
    }
