"""Writing in the chat: images, completions, and rows."""

import shlex
from collections.abc import Callable
from pathlib import Path

from e2e.chat.test_chat import READY, newest
from e2e.words import always
from support.chat import ChatTerminal
from support.daemon import Daemon
from support.frontend import Frontend
from support.pictures import picture
from tiller_client.chat.rows import PROMPT
from tiller_protocol.items import UserMessage

Opens = Callable[..., ChatTerminal]

UP, DOWN, CTRL_V = "\x1b[A", "\x1b[B", "\x16"


async def sent(frontend: Frontend) -> UserMessage:
    """The first message of the newest session."""
    items = (await frontend.snapshot((await newest(frontend)).session_id)).items
    (message,) = [item for item in items if isinstance(item, UserMessage)]
    return message


async def test_an_image_dropped_into_a_question_is_shown_and_sent(
    opens: Opens, daemon: Daemon, frontend: Frontend
) -> None:
    shot = daemon.home / "my pics" / "a b.png"
    shot.parent.mkdir()
    shot.write_bytes(picture())
    chat = opens("-m", daemon.script(always("Seen.")))
    await chat.shows(READY)
    chat.press("what is in ")
    chat.paste(f"{shlex.quote(str(shot))} ")
    await chat.sees("[image: a b.png]")
    chat.press("and @nofile.png")
    await chat.sees("[no such file: nofile.png]")
    chat.press("\r")
    await chat.shows("Seen.", READY)
    assert len((await sent(frontend)).images) == 1
    assert "[image:" not in chat.screen.rpartition("completed")[2]


async def test_the_image_in_the_clipboard_is_attached(
    opens: Opens, daemon: Daemon, frontend: Frontend
) -> None:
    programs = daemon.home / "programs"
    programs.mkdir()
    (daemon.home / "clipboard.png").write_bytes(picture())
    for name in ("wl-paste", "xclip"):  # the first one finds no image
        program = programs / name
        program.write_text(
            "#!/bin/sh\n" + ("exit 1" if name == "wl-paste" else f"cat {daemon.home}/clipboard.png")
        )
        program.chmod(0o755)
    path = f"{programs}:{daemon.variables['PATH']}"
    chat = opens("-m", daemon.script(always("Seen.")), PATH=path)
    await chat.shows(READY)
    chat.press(f"what is in{CTRL_V}")
    await chat.sees("[image: clipboard-1.png]")
    chat.press("?\r")
    await chat.shows("Seen.", READY)
    assert len((await sent(frontend)).images) == 1


async def test_enter_takes_the_highlighted_completion(
    opens: Opens, daemon: Daemon, frontend: Frontend, workspace: Path
) -> None:
    (workspace / "utils one.py").touch()
    chat = opens("-m", daemon.script(always("Read.")))
    await chat.shows(READY)
    chat.press("/mod")
    await chat.sees("/model")
    chat.press("\r")
    await chat.sees("model:", "Enter, Esc; type to search")
    chat.press("\x1b")
    await chat.until(lambda: "type to search" not in chat.screen)
    chat.press("see @uti")
    await chat.until(lambda: any(row.strip() == "utils one.py" for row in chat.rows))
    chat.press("\r")
    await chat.until(lambda: chat.rows[chat.cursor[0]] == f'{PROMPT}see @"utils one.py"')
    chat.press("and @greeting.txt")
    await chat.until(lambda: any(row.strip() == "greeting.txt" for row in chat.rows))
    chat.press("\r")  # the name is there as a whole, so this sends
    await chat.shows("Read.", READY)
    files = [Path(one).name for one in (await sent(frontend)).files]
    assert files == ["utils one.py", "greeting.txt"]


async def test_up_and_down_move_by_rows_and_rows_break_between_words(
    opens: Opens, daemon: Daemon
) -> None:
    chat = opens("-m", daemon.script(always("Read.")), size=(40, 24))
    await chat.shows(READY)
    chat.press("sent before\r")
    await chat.shows("Read.", READY)
    words = "a paragraph of several words that is longer than a row of this one"
    chat.press(words)
    rows = ["a paragraph of several words that is", "longer than a row of this one"]
    await chat.until(lambda: rows[1] in chat.screen)
    row = chat.cursor[0]
    assert [chat.rows[row - 1][2:], chat.rows[row][2:]] == rows
    chat.press(UP)
    await chat.until(lambda: chat.cursor[0] == row - 1)
    chat.press(UP)
    await chat.until(lambda: chat.rows[chat.cursor[0]] == f"{PROMPT}sent before")
    chat.press(DOWN)
    await chat.until(lambda: rows[1] in chat.screen)
