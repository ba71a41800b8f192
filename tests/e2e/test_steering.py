"""Steering and the queue: input that arrives while a turn runs."""

from pathlib import Path

import pytest
import trio

from e2e.clients import Tillers
from e2e.gates import Gate
from e2e.words import always, bash, calls, calls_in, hang, said_in, text
from support.daemon import Daemon
from support.frontend import Frontend, new_id
from tiller_daemon.models.scripted import (
    Failure,
    ScriptedUsage,
    ScriptStep,
    TextPart,
    WaitPart,
)
from tiller_protocol.answers import Accepted, AnyAnswer, Queued, Rejected, Started, Steered
from tiller_protocol.events import ItemDelta, QueueChanged, TurnEnded, TurnStarted
from tiller_protocol.items import Compaction, UserMessage
from tiller_protocol.ops import Compact, Interrupt, QueueEdit, TurnContinue, UserInput


@pytest.mark.promise("B13")
async def test_steering_without_a_turn_is_handed_back(frontend: Frontend, workspace: Path) -> None:
    """Steer with no turn → `no_active_turn`, the input is handed back, nothing is recorded."""
    session_id = await frontend.session(workspace, text("done"))
    refused = await frontend.refused(UserInput(session_id, "to the left", delivery="steer"))
    assert refused.code == "no_active_turn"
    assert refused.data["input"]["text"] == "to the left"
    assert [event.seq for event in await frontend.log(session_id)] == [1]


@pytest.mark.promise("B14")
async def test_steering_another_turn_changes_nothing(frontend: Frontend, workspace: Path) -> None:
    """Steer with a wrong `expected_turn_id` → the answer has the right id; the turn continues."""
    gate = Gate(workspace)
    session_id = await frontend.session(workspace, calls(bash(gate.command)), text("done"))
    started = await frontend.say(session_id)
    await gate.reached()
    refused = await frontend.refused(
        UserInput(session_id, "left", delivery="steer", expected_turn_id="another")
    )
    assert isinstance(started, Started)
    assert (refused.code, refused.data["turn_id"]) == ("expected_turn_mismatch", started.turn_id)
    gate.open()
    assert (await frontend.turn_ended(session_id)).outcome == "completed"
    assert said_in(frontend.requests(session_id)[-1].items) == ["go"]


@pytest.mark.promise("B15")
async def test_an_empty_steer_is_rejected(frontend: Frontend, workspace: Path) -> None:
    """Empty steer → `empty_input`."""
    gate = Gate(workspace)
    session_id = await frontend.session(workspace, calls(bash(gate.command)), text("done"))
    await frontend.say(session_id)
    await gate.reached()
    for nothing in ("", " ", "\n\t "):
        refused = await frontend.refused(UserInput(session_id, nothing, delivery="steer"))
        assert refused.code == "empty_input"
    gate.open()
    await frontend.turn_ended(session_id)
    assert said_in(frontend.requests(session_id)[-1].items) == ["go"]


@pytest.mark.promise("B15")
async def test_a_compaction_turn_takes_no_steering(
    frontend: Frontend, workspace: Path, daemon: Daemon
) -> None:
    """Steer during a compaction turn → `turn_not_steerable`, the input is handed back."""
    model = daemon.script(text("one"), always("two"), compaction=hang())
    session_id = await frontend.session(workspace, model=model)
    await frontend.say(session_id)
    await frontend.turn_ended(session_id)
    await frontend.must(Compact(session_id))
    refused = await frontend.refused(UserInput(session_id, "left", delivery="steer"))
    assert (refused.code, refused.data["input"]["text"]) == ("turn_not_steerable", "left")
    await frontend.must(Interrupt(session_id))
    assert (await frontend.turn_ended(session_id, 2)).outcome == "interrupted"
    await frontend.say(session_id, "go on")
    assert (await frontend.turn_ended(session_id, 3)).last_message == "two"
    assert said_in(frontend.requests(session_id)[-1].items) == ["go", "go on"]


