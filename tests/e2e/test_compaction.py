"""Room in the context: compaction, its failures, pruning, and requests after a restart."""

import sys
from collections.abc import Callable, Generator
from pathlib import Path

import pytest
import trio

from e2e.provider import called, check_all, config_for, messages_of, said
from e2e.words import always, bash, calls, calls_in, hang, said_in, text
from support.daemon import CONFIG, Daemon
from support.frontend import Frontend
from support.http_server import LocalServer, serving
from tiller_daemon.models.scripted import Failure, ScriptedUsage, ScriptStep, TextPart
from tiller_daemon.turn.tokens import PRUNED_OUTPUT
from tiller_protocol.codec import encode_event
from tiller_protocol.events import (
    Event,
    HistoryCompacted,
    ItemCompleted,
    ItemStarted,
    StatusChanged,
    TurnStarted,
)
from tiller_protocol.items import Compaction
from tiller_protocol.ops import Compact, Interrupt

FULL = ScriptedUsage(input_tokens=120_000)
"""More than 85 % of a model's default window."""

SUMMARY = text("what was done")

LONG = "w" * 200_000

NARROW = f"""{CONFIG}
[models."scripted/narrow"]
context_window = 40_000
"""

NUMBERS = "seq -s ' ' {first} {last} | fold -w 200"
"""Prints 49 kB in 245 lines for 7,000 numbers of six digits, nearly a call's limit."""


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Generator[Daemon]:
    with Daemon(tmp_path_factory.mktemp("d"), NARROW) as daemon:
        yield daemon


def _numbers(beginning: int) -> str:
    return NUMBERS.format(first=beginning * 100_000, last=beginning * 100_000 + 7_000)


def _compactions(frontend: Frontend, session_id: str) -> list[HistoryCompacted]:
    bodies = [event.body for event in frontend.events(session_id)]
    return [body for body in bodies if isinstance(body, HistoryCompacted)]


def _purposes(daemon: Daemon, session_id: str) -> list[str]:
    """Return the purposes of the model's requests, without titles."""
    return [r.purpose for r in daemon.asked(session_id) if r.purpose != "title"]


@pytest.mark.promise("B41")
async def test_a_full_context_is_compacted_before_the_turn(
    frontend: Frontend, workspace: Path, daemon: Daemon
) -> None:
    """Usage over the threshold before a turn → compaction first; the user's words stay."""
    full = ScriptStep(parts=(TextPart("one"),), usage=FULL)
    model = daemon.script(full, text("two"), compaction=SUMMARY)
    session_id = await frontend.session(workspace, model=model)
    await frontend.say(session_id, "first")
    await frontend.turn_ended(session_id)
    await frontend.say(session_id, "second")
    assert (await frontend.turn_ended(session_id, 2)).last_message == "two"
    assert _purposes(daemon, session_id) == ["turn", "compaction", "turn"]
    items = frontend.requests(session_id)[-1].items
    assert said_in(items) == ["first", "second"]
    assert [item.summary for item in items if isinstance(item, Compaction)] == ["what was done"]
    (compacted,) = _compactions(frontend, session_id)
    assert compacted.tokens_after < 0.7 * compacted.tokens_before
    assert StatusChanged("busy", cause="compacting") in [
        event.body for event in frontend.events(session_id)
    ]


@pytest.mark.promise("B41")
async def test_a_context_that_fills_up_in_mid_turn_is_compacted_and_the_turn_goes_on(
    frontend: Frontend, workspace: Path, daemon: Daemon
) -> None:
    """After tool output → compaction in mid-turn; the turn continues without new user input."""
    full = ScriptStep(parts=(bash("echo found"),), usage=FULL)
    model = daemon.script(full, calls(bash("touch after")), text("done"), compaction=SUMMARY)
    session_id = await frontend.session(workspace, model=model)
    await frontend.say(session_id)
    assert (await frontend.turn_ended(session_id)).last_message == "done"
    assert _purposes(daemon, session_id) == ["turn", "compaction", "turn", "turn"]
    assert (workspace / "after").exists()
    assert sum(isinstance(e.body, TurnStarted) for e in frontend.events(session_id)) == 1
    for request in frontend.requests(session_id):
        assert said_in(request.items) == ["go"]


