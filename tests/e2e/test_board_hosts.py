"""A board of several hosts over real OpenSSH: one answers, one is slow, one is not there."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
import trio

from e2e import test_hosts
from e2e.test_hosts import FAR_AWAY_S, Fleet
from e2e.words import always, bash, calls
from support.chat import ChatTerminal
from support.frontend import Frontend
from tiller_protocol.ops import SessionConfigure

fleet, fast = test_hosts.fleet, test_hosts.fast
ANSWERABLE = "a letter chooses, Enter answers"


class _Home:
    """The environment of this machine's frontend."""

    def __init__(self, fleet: Fleet) -> None:
        self.variables = fleet.here.variables


@pytest.fixture
async def board(fleet: Fleet) -> AsyncGenerator[ChatTerminal]:
    board = ChatTerminal.start(_Home(fleet), "board", size=(120, 40))
    yield board
    board.close()


async def titled(frontend: Frontend, workspace: Path, title: str, *steps: object) -> str:
    session = await frontend.session(workspace, *steps, approve="ask")  # type: ignore[arg-type]
    await frontend.must(SessionConfigure(session, title=title))
    return session


async def test_a_host_is_answered_from_here_while_others_are_slow_or_gone(
    fleet: Fleet,
    board: ChatTerminal,
    workspace: Path,
    nursery: trio.Nursery,
) -> None:
    fleet.link.delay_s = FAR_AWAY_S / 2
    here = await Frontend.connect(fleet.here, nursery)
    box = await Frontend.connect(fleet.far["box"], nursery)
    slow = await Frontend.connect(fleet.far["slow"], nursery)
    await titled(here, workspace, "Near task", always("done"))
    await titled(slow, workspace, "Slow task", always("done"))
    asking = await titled(
        box, workspace, "Far task", calls(bash("touch far")), always("It is far.")
    )
    await board.sees("Near task", "Far task", "! gone can't be reached: ssh can't reach gone")
    await box.say(asking)
    await board.sees("needs you · 1", "? Far task", "box:repository", "touch far")
    board.press("na")
    await board.sees(ANSWERABLE)
    board.press("y\r")
    await board.sees("✓ Far task", "It is far.")
    await board.until(lambda: "Slow task" in board.screen)
    assert (workspace / "far").exists()


async def test_rows_of_a_host_that_stops_stay_and_come_back(
    fleet: Fleet,
    board: ChatTerminal,
    workspace: Path,
    nursery: trio.Nursery,
) -> None:
    slow = await Frontend.connect(fleet.far["slow"], nursery)
    session = await titled(slow, workspace, "Held task", always("It went on."))
    await board.sees("Held task")
    fleet.link.hold()
    await slow.say(session)
    await slow.turn_ended(session)
    await board.sees("! slow has said nothing for", "Held task")
    assert "It went on." not in board.screen
    fleet.link.release()
    await board.sees("✓ Held task", "It went on.")
    await board.until(lambda: "slow has said" not in board.screen)
