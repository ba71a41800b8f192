"""When a user is told something: whole sessions in memory, with somebody who looks or does not."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import NamedTuple

import pytest
import trio
from msgspec import structs

from support.delegating import WORKER, calls, task
from support.notice_board import Board
from support.world import World
from tiller_daemon.config import Notify
from tiller_daemon.models.scripted import CallPart, Script, ScriptStep, TextPart
from tiller_daemon.notify.notifier import Notifier
from tiller_protocol.codec import encode_event
from tiller_protocol.events import LIFECYCLE_BODIES, LIFECYCLE_TOPIC, Event, RequestOpened
from tiller_protocol.ops import Answer, Interrupt, Replay, SessionList, SessionMarkSeen
from tiller_protocol.sessions import FOLLOW_LEASE_S

AFTER_S = 30.0
ASKED_S = 4.0
"""How often a board asks for its sessions."""

DONE = ScriptStep(parts=(TextPart("All done."),))
SECRET = "sk-0123456789abcdef"


def ask(*texts: str) -> ScriptStep:
    return ScriptStep(parts=tuple(CallPart("question", arguments={"text": text}) for text in texts))


class Place(NamedTuple):
    """A world with one session, and what its user is told."""

    world: World
    session_id: str
    board: Board

    async def looks(self, *, focus: bool = True) -> None:
        """Say that somebody looks at a frontend, or no longer."""
        await self.world.must(Replay(self.session_id, follower="chat", focus=focus))

    async def goes_on(self) -> None:
        """Run all tasks until nothing is left to do now."""
        await trio.testing.wait_all_tasks_blocked(0.01)

    async def request(self, number: int = 1) -> str:
        """Wait until a request is open, and return its id."""
        await self.world.until_body(self.session_id, RequestOpened, number)
        bodies = (event.body for event in self.world.published[self.session_id])
        opened = [body.request.id for body in bodies if isinstance(body, RequestOpened)]
        return opened[number - 1]


Starts = Callable[..., Awaitable[Place]]


@pytest.fixture
async def place(nursery: trio.Nursery) -> AsyncGenerator[Starts]:
    """Yield a function that starts a world with these steps of the model, and with a rule."""

    async def start(
        *steps: ScriptStep, rule: Notify | None = None, worker: Sequence[ScriptStep] = ()
    ) -> Place:
        scripts = {"s": Script(steps), "worker": Script(tuple(worker))}
        world, board = await World.start(nursery, scripts), Board()
        world.configuration = structs.replace(world.configuration, agents={"worker": WORKER})
        world.secrets = (SECRET,)
        rules = (rule or Notify("desktop", after_s=AFTER_S),)
        notifier = Notifier(lambda: rules, lambda _: board, world.log, lambda: world.secrets)

        def publish(event: Event) -> None:
            if isinstance(event.body, LIFECYCLE_BODIES):
                notifier.note(LIFECYCLE_TOPIC, encode_event(event))

        world.on_publish = publish
        nursery.start_soon(notifier.run, world.supervisor.presence.quiet_s)
        return Place(world, await world.session(), board)

    yield start
    nursery.cancel_scope.cancel()


async def test_a_request_is_told_once_when_nobody_has_looked_for_a_while(
    autojump_clock, place: Starts
) -> None:
    here = await place(ask("Which colour?"), DONE)
    await here.world.say(here.session_id, f"paint {SECRET}")
    await here.request()
    await trio.sleep(AFTER_S - 1)
    assert not here.board.messages, "whoever has sent the input may still be there"
    await trio.sleep(2)
    (message,) = here.board.messages
    assert message.moment == "needs_answer"
    assert "Which colour?" in message.text
    assert message.title.startswith("Needs an answer: ")
    assert message.request_id == await here.request()
    await trio.sleep(100 * AFTER_S)
    assert len(here.board.messages) == 1


async def test_a_request_that_is_withdrawn_at_once_is_not_told(
    autojump_clock, place: Starts
) -> None:
    """As `exec` does where nobody can answer."""
    here = await place(ask("Which colour?"), DONE, rule=Notify("desktop", after_s=0))
    await here.world.say(here.session_id, "paint")
    await here.request()
    await trio.sleep(1)
    await here.world.must(Interrupt(here.session_id))
    await trio.sleep(AFTER_S)
    assert not here.board.messages


async def test_nothing_is_told_while_somebody_looks(autojump_clock, place: Starts) -> None:
    here = await place(ask("Which colour?"), DONE)
    await here.world.say(here.session_id, "paint")
    await here.request()
    for _ in range(50):
        await here.looks()
        await trio.sleep(FOLLOW_LEASE_S / 4)
    await here.looks(focus=False)
    await trio.sleep(AFTER_S - 1)
    assert not here.board.messages
    await trio.sleep(2)
    assert len(here.board.messages) == 1


async def test_nothing_is_told_while_somebody_looks_at_a_board(
    autojump_clock, place: Starts
) -> None:
    here = await place(ask("Which colour?"), DONE)
    await here.world.say(here.session_id, "paint")
    await here.request()
    for _ in range(50):
        await here.world.must(SessionList(focus=True))
        await trio.sleep(ASKED_S)
    await here.world.must(SessionList())
    await trio.sleep(AFTER_S - 1 - ASKED_S)
    assert not here.board.messages
    await trio.sleep(2)
    assert len(here.board.messages) == 1


async def test_a_frontend_that_is_killed_looks_no_longer(autojump_clock, place: Starts) -> None:
    here = await place(ask("Which colour?"), DONE)
    await here.looks()
    await here.world.say(here.session_id, "paint")
    await trio.sleep(FOLLOW_LEASE_S + AFTER_S + 1)
    assert len(here.board.messages) == 1


async def test_an_answer_elsewhere_withdraws_the_message(autojump_clock, place: Starts) -> None:
    here = await place(ask("Which colour?"), DONE)
    await here.world.say(here.session_id, "paint")
    request_id = await here.request()
    await trio.sleep(AFTER_S + 1)
    assert here.session_id in here.board.shown
    await here.world.must(Answer(request_id, "answer", "blue"))
    await here.world.ended(here.session_id)
    await here.goes_on()
    assert not here.board.shown


async def test_an_answer_in_time_leaves_nothing_to_tell(autojump_clock, place: Starts) -> None:
    here = await place(ask("Which colour?"), DONE)
    await here.world.say(here.session_id, "paint")
    await here.world.must(Answer(await here.request(), "answer", "blue"))
    await here.world.ended(here.session_id)
    await trio.sleep(10 * AFTER_S)
    assert not here.board.messages, "the turn was short, too"


async def test_requests_of_one_session_are_one_message(autojump_clock, place: Starts) -> None:
    here = await place(ask("Which colour?", "Which size?"), DONE)
    await here.world.say(here.session_id, "paint")
    first, second = await here.request(1), await here.request(2)
    await trio.sleep(AFTER_S + 1)
    (message,) = here.board.messages
    assert message.text.endswith("(and 1 more)")
    await here.world.must(Answer(first, "answer", "blue"))
    await here.goes_on()
    assert here.session_id in here.board.shown, "one is still open"
    await here.world.must(Answer(second, "answer", "big"))
    await here.goes_on()
    assert not here.board.shown


async def test_a_new_request_replaces_the_message_about_the_last(
    autojump_clock, place: Starts
) -> None:
    here = await place(ask("Which colour?"), ask("Which size?"), DONE)
    await here.world.say(here.session_id, "paint")
    request_id = await here.request()
    await trio.sleep(AFTER_S + 1)
    await here.world.must(Answer(request_id, "answer", "blue"))
    await here.request(2)
    await trio.sleep(AFTER_S + 1)
    assert [one.text for one in here.board.messages] == ["Which colour?", "Which size?"]
    assert here.board.shown == {here.session_id: "Which size?"}


async def test_the_end_of_a_long_turn_is_told_until_it_was_seen(
    autojump_clock, place: Starts
) -> None:
    here = await place(ask("Go?"), DONE)
    await here.world.say(here.session_id, "paint")
    request_id = await here.request()
    await trio.sleep(2 * AFTER_S)
    await here.world.must(Answer(request_id, "answer", "yes"))
    await here.world.ended(here.session_id)
    await trio.sleep(AFTER_S + 1)
    assert here.board.shown == {here.session_id: "All done."}
    assert here.board.messages[-1].moment == "ended"
    head = len(await here.world.events(here.session_id))
    await here.world.must(SessionMarkSeen(here.session_id, until=head))
    await here.goes_on()
    assert not here.board.shown


async def test_a_user_who_interrupts_is_told_nothing(autojump_clock, place: Starts) -> None:
    here = await place(ask("Go?"), DONE)
    await here.world.say(here.session_id, "paint")
    await here.request()
    await trio.sleep(2 * AFTER_S)
    told = len(here.board.messages)
    await here.world.must(Interrupt(here.session_id))
    await here.world.ended(here.session_id)
    await trio.sleep(2 * AFTER_S)
    assert len(here.board.messages) == told
    assert not here.board.shown


async def test_new_work_withdraws_the_end_of_the_last_turn(autojump_clock, place: Starts) -> None:
    here = await place(ask("Go?"), DONE, ask("On?"), DONE)
    await here.world.say(here.session_id, "paint")
    request_id = await here.request()
    await trio.sleep(2 * AFTER_S)
    await here.world.must(Answer(request_id, "answer", "yes"))
    await here.world.ended(here.session_id)
    await trio.sleep(AFTER_S + 1)
    assert here.board.messages[-1].moment == "ended"
    await here.world.say(here.session_id, "go on")
    await here.request(2)
    await here.goes_on()
    assert not here.board.shown


async def test_a_sub_agent_is_told_of_as_the_session_that_it_works_for(
    autojump_clock, place: Starts
) -> None:
    waits = ask("Which way?")
    here = await place(calls(task()), DONE, worker=(waits, DONE))
    await here.world.say(here.session_id, "paint")
    request_id = await here.request()
    await trio.sleep(2 * AFTER_S)
    (message,) = here.board.messages
    assert (message.session_id, message.request_id) == (here.session_id, request_id)
    await here.world.must(Answer(request_id, "answer", "left"))
    await here.world.ended(here.session_id)
    await trio.sleep(AFTER_S + 1)
    assert [one.session_id for one in here.board.messages] == [here.session_id] * 2
    assert here.board.messages[-1].moment == "ended", "the end of the sub-agent's turn is no news"


async def test_a_rule_for_failures_tells_nothing_else(autojump_clock, place: Starts) -> None:
    rule = Notify("desktop", on=("failed",), after_s=AFTER_S)
    here = await place(ask("Go?"), DONE, rule=rule)
    await here.world.say(here.session_id, "paint")
    await here.request()
    await trio.sleep(10 * AFTER_S)
    assert not here.board.messages


async def test_without_rules_nothing_is_kept(autojump_clock, nursery: trio.Nursery) -> None:
    world = await World.start(nursery, {"s": Script((DONE,))})
    notifier = Notifier(tuple, lambda _: Board(), world.log, tuple)
    notifier.note(LIFECYCLE_TOPIC, b"not even decoded")
    nursery.start_soon(notifier.run, world.supervisor.presence.quiet_s)
    await trio.testing.wait_all_tasks_blocked(0.01)
    nursery.cancel_scope.cancel()
