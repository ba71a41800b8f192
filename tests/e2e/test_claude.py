"""A strict Claude over real HTTP, which refuses a thought that follows any other content."""

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from itertools import pairwise
from pathlib import Path

import pytest
import trio

from support.claude import HIDES, StrictClaude, claude, says, thinks, uses
from support.daemon import Daemon
from support.dialect_anthropic import THINKING, Block, spoken
from support.frontend import Frontend
from support.http_server import serving, status
from tiller_daemon.turn.tokens import PRUNED_OUTPUT
from tiller_protocol.events import Event, ItemCompleted
from tiller_protocol.items import Reasoning
from tiller_protocol.ops import Compact, Interrupt
from tiller_protocol.settings import TurnOverrides

CONFIG = """\
model = "claude/claude-opus-4-8"
small_model = "scripted/untitled"

[providers.claude]
api = "anthropic_messages"
base_url = "{url}"

[providers.scripted]
api = "scripted"
scripts = "../scripts"
record = "../requests.jsonl"

[models."claude/claude-opus-4-8"]
context_window = 1_000_000
"""

OLD = "claude/claude-haiku-4-5"
NEW = "claude/claude-opus-4-8"

Talking = Callable[..., AbstractAsyncContextManager[tuple[Frontend, StrictClaude, str]]]


@pytest.fixture
def talking(daemon: Daemon, workspace: Path, nursery: trio.Nursery) -> Talking:
    """Return a function that starts a session with a strict Claude that gives these answers."""

    @asynccontextmanager
    async def talking(
        *answers: list[Block], **settings: object
    ) -> AsyncGenerator[tuple[Frontend, StrictClaude, str]]:
        async with serving(status(500)) as server:
            strict = claude(server, *answers)
            daemon.configure(CONFIG.format(url=server.base_url))
            frontend = await Frontend.connect(daemon, nursery)
            model = settings.pop("model", NEW)
            session_id = await frontend.session(workspace, model=str(model), **settings)
            yield frontend, strict, session_id
            await frontend.close()
            assert strict.refused == []

    return talking


def thoughts(strict: StrictClaude, number: int = -1) -> list[str]:
    """Return the thinking that a request sent back."""
    blocks = [b for m in strict.bodies[number]["messages"] for b in m["content"]]
    return [block.get("thinking", "…") for block in blocks if block["type"] in THINKING]


async def say(
    frontend: Frontend, session_id: str, number: int, text: str = "go on", **overrides: object
) -> str:
    """Have a turn, and return how it ended."""
    chosen = TurnOverrides(**overrides)  # pyright: ignore[reportArgumentType]
    await frontend.say(session_id, text, overrides=chosen)
    return (await frontend.turn_ended(session_id, number)).outcome


LOOK = uses("read", path="greeting.txt")


@pytest.mark.parametrize("model", [NEW, OLD])
async def test_thinking_goes_back_in_its_place_through_steps_turns_and_a_restart(
    talking: Talking, model: str
) -> None:
    """B2, B44, G4: blocks of every kind, signed or sealed, go back unchanged."""
    steps = [
        [thinks("One thing."), HIDES, says("Let me look."), LOOK, uses("ls", path=".")],
        [thinks("Another."), uses("grep", pattern="hello")],
        [thinks("So it is."), says("Done.")],
        [thinks("More."), LOOK],
        [says("All done.")],
    ]
    async with talking(*steps, model=model, variant="high") as (frontend, strict, session_id):
        assert await say(frontend, session_id, 1) == "completed"
        frontend.daemon.restart()
        await frontend.reconnect()
        assert await say(frontend, session_id, 2) == "completed"
        assert thoughts(strict) == ["One thing.", "…", "Another.", "So it is.", "More."]
        sent = [spoken(body) for body in strict.bodies]
        assert len(sent) == 5
        for shorter, longer in pairwise(sent):
            assert longer[: len(shorter)] == shorter


