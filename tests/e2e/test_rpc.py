"""`tiller rpc` as an editor uses it: lines in, answers and events out, whatever the daemon does."""

import json
import signal
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path

import msgspec
import pytest
import trio

from e2e.gates import Gate
from e2e.words import bash, calls, calls_in, read, text
from support.daemon import Daemon
from support.frontend import TIMEOUT_S, Frontend, new_id
from support.rpc import Rpc, seqs
from tiller_client.connecting.runtime import lock_is_held
from tiller_daemon.models.scripted import ScriptStep, TextPart
from tiller_protocol.lending import LentServer, SessionLend
from tiller_protocol.ops import Replay

Starting = Callable[..., Awaitable[Rpc]]

SERVERS = (LentServer("n", url="http://127.0.0.1:9/"),)

MEMORY_BYTES_MAX = 12_000_000
"""Memory for an unread flood of 28 MB: a replay, its events as objects, and a line of 2 MB."""


@pytest.fixture
async def rpcs() -> AsyncGenerator[Starting]:
    """Starts `tiller rpc` against a daemon."""
    started: list[Rpc] = []

    async def start(daemon: Daemon, *arguments: str) -> Rpc:
        started.append(await Rpc.start(daemon, *arguments))
        return started[-1]

    yield start
    for rpc in started:
        await rpc.close()


@pytest.fixture
async def rpc(daemon: Daemon, rpcs: Starting) -> Rpc:
    return await rpcs(daemon, "--name", "an editor")


def say(session_id: str, words: str = "go", **fields: object) -> dict[str, object]:
    op = {"type": "user_input", "session_id": session_id, "text": words}
    return {"submit": {"op": op, **fields}, "tag": words}


async def test_a_turn_is_answered_and_its_events_come_once_and_in_order(
    rpc: Rpc, daemon: Daemon, workspace: Path, frontend: Frontend
) -> None:
    model = daemon.script(calls(bash("seq 100")), text("done " * 50, 50))
    session_id = await rpc.session(workspace, model)
    assert rpc.seen[0]["state"] == "connected"
    assert rpc.seen[0]["hello"]["protocol_version"] == 1
    await rpc.send({"follow": session_id}, say(session_id))
    await rpc.turn(session_id)
    assert (await rpc.answer("go"))["result"]["type"] == "started"
    logged = json.loads(msgspec.json.encode(await frontend.log(session_id)))
    events = rpc.events(session_id)
    assert events == logged[: len(events)]
    assert await rpc.end() == 0


async def test_follow_starts_after_an_event_and_tells_when_it_has_caught_up(
    rpc: Rpc, daemon: Daemon, workspace: Path
) -> None:
    session_id = await rpc.session(workspace, daemon.script(text("done")))
    await rpc.send({"follow": session_id}, say(session_id))
    await rpc.turn(session_id)
    await rpc.send({"unfollow": session_id, "tag": 7})
    ended = await rpc.until(lambda line: "unfollowed" in line)
    assert ended == {"unfollowed": {"session_id": session_id}, "tag": 7}
    seen = len(rpc.seen)
    # The first `follow` has sent no `caught_up` if the `unfollow` came too early.
    before = sum("caught_up" in line for line in rpc.seen)
    await rpc.send({"follow": session_id, "after": 3})
    caught_up = await rpc.until(lambda line: "caught_up" in line, before + 1)
    assert seqs(rpc.events(session_id)[-1:]) == [caught_up["caught_up"]["seq"]]
    again = [line["event"] for line in rpc.seen[seen:] if "event" in line]
    assert seqs(again) == list(range(4, again[-1]["seq"] + 1))


@pytest.mark.promise("G3")
async def test_the_same_id_gets_the_same_answer_and_one_turn(
    rpc: Rpc, daemon: Daemon, workspace: Path
) -> None:
    session_id = await rpc.session(workspace, daemon.script(text("done"), text("again")))
    await rpc.send({"follow": session_id})
    first, second = say(session_id, id=(chosen := new_id())), say(session_id, id=chosen)
    await rpc.send(first)
    await rpc.turn(session_id)
    await rpc.send(second | {"tag": 2})
    assert await rpc.answer(2) == await rpc.answer("go")
    assert (await rpc.answer(2))["submission_id"] == chosen
    await rpc.submit(3, "session_get", session_id=session_id)
    started = [e for e in rpc.events(session_id) if e["body"]["type"] == "turn_started"]
    assert len(started) == 1


async def test_submissions_to_one_session_take_effect_in_the_order_of_their_lines(
    rpc: Rpc, daemon: Daemon, workspace: Path, frontend: Frontend
) -> None:
    session_id = await rpc.session(workspace, daemon.script(text("done")))
    names = [f"title {number}" for number in range(30)]
    for name in names:
        op = {"type": "session_configure", "session_id": session_id, "title": name}
        await rpc.send({"submit": {"op": op, "client": "x"}, "tag": name})
    for name in names:
        assert (await rpc.answer(name))["type"] == "accepted"
    bodies = json.loads(msgspec.json.encode(await frontend.log(session_id)))
    titles = [e["body"]["title"] for e in bodies if e["body"]["type"] == "session_titled"]
    assert titles == names