@pytest.mark.promise("B16")
async def test_steering_skips_calls_that_have_not_started(
    frontend: Frontend, workspace: Path
) -> None:
    """Steer while the first of three exclusive calls runs → it finishes, the others are skipped.

    Request 2 has all three results, then the steering, in the same turn.
    """
    gate = Gate(workspace)
    session_id = await frontend.session(
        workspace,
        calls(bash(f"{gate.command} && touch one"), bash("touch two"), bash("touch three")),
        text("done"),
    )
    await frontend.say(session_id)
    await gate.reached()
    assert isinstance(await frontend.say(session_id, "leave it"), Steered)
    gate.open("through\n")
    assert (await frontend.turn_ended(session_id)).outcome == "completed"
    _, second = frontend.requests(session_id)
    first, *others = calls_in(second.items)
    assert (first.state, first.output.strip()) == ("completed", "through")
    assert [call.error_kind for call in others] == ["skipped", "skipped"]
    assert isinstance(second.items[-1], UserMessage)
    assert (second.items[-1].text, second.items[-1].delivery) == ("leave it", "steer")
    assert (workspace / "one").exists()
    assert not (workspace / "two").exists()
    assert not (workspace / "three").exists()
    assert _turns(frontend, session_id) == 1


@pytest.mark.promise("B17")
async def test_steering_while_text_streams_gives_a_second_request(
    frontend: Frontend, workspace: Path
) -> None:
    """Steer while text streams, without calls → a second request follows in the same turn."""
    slow = ScriptStep(parts=(TextPart("I think"), WaitPart(2), TextPart(" so")))
    session_id = await frontend.session(workspace, slow, text("as you say"))
    await frontend.say(session_id)
    await frontend.until_body(session_id, ItemDelta)
    assert isinstance(await frontend.say(session_id, "think again", delivery="steer"), Steered)
    ended = await frontend.turn_ended(session_id)
    assert (ended.outcome, ended.last_message) == ("completed", "as you say")
    first, second = frontend.requests(session_id)
    assert said_in(first.items) == ["go"]
    assert said_in(second.items) == ["go", "think again"]
    assert _turns(frontend, session_id) == 1


@pytest.mark.promise("B18")
async def test_after_a_compaction_the_model_goes_on_before_it_is_steered(
    frontend: Frontend, workspace: Path, daemon: Daemon
) -> None:
    """Steer when tool output has just triggered a compaction → the continuation comes first."""
    gate = Gate(workspace)
    full = ScriptStep(parts=(bash(gate.command),), usage=ScriptedUsage(input_tokens=120_000))
    steps = (calls(bash("echo x")), full, text("where was I"), text("left"))
    model = daemon.script(*steps, compaction=text("a summary"))
    session_id = await frontend.session(workspace, model=model, approve="always")
    await frontend.say(session_id)
    await gate.reached()
    assert isinstance(await frontend.say(session_id, "to the left"), Steered)
    gate.open("x")
    ended = await frontend.turn_ended(session_id)
    assert (ended.outcome, ended.last_message) == ("completed", "left")
    _, _, continued, steered = frontend.requests(session_id)
    (summary,) = [item for item in continued.items if isinstance(item, Compaction)]
    assert summary.summary == "a summary"
    assert "to the left" not in said_in(continued.items)
    assert said_in(steered.items)[-1] == "to the left"
    assert _turns(frontend, session_id) == 1