async def test_a_turn_that_is_steered_and_interrupted_is_still_taken_back(
    talking: Talking,
) -> None:
    """B16, B24."""
    steps = [
        [thinks("One."), uses("bash", command="touch begun; sleep 100"), LOOK],
        [thinks("Two."), LOOK],
        [says("Done.")],
    ]
    async with talking(*steps) as (frontend, strict, session_id):
        await frontend.say(session_id)
        await frontend.until_call(session_id, "running")
        await frontend.say(session_id, "use pathlib")
        await frontend.must(Interrupt(session_id))
        assert (await frontend.turn_ended(session_id)).outcome == "interrupted"
        assert await say(frontend, session_id, 2) == "completed"
        assert thoughts(strict) == ["One.", "Two."]


async def test_what_changes_before_a_thought_costs_the_thought_and_not_the_session(
    talking: Talking, workspace: Path
) -> None:
    """Other instructions, other tools, another model and back."""
    steps = [[thinks(f"Number {n}."), says(f"Answer {n}.")] for n in range(1, 9)]
    async with talking(*steps) as (frontend, strict, session_id):
        assert await say(frontend, session_id, 1) == "completed"
        (workspace / "AGENTS.md").write_text("Be brief.")
        assert await say(frontend, session_id, 2) == "completed"
        assert thoughts(strict) == []
        assert await say(frontend, session_id, 3) == "completed"
        assert thoughts(strict) == ["Number 2."]
        assert await say(frontend, session_id, 4, tools=("read",)) == "completed"
        assert thoughts(strict) == []
        assert await say(frontend, session_id, 5, model=OLD, variant="high") == "completed"
        assert thoughts(strict) == []
        assert await say(frontend, session_id, 6) == "completed"
        assert thoughts(strict) == ["Number 2.", "Number 3."]
        (workspace / "AGENTS.md").unlink()
        assert await say(frontend, session_id, 7) == "completed"
        assert thoughts(strict) == ["Number 1."]


async def test_the_last_step_a_summary_and_pruning_are_taken(talking: Talking) -> None:
    """B8, B41, B44: requests without tools, after a summary, and with old output removed."""
    numbers = "seq -s ' ' {0}00000 {0}07000 | fold -w 200"
    commands = [uses("bash", command=numbers.format(n)) for n in range(1, 9)]
    steps = [
        [thinks("One."), LOOK],
        [thinks("Two."), says("The limit.")],
        [thinks("Three."), *commands],
        [thinks("Four."), says("Counted.")],
        [thinks("Five."), says("Pruned.")],
        [says("A summary of it all.")],
        [thinks("Six."), LOOK],
        [says("Done.")],
    ]
    async with talking(*steps) as (frontend, strict, session_id):
        assert await say(frontend, session_id, 1, max_steps=2) == "limit_reached"
        assert strict.bodies[1]["tool_choice"] == {"type": "none"}
        assert await say(frontend, session_id, 2) == "completed"
        assert await say(frontend, session_id, 3) == "completed"
        assert str(strict.bodies[-1]).count(PRUNED_OUTPUT) == 6
        assert thoughts(strict) == ["One."]
        await frontend.must(Compact(session_id))
        assert (await frontend.turn_ended(session_id, 4)).outcome == "completed"
        assert await say(frontend, session_id, 5) == "completed"
        assert "A summary of it all." in str(strict.bodies[-1]["messages"][0])
        assert thoughts(strict) == ["Six."]


async def test_hidden_thinking_is_an_item_without_text(talking: Talking) -> None:
    """A frontend shows nothing, and the log keeps the block that the provider needs back."""
    async with talking([HIDES, says("Done.")]) as (frontend, _, session_id):
        assert await say(frontend, session_id, 1) == "completed"

        def is_thought(event: Event) -> bool:
            return isinstance(event.body, ItemCompleted) and isinstance(event.body.item, Reasoning)

        event = await frontend.until(session_id, is_thought)
        assert isinstance(event.body, ItemCompleted)
        assert isinstance(event.body.item, Reasoning)
        assert event.body.item.text == ""
        assert "sealed-0" in event.body.item.opaque