async def test_the_name_of_the_editor_is_shown_with_its_input(
    rpc: Rpc, daemon: Daemon, workspace: Path
) -> None:
    session_id = await rpc.session(workspace, daemon.script(text("done")))
    await rpc.send({"follow": session_id}, say(session_id))
    await rpc.turn(session_id)
    assert '"client": "an editor"' in json.dumps(rpc.events(session_id))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"no json", "malformed"),
        (b"{}", "exactly one of"),
        (b'{"follow": "a", "unfollow": "b"}', "exactly one of"),
        (b'{"follow": "a", "after": -1}', "after"),
        (b'{"submit": {"op": {"type": "no_such_op"}}}', "no_such_op"),
        (b'{"submit": {"op": {"type": "shutdown"}, "token": "x"}}', "token"),
        (b'{"unfollow": "a"}', "not followed"),
        (b"\xff\xfe", "malformed"),
        (b"[" * 100_000, "line can't be used"),
    ],
)
async def test_a_bad_line_is_an_error_with_its_number_and_the_next_one_is_carried_out(
    rpc: Rpc, line: bytes, message: str
) -> None:
    await rpc.write(b"\n" + line + b"\n")
    error = (await rpc.until(lambda line: "error" in line))["error"]
    assert error["line"] == 2
    assert message in error["message"]
    assert (await rpc.submit("next", "session_list"))["type"] == "session_list"


async def test_a_bad_line_with_a_tag_is_an_error_with_that_tag(rpc: Rpc) -> None:
    await rpc.send({"submit": {"op": {"type": "nope"}}, "tag": "mine"})
    assert (await rpc.until(lambda line: "error" in line))["tag"] == "mine"


async def test_a_session_that_is_not_there_is_unfollowed_at_once(rpc: Rpc) -> None:
    await rpc.send({"follow": "01NOSUCH", "tag": 1})
    line = await rpc.until(lambda line: "unfollowed" in line)
    assert "no session" in line["unfollowed"]["message"]
    assert line["tag"] == 1


async def test_life_cycle_events_of_all_sessions_are_notifications(
    rpc: Rpc, daemon: Daemon, workspace: Path
) -> None:
    await rpc.send({"follow": "daemon"})
    session_id = await rpc.session(workspace, daemon.script(text("done")))
    await rpc.send(say(session_id))
    wanted = {"session_created", "turn_started", "turn_ended"}
    for kind in wanted:
        await rpc.until(
            lambda line, kind=kind: line.get("notification", {}).get("body", {}).get("type") == kind
        )
    assert not rpc.events(session_id)
    await rpc.send({"unfollow": "daemon"})
    await rpc.until(lambda line: "unfollowed" in line)


async def test_a_daemon_that_was_killed_is_started_though_no_session_is_followed(
    new_daemon: Callable[[], Daemon], rpcs: Starting
) -> None:
    daemon = new_daemon()
    daemon.start()
    rpc = await rpcs(daemon)
    await rpc.until(lambda line: "state" in line)
    daemon.kill9()
    await rpc.until(lambda line: line.get("state") == "connected", 2)
    await rpc.submit("end", "shutdown")
    await rpc.until(lambda line: line.get("state") == "reconnecting", 2)


async def test_an_editor_is_told_who_else_is_there_and_asked_for_what_it_lends_until_it_ends(
    rpc: Rpc, daemon: Daemon, workspace: Path, frontend: Frontend
) -> None:
    model = daemon.script(calls(read("greeting.txt")), text("done"))
    session_id = await rpc.session(workspace, model)
    await frontend.must(Replay(session_id, 0, follower="other"))
    await rpc.send({"follow": session_id})
    others = await rpc.until(lambda line: "followers" in line)
    assert others == {"followers": {"session_id": session_id, "names": ["e2e"]}}
    lent = {"session_id": session_id, "lender": "editor", "reads_files": True}
    await rpc.submit("lend", "session_lend", **lent)
    await rpc.send(say(session_id))
    wanted = (await rpc.until(lambda line: "file_wanted" in line))["file_wanted"]
    assert wanted["session_id"] == session_id
    assert wanted["path"] == str(workspace / "greeting.txt")
    answer = {"question_id": wanted["question_id"], "text": "not saved\n"}
    await rpc.submit("answer", "lent_file", **answer)
    await rpc.turn(session_id)
    (call,) = calls_in(daemon.requests(session_id)[-1].items)
    assert "\tnot saved\n" in call.output
    others = [SessionLend(session_id, str(number), SERVERS) for number in range(8)]
    for one in others[:-1]:
        await frontend.must(one)
    assert (await frontend.refused(others[-1])).code == "overloaded"
    assert await rpc.end() == 0
    await frontend.must(SessionLend(session_id, new_id(), SERVERS))


