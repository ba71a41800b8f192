"""Limits on a chat's start: its imports before the first frame, and layout that it must not do.

Raise a maximum only for code that the first frame needs, and in the same commit.
"""

import ast
from pathlib import Path

from e2e.chat.test_chat import READY, Opens
from e2e.words import always
from support.daemon import Daemon

FIRST_FRAME_MODULES_MAX = 216
"""Modules in memory when the first frame is drawn."""

HEAVY = {"asyncio", "prompt_toolkit", "markdown_it", "pygments", "PIL", "ssl"}

LAID_OUT = "Window.write_to_screen"
"""The method that prompt-toolkit's renderer would call."""

NOTING = """
import os, sys
from tiller_client.__main__ import main
modules, called = [], set()
def note(frame, event, _argument):
    if event == "call":
        called.add(frame.f_code.co_qualname)
        if frame.f_code.co_qualname == "Painter.paint" and not modules:
            modules.extend(sorted(sys.modules))
sys.setprofile(note)
main(sys.argv[1:])
sys.setprofile(None)
loaded = [name for name, module in sys.modules.items() if module]
with open(os.environ["NOTED"], "w") as file:
    print((modules, sorted(called), loaded), file=file)
"""


async def test_the_first_frame_is_drawn_before_what_reads_keys_is_imported(
    opens: Opens, daemon: Daemon, tmp_path: Path
) -> None:
    noted = tmp_path / "noted"
    chat = opens("-m", daemon.script(always("Read.")), program=("-c", NOTING), NOTED=str(noted))
    await chat.shows(READY)
    chat.press("go\r")
    await chat.shows("completed")
    chat.press("\x04")
    assert await chat.end() == 0
    modules, called, loaded = ast.literal_eval(noted.read_text())
    assert HEAVY.isdisjoint(modules)
    assert len(modules) <= FIRST_FRAME_MODULES_MAX
    assert "ssl" not in loaded
    assert "Screen.draw" in called
    assert LAID_OUT not in called