@pytest.mark.promise("B42")
async def test_an_overflow_is_compacted_once_and_a_second_one_ends_the_turn(
    frontend: Frontend, workspace: Path, daemon: Daemon
) -> None:
    """The provider reports overflow → one compaction and one retry.

    A second overflow ends the turn with a clear error; the session stays usable.
    """
    overflow = Failure("context_overflow")
    once = ScriptStep(parts=(TextPart("fine"),), failures=(overflow,))
    twice = ScriptStep(parts=(TextPart("never"),), failures=(overflow, overflow))
    steps = (text(LONG), once, text(LONG), twice, text("usable"))
    session_id = await frontend.session(workspace, model=daemon.script(*steps, compaction=SUMMARY))
    endings: list[tuple[str, str]] = []
    for number in range(1, 6):
        await frontend.say(session_id, f"turn {number}")
        ended = await frontend.turn_ended(session_id, number)
        endings.append((ended.outcome, ended.error.code if ended.error else ended.last_message))
    assert endings == [
        ("completed", LONG), ("completed", "fine"), ("completed", LONG),
        ("failed", "context_overflow"), ("completed", "usable"),
    ]  # fmt: skip
    purposes = _purposes(daemon, session_id)
    overflows = ["turn", "compaction", "turn"]
    assert purposes == ["turn", *overflows, "turn", *overflows, "turn"]


BAD_SUMMARIES = {
    "failing": ScriptStep(failures=(Failure("bad_request"),)),
    "empty": ScriptStep(),
    "too long": text("z" * 200_000),
}


@pytest.mark.parametrize("kind", BAD_SUMMARIES)
@pytest.mark.promise("B43")
async def test_a_compaction_that_fails_is_made_up_for_by_dropping_old_output(
    frontend: Frontend, workspace: Path, daemon: Daemon, kind: str
) -> None:
    """A compaction that fails or returns nothing → fallback, then a clear error; nothing lost."""
    bad = BAD_SUMMARIES[kind]
    outputs = [calls(bash(_numbers(n))) for n in range(1, 4)]
    daemon.play("narrow", *outputs, text("done"), always("never"), compaction=bad)
    session_id = await frontend.session(workspace, model="scripted/narrow")
    await frontend.say(session_id)
    assert (await frontend.turn_ended(session_id)).outcome == "completed"
    assert _purposes(daemon, session_id).count("compaction") == 1
    (pruned,) = _compactions(frontend, session_id)
    assert (pruned.item_id, len(pruned.pruned)) == (None, 2)
    sent = [call.output for call in calls_in(frontend.requests(session_id)[-1].items)]
    assert [output == PRUNED_OUTPUT for output in sent] == [True, True, False]
    logged = calls_in(tuple((await frontend.snapshot(session_id)).items))
    assert [call.output[:6] for call in logged] == ["100000", "200000", "300000"]
    await frontend.say(session_id, LONG)
    failed = await frontend.turn_ended(session_id, 2)
    assert failed.error is not None
    assert (failed.outcome, failed.error.code) == ("failed", "context_full")
    assert "larger window" in failed.error.message
    assert _purposes(daemon, session_id).count("compaction") == 2


async def test_compact_says_that_there_is_nothing_or_why_it_failed(
    frontend: Frontend, workspace: Path, daemon: Daemon
) -> None:
    """On the command line: a short session → status 0; a provider that refuses → its words, 1."""

    async def compact(session_id: str) -> tuple[int, str, str]:
        done = await trio.run_process(
            [sys.executable, "-m", "tiller_client", "compact", session_id],
            env=daemon.variables,
            capture_stdout=True,
            capture_stderr=True,
            check=False,
        )
        return done.returncode, done.stdout.decode(), done.stderr.decode()

    failing = ScriptStep(failures=(Failure("bad_request", message="no such model here"),))
    model = daemon.script(text("hi"), text(LONG), compaction=SUMMARY)
    session_id = await frontend.session(workspace, model=model)
    await frontend.say(session_id)
    await frontend.turn_ended(session_id)
    status, out, err = await compact(session_id)
    assert (status, out.partition(":")[0]) == (0, "There is nothing to compact"), err
    await frontend.say(session_id)
    await frontend.turn_ended(session_id, 3)
    daemon.play(model.removeprefix("scripted/"), text("hi"), text(LONG), compaction=failing)
    status, out, err = await compact(session_id)
    assert (status, out) == (1, "")
    assert "no such model here" in err
    daemon.play(model.removeprefix("scripted/"), text("hi"), text(LONG), compaction=SUMMARY)
    status, _, err = await compact(session_id)
    assert status == 0
    assert "≡ summarised: " in err
    assert len(_compactions(frontend, session_id)) == 1