async def test_the_answers_to_all_lines_are_written_before_it_ends(rpc: Rpc) -> None:
    listing = {"submit": {"op": {"type": "session_list"}}}
    await rpc.send(*[listing | {"tag": number} for number in range(100)])
    assert await rpc.end() == 0
    assert sorted(line["tag"] for line in rpc.seen if "answer" in line) == list(range(100))


@pytest.mark.promise("G2")
async def test_events_come_once_and_in_order_when_the_daemon_is_killed_and_comes_back(
    new_daemon: Callable[[], Daemon],
    workspace: Path,
    nursery: trio.Nursery,
    rpcs: Starting,
) -> None:
    daemon = new_daemon()
    daemon.start()
    frontend = await Frontend.connect(daemon, nursery)
    rpc = await rpcs(daemon)
    noisy = ScriptStep(parts=(TextPart("words " * 100, 100), bash("seq 100")))
    session_id = await rpc.session(workspace, daemon.script(*[noisy, text("done", 4)] * 4))
    frontend.follow(session_id)
    await rpc.send({"follow": session_id})
    for number in (1, 2, 3):
        await rpc.send(say(session_id, f"go {number}"))
        await rpc.turn(session_id, number)
        assert await daemon.terminate() == 0
        await rpc.until(lambda line: line.get("state") == "reconnecting", number)
        assert not lock_is_held(daemon.places.runtime), "what was stopped stays stopped"
        daemon.start()
        await rpc.until(lambda line: line.get("state") == "connected", number + 1)
    await frontend.reconnect()
    await rpc.send(say(session_id, "last"))
    await rpc.turn(session_id, 4)
    numbers = seqs(rpc.events(session_id))
    assert numbers == list(range(1, len(numbers) + 1))
    assert not [line for line in rpc.seen if "error" in line or "unfollowed" in line]
    await frontend.close()


@pytest.mark.promise("G2")
@pytest.mark.nightly
async def test_a_daemon_that_was_killed_is_started_and_every_session_goes_on(
    new_daemon: Callable[[], Daemon], workspace: Path, rpcs: Starting
) -> None:
    daemon = new_daemon()
    daemon.start()
    rpc = await rpcs(daemon)
    model = daemon.script(*[text("many words " * 20, 20)] * 2)
    sessions = [await rpc.session(workspace, model) for _ in range(3)]
    await rpc.send(*[{"follow": session_id} for session_id in sessions])
    for turn in (1, 2):
        await rpc.send(*[say(session_id, f"{session_id} {turn}") for session_id in sessions])
        for session_id in sessions:
            await rpc.turn(session_id, turn)
        if turn == 1:
            daemon.kill9()
            await rpc.until(lambda line: line.get("state") == "connected", 2)
    for session_id in sessions:
        numbers = seqs(rpc.events(session_id))
        assert numbers == list(range(1, len(numbers) + 1))
    await rpc.submit("end", "shutdown")
    await rpc.until(lambda line: line.get("state") == "reconnecting", 2)


@pytest.mark.promise("G12", "B54")
@pytest.mark.nightly
async def test_an_editor_that_does_not_read_costs_bounded_memory_and_then_gets_everything(
    rpc: Rpc, daemon: Daemon, workspace: Path, frontend: Frontend
) -> None:
    big = ScriptStep(parts=(TextPart("x" * 2_000_000, 20), bash("true")))
    daemon.play("roomy", *[big] * 7, text("done"))
    session_id = await frontend.session(workspace, model="scripted/roomy")
    await rpc.until(lambda line: "state" in line)
    await rpc.send({"follow": session_id})
    await rpc.until(lambda line: "caught_up" in line)
    before = resident(rpc)
    await frontend.say(session_id)
    await frontend.turn_ended(session_id)
    assert resident(rpc) - before < MEMORY_BYTES_MAX
    await rpc.turn(session_id)
    assert seqs(rpc.events(session_id)) == sorted(set(seqs(rpc.events(session_id))))
    bodies = [event["body"] for event in rpc.events(session_id)]
    items = [body["item"] for body in bodies if body["type"] == "item_completed"]
    said = [len(item["text"]) for item in items if item["type"] == "assistant_message"]
    assert said == [2_000_000] * 7 + [len("done")]


async def test_it_ends_when_nobody_reads_it_any_more(
    rpc: Rpc, daemon: Daemon, workspace: Path
) -> None:
    gate = Gate(workspace)
    model = daemon.script(calls(bash(gate.command)), text("done"))
    session_id = await rpc.session(workspace, model)
    await rpc.send({"follow": session_id}, say(session_id))
    await gate.reached()
    assert rpc.process.stdout
    await rpc.process.stdout.aclose()
    gate.open()
    with trio.fail_after(TIMEOUT_S):
        assert await rpc.process.wait() == 128 + signal.SIGPIPE


def resident(rpc: Rpc) -> int:
    """Return the memory of the `tiller rpc` process, in bytes."""
    lines = Path(f"/proc/{rpc.process.pid}/status").read_text().splitlines()
    return 1024 * int(next(line.split()[1] for line in lines if line.startswith("VmRSS")))