@pytest.mark.parametrize("ending", ["by itself", "by an interrupt"])
@pytest.mark.promise("B19")
async def test_steering_that_comes_as_the_turn_ends_is_delivered_once_or_handed_back(
    frontend: Frontend, workspace: Path, ending: str
) -> None:
    """Forty inputs are sent, each at a later moment of its turn.

    In the end, each accepted input is in history once, and each rejected input was handed back.
    """
    brief = ScriptStep(parts=(TextPart("o"), WaitPart(0.005), TextPart("k")), repeat=True)
    session_id = await frontend.session(workspace, brief, follow_ups="all")
    answers: dict[str, AnyAnswer] = {}

    async def steer(words: str, patience: int) -> None:
        for _ in range(patience):
            await trio.lowlevel.checkpoint()
        answers[words] = await frontend.ask(UserInput(session_id, words, delivery="steer"))

    for number in range(40):
        async with trio.open_nursery() as nursery:
            await frontend.say(session_id, f"go {number}")
            nursery.start_soon(steer, f"steer {number}", 4 * number)
            if ending == "by an interrupt":
                nursery.start_soon(frontend.ask, Interrupt(session_id))
        await _rest(frontend, session_id)
    await frontend.say(session_id, "to the end")
    await _rest(frontend, session_id)
    for words, answer in answers.items():
        if isinstance(answer, Rejected):
            assert (answer.code, answer.data["input"]["text"]) == ("no_active_turn", words)
    accepted = [words for words, answer in answers.items() if isinstance(answer, Accepted)]
    told = [f"go {number}" for number in range(40)] + [*accepted, "to the end"]
    snapshot = await frontend.snapshot(session_id)
    assert snapshot.queue == ()
    assert sorted(said_in(tuple(snapshot.items))) == sorted(told)
    assert said_in(frontend.requests(session_id)[-1].items) == said_in(tuple(snapshot.items))


async def _rest(frontend: Frontend, session_id: str) -> None:
    """Wait until no turn is running, whatever started it."""
    while (await frontend.snapshot(session_id)).turn is not None:
        pass


@pytest.mark.parametrize(("mode", "requests"), [("one_at_a_time", 5), ("all", 3)])
@pytest.mark.promise("B20")
async def test_follow_ups_wait_until_the_turn_would_rest(
    frontend: Frontend, workspace: Path, mode: str, requests: int
) -> None:
    """Follow-up while busy → it waits until the turn would end; then the same turn continues.

    `one_at_a_time`: three follow-ups, three requests; `all`: three follow-ups, one request.
    """
    gate = Gate(workspace)
    session_id = await frontend.session(
        workspace, calls(bash(gate.command)), *[text("ok")] * 4, follow_ups=mode
    )
    await frontend.say(session_id)
    await gate.reached()
    for number in range(3):
        queued = await frontend.say(session_id, f"next {number}", delivery="queue")
        assert isinstance(queued, Queued)
        assert queued.position == number
    gate.open()
    assert (await frontend.turn_ended(session_id)).outcome == "completed"
    made = frontend.requests(session_id)
    assert len(made) == requests
    assert said_in(made[1].items) == ["go"]
    assert said_in(made[-1].items) == ["go", "next 0", "next 1", "next 2"]
    assert _turns(frontend, session_id) == 1


@pytest.mark.promise("B21")
async def test_queued_input_is_changed_before_it_runs(frontend: Frontend, workspace: Path) -> None:
    """Queued inputs are edited, moved, promoted or removed before they run; each change is told."""
    gate = Gate(workspace)
    session_id = await frontend.session(workspace, calls(bash(gate.command)), always("ok"))
    await frontend.say(session_id)
    await gate.reached()
    ids: list[str] = []
    for number in range(4):
        queued = await frontend.say(session_id, f"q{number}", delivery="queue")
        assert isinstance(queued, Queued)
        ids.append(queued.input_id)
    for op in (
        QueueEdit(session_id, ids[0], "edit", text="changed"),
        QueueEdit(session_id, ids[1], "remove"),
        QueueEdit(session_id, ids[3], "move", position=0),
        QueueEdit(session_id, ids[2], "promote"),
    ):
        await frontend.must(op)
    waiting = (await frontend.snapshot(session_id)).queue
    assert [given.text for given in waiting] == ["q2", "q3", "changed"]
    assert (await frontend.until_body(session_id, QueueChanged, 8)).body == QueueChanged(waiting)
    gone = await frontend.refused(QueueEdit(session_id, ids[1], "remove"))
    assert gone.code == "not_found"
    gate.open()
    await frontend.turn_ended(session_id)
    messages = [
        item for item in frontend.requests(session_id)[-1].items if isinstance(item, UserMessage)
    ]
    assert [(message.text, message.delivery) for message in messages] == [
        ("go", "start"), ("q2", "steer"), ("q3", "queue"), ("changed", "queue"),
    ]  # fmt: skip
    assert (await frontend.snapshot(session_id)).queue == ()