@pytest.mark.promise("B43")
async def test_a_compaction_that_hangs_can_be_interrupted_and_loses_nothing(
    frontend: Frontend, workspace: Path, daemon: Daemon
) -> None:
    """A compaction that hangs → an interrupt ends it; history is as it was, the next one works."""
    full = ScriptStep(parts=(TextPart("one"),), usage=FULL)
    steps = (full, text("two"))
    model = daemon.script(*steps, compaction=hang("a"))
    session_id = await frontend.session(workspace, model=model)
    await frontend.say(session_id)
    await frontend.turn_ended(session_id)
    await frontend.say(session_id, "second")
    compacting = StatusChanged("busy", cause="compacting")
    await frontend.until(session_id, lambda event: event.body == compacting)
    await frontend.must(Interrupt(session_id))
    assert (await frontend.turn_ended(session_id, 2)).outcome == "interrupted"
    assert _compactions(frontend, session_id) == []
    daemon.play(model.removeprefix("scripted/"), *steps, compaction=SUMMARY)
    await frontend.say(session_id, "third")
    assert (await frontend.turn_ended(session_id, 3)).last_message == "two"
    assert said_in(frontend.requests(session_id)[-1].items) == ["go", "second", "third"]


@pytest.mark.promise("B44")
@pytest.mark.nightly
async def test_old_output_is_pruned_and_a_reloaded_session_sends_the_same_bytes(
    new_daemon: Callable[..., Daemon], workspace: Path, nursery: trio.Nursery
) -> None:
    """Old tool output is pruned outside the protected window only; reloaded → the same bytes."""
    commands = [("bash", {"command": _numbers(n)}) for n in range(1, 9)]
    answers = (called(*commands), said("done"), said("two"), said("three"))
    async with serving(*answers) as server:
        daemon = new_daemon(config_for(server.base_url))
        daemon.start()
        frontend = await Frontend.connect(daemon, nursery)
        session_id = await frontend.session(workspace, model="local/m")
        for number in range(1, 4):
            await frontend.say(session_id, f"turn {number}")
            assert (await frontend.turn_ended(session_id, number)).outcome == "completed"
            if number == 2:
                daemon.restart()
                await frontend.reconnect()
        requests = check_all(server)
        await frontend.close()
    assert len(requests) == 4
    shown = [_outputs(server, number) for number in range(4)]
    assert [len(outputs) for outputs in shown] == [0, 8, 8, 8]
    assert PRUNED_OUTPUT not in shown[1]
    assert shown[2][:5] == [PRUNED_OUTPUT] * 5
    assert shown[2][5:] == shown[1][5:]
    second, third = (messages_of(received)[1:] for received in requests[2:])
    assert third[: len(second)] == second
    assert len(third) == len(second) + 2
    tools = [received.body["tools"] for received in requests]
    assert tools[1:] == tools[:-1]


def _outputs(server: LocalServer, number: int) -> list[str]:
    messages = server.received[number].body["messages"]
    return [message["content"] for message in messages if message["role"] == "tool"]


@pytest.mark.promise("B45")
async def test_ten_compactions_add_ten_summaries_to_the_log(
    frontend: Frontend, workspace: Path, daemon: Daemon
) -> None:
    """Ten compactions in a row → the log grows by summaries, not by copies of history."""
    words = "w" * 140_000
    daemon.play("narrow", *[text(words)] * 11, compaction=SUMMARY)
    session_id = await frontend.session(workspace, model="scripted/narrow")
    for number in range(1, 12):
        await frontend.say(session_id, f"turn {number}")
        assert (await frontend.turn_ended(session_id, number)).outcome == "completed"
    assert len(_compactions(frontend, session_id)) == 10
    log = await frontend.log(session_id)
    sizes = [len(encode_event(event)) for event in log]
    streamed_completed_and_as_last_message = 3
    assert sum(sizes) < 11 * streamed_completed_and_as_last_message * len(words) + 11 * 20_000
    of_compactions = [len(encode_event(event)) for event in log if _is_of_compaction(event)]
    assert len(of_compactions) == 30
    assert sum(of_compactions) < 30 * 1_000
    items = frontend.requests(session_id)[-1].items
    assert [item.summary for item in items if isinstance(item, Compaction)] == ["what was done"]


def _is_of_compaction(event: Event) -> bool:
    match event.body:
        case HistoryCompacted():
            return True
        case ItemStarted(item=Compaction()) | ItemCompleted(item=Compaction()):
            return True
        case _:
            return False


async def test_the_model_that_summarises_gets_the_users_words(
    frontend: Frontend, workspace: Path, daemon: Daemon
) -> None:
    model = daemon.script(text(LONG), compaction=SUMMARY)
    session_id = await frontend.session(workspace, model=model)
    await frontend.say(session_id, "first")
    await frontend.turn_ended(session_id)
    await frontend.must(Compact(session_id, "keep the API decisions"))
    await frontend.turn_ended(session_id, 2)
    (asked,) = [one for one in daemon.asked(session_id) if one.purpose == "compaction"]
    assert getattr(asked.items[-1], "text", "").endswith("keep the API decisions")