@pytest.mark.promise("B21")
async def test_an_interrupt_keeps_the_queue_and_says_so(
    frontend: Frontend, workspace: Path
) -> None:
    """Interrupt → the queue is reported before `turn_ended`; it runs only with the next turn."""
    gate = Gate(workspace)
    session_id = await frontend.session(
        workspace, calls(bash(gate.command)), always("ok"), follow_ups="all"
    )
    await frontend.say(session_id)
    await gate.reached()
    for number in range(2):
        await frontend.say(session_id, f"q{number}", delivery="queue")
    await frontend.say(session_id, "steer", delivery="steer")
    await frontend.must(Interrupt(session_id))
    assert (await frontend.turn_ended(session_id)).outcome == "interrupted"
    *_, told, ended = [
        event.body
        for event in frontend.events(session_id)
        if isinstance(event.body, QueueChanged | TurnEnded)
    ]
    assert isinstance(ended, TurnEnded)
    assert isinstance(told, QueueChanged)
    kept = [(given.text, given.delivery) for given in told.queue]
    assert kept == [("q0", "queue"), ("q1", "queue"), ("steer", "queue")]
    assert len(frontend.requests(session_id)) == 1
    assert (told.waits, ended.queued) == (True, 3)
    await frontend.say(session_id, "go on", delivery="start")
    await frontend.turn_ended(session_id, 2)
    said = said_in(frontend.requests(session_id)[-1].items)
    assert said == ["go", "go on", "q0", "q1", "steer"]


@pytest.mark.promise("B21")
async def test_what_waits_is_started_from_the_command_line(
    frontend: Frontend, workspace: Path, daemon: Daemon, tillers: Tillers
) -> None:
    """Interrupt with queued inputs → `resume` runs them in order, and also retries a failure."""
    steps = hang("a"), text("one"), ScriptStep(failures=(Failure("bad_request"),)), always("ok")
    session_id = await frontend.session(workspace, *steps)
    await frontend.say(session_id)
    await frontend.until_body(session_id, ItemDelta)
    for number in range(2):
        await frontend.say(session_id, f"q{number}", delivery="queue")
    await frontend.must(Interrupt(session_id))
    assert (await frontend.turn_ended(session_id)).queued == 2
    assert await (await tillers(daemon, "resume", session_id)).process.wait() == 1
    assert said_in(frontend.requests(session_id)[-1].items) == ["go", "q0", "q1"]
    resumed = await tillers(daemon, "resume", "--json", session_id)
    assert await resumed.process.wait() == 0
    assert said_in(frontend.requests(session_id)[-1].items) == ["go", "q0", "q1"]
    assert (await frontend.turn_ended(session_id, 3)).last_message == "ok"
    assert (await frontend.refused(TurnContinue(session_id))).code == "empty_input"


@pytest.mark.promise("B22")
async def test_the_same_submission_has_one_effect_and_one_answer(
    frontend: Frontend, workspace: Path
) -> None:
    """The same submission id, five times at once and once later → one effect, the same answer."""
    session_id = await frontend.session(workspace, text("once"), text("never"))
    answers: list[AnyAnswer] = []
    op, submission_id = UserInput(session_id, "go"), new_id()

    async def send() -> None:
        answers.append(await frontend.ask(op, submission_id))

    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(send)
    await frontend.turn_ended(session_id)
    await send()
    assert all(answer == answers[0] for answer in answers)
    assert len(frontend.requests(session_id)) == 1
    other = await frontend.ask(UserInput(session_id, "something else"), submission_id)
    assert getattr(other, "code", "") == "bad_message"


def _turns(frontend: Frontend, session_id: str) -> int:
    return sum(isinstance(event.body, TurnStarted) for event in frontend.events(session_id))
