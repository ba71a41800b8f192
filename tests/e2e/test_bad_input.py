"""Bad input over the wire: the sender is told what is wrong, and nobody else notices."""

import contextlib
import json
import os
import random
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pynng
import pytest
import trio

from e2e.words import always, text
from support.daemon import Daemon
from support.frontend import Frontend, new_id
from tiller_protocol.answers import Accepted, Rejected, SessionListResult
from tiller_protocol.codec import (
    INPUT_BYTES_MAX,
    MESSAGE_BYTES_MAX,
    decode_answer,
    encode_submission,
)
from tiller_protocol.ids import ID_CHARS_MAX
from tiller_protocol.ops import (
    Answer,
    AnyOp,
    Compact,
    DaemonStatus,
    Hello,
    Interrupt,
    QueueEdit,
    Replay,
    SessionArchive,
    SessionConfigure,
    SessionCreate,
    SessionDelete,
    SessionGet,
    SessionList,
    Submission,
    UserInput,
)
from tiller_protocol.places import EVENTS_SOCKET, OPS_SOCKET
from tiller_protocol.settings import Settings, TurnOverrides

NOWHERE = "01K0000000000000000000000A"

GARBAGE = {
    "nothing": b"",
    "a NUL": b"\0",
    "text": b"garbage",
    "an open brace": b"{",
    "no fields": b"{}",
    "text that is not UTF-8": b'{"id": "\xff\xfe", "op": {}}',
    "half of a surrogate": b'{"id": "\\ud800", "op": {"type": "daemon_status"}}',
    "JSON too deep": b'{"id": "x", "op": ' + b"[" * 100_000,
    "msgpack too deep": b"\x82\xa2id\xa1x\xa2op" + b"\x91" * 100_000,
    "an array said to be huge": b"\xdd\xff\xff\xff\xff",
    "text said to be huge": b"\x82\xa2id\xdb\xff\xff\xff\xff",
    "an id that is no text": msgspec.msgpack.encode({"id": 1, "op": {}}),
    "an empty id": msgspec.msgpack.encode({"id": "", "op": {}}),
    "a long id": msgspec.msgpack.encode({"id": "x" * (ID_CHARS_MAX + 1), "op": {}}),
}


@pytest.mark.parametrize("kind", GARBAGE)
@pytest.mark.promise("B57")
async def test_garbage_is_a_bad_message(frontend: Frontend, kind: str) -> None:
    """Bytes that are no submission → `bad_message`; the next submission is served."""
    answer = decode_answer(await frontend.exchange(GARBAGE[kind]))
    assert isinstance(answer, Rejected)
    assert answer.code == "bad_message"
    await frontend.must(DaemonStatus())


@pytest.mark.nightly
@pytest.mark.promise("B57")
async def test_a_thousand_mutated_submissions_are_all_answered(frontend: Frontend) -> None:
    """Submissions with bytes changed, cut or doubled → an answer to each, and no defect."""
    dice = random.Random(7)
    op = UserInput(NOWHERE, "go", overrides=TurnOverrides(max_steps=3, tools=("read",)))
    for _ in range(1000):
        frame = bytearray(encode_submission(Submission(new_id(), op, "e2e", frontend.token)))
        for _ in range(dice.randint(1, 4)):
            place = dice.randrange(len(frame))
            match dice.randrange(3):
                case 0:
                    frame[place] = dice.randrange(256)
                case 1:
                    del frame[place:]
                    frame += b"\0"
                case _:
                    frame[place:place] = frame[place : place + dice.randrange(9)]
        answer = decode_answer(await frontend.exchange(bytes(frame)))
        assert isinstance(answer, Accepted) or answer.code != "internal", bytes(frame)


async def test_a_wrong_token_is_unauthorized_before_the_op_is_looked_at(
    frontend: Frontend, workspace: Path
) -> None:
    """A wrong token → `unauthorized`, whatever the op is; nothing happens."""
    op = SessionCreate(str(workspace))
    for token in ("", "wrong", frontend.token[:-1], frontend.token + "x", "tökén"):
        answer = await frontend.ask(op, token=token)
        assert isinstance(answer, Rejected)
        assert answer.code == "unauthorized"
    nonsense = msgspec.msgpack.encode({"id": "x", "op": {"type": "no_such_op"}, "token": "wrong"})
    answer = decode_answer(await frontend.exchange(nonsense))
    assert isinstance(answer, Rejected)
    assert answer.code == "unauthorized"
    listed = await frontend.must(SessionList(str(workspace)))
    assert isinstance(listed, SessionListResult)
    assert listed.sessions == ()


async def test_another_protocol_version_is_refused_with_ours(frontend: Frontend) -> None:
    """`hello` with another version → `unsupported_protocol`, with the daemon's own version."""
    refused = await frontend.refused(Hello(99, "future"))
    assert (refused.code, refused.data) == ("unsupported_protocol", {"protocol_version": 1})


@pytest.mark.parametrize(
    ("op", "named"),
    [
        ({"type": "no_such_op"}, "no_such_op"),
        ({"session_id": "x"}, "type"),
        ({"type": "user_input", "session_id": "x", "txet": "go"}, "txet"),
        ({"type": "user_input", "session_id": 5}, "session_id"),
        ({"type": "user_input"}, "session_id"),
        ({"type": "replay", "session_id": "x", "after": -1}, "after"),
        ({"type": "session_list", "limit": 0}, "limit"),
        ({"type": "user_input", "session_id": "x", "delivery": "later"}, "delivery"),
    ],
)
async def test_an_op_that_is_not_one_names_what_is_wrong(
    frontend: Frontend, op: dict[str, Any], named: str
) -> None:
    """An unknown op, field or value → `bad_message` under its id, which names the place."""
    frame = msgspec.msgpack.encode({"id": "mine", "op": op, "token": frontend.token})
    answer = decode_answer(await frontend.exchange(frame))
    assert isinstance(answer, Rejected)
    assert (answer.submission_id, answer.code) == ("mine", "bad_message")
    assert named in answer.message


async def test_json_is_answered_in_json(frontend: Frontend) -> None:
    """A submission in JSON → the answer is JSON too, a rejection as well."""
    asked = {"id": "j", "op": {"type": "daemon_status"}, "token": frontend.token}
    answer = json.loads(await frontend.exchange(json.dumps(asked).encode()))
    assert (answer["type"], answer["result"]["type"]) == ("accepted", "daemon_status")
    asked["op"] = {"type": "session_get", "session_id": NOWHERE}
    answer = json.loads(await frontend.exchange(json.dumps(asked).encode()))
    assert (answer["type"], answer["code"]) == ("rejected", "not_found")


@pytest.mark.parametrize(
    "op",
    [
        SessionGet(NOWHERE),
        Replay(NOWHERE),
        UserInput(NOWHERE, "go"),
        Interrupt(NOWHERE),
        SessionConfigure(NOWHERE, Settings(max_steps=1)),
        SessionArchive(NOWHERE),
        SessionDelete(NOWHERE),
        QueueEdit(NOWHERE, "x", "remove"),
        Compact(NOWHERE),
        Answer(NOWHERE, "once"),
    ],
    ids=lambda op: type(op).__name__,
)
async def test_an_unknown_session_or_request_is_not_found(frontend: Frontend, op: AnyOp) -> None:
    """Any op on a session or a request that does not exist → `not_found`."""
    refused = await frontend.refused(op)
    assert refused.code == "not_found"
    assert NOWHERE in refused.message


async def test_an_empty_prompt_is_refused(frontend: Frontend, workspace: Path) -> None:
    """A prompt of no bytes, or of blanks → `empty_input`, and no turn."""
    session_id = await frontend.session(workspace, text("never"))
    for nothing in ("", "   ", "\n"):
        assert (await frontend.refused(UserInput(session_id, nothing))).code == "empty_input"
    assert len(await frontend.log(session_id)) == 1


async def test_the_largest_prompt_is_taken_and_a_larger_one_is_too_large(
    frontend: Frontend, workspace: Path, daemon: Daemon
) -> None:
    """Up to the limit that `hello` tells → a turn; one byte more → `too_large` with the limit."""
    daemon.play("roomy", text("long"), always("short"))
    session_id = await frontend.session(workspace, model="scripted/roomy")
    refused = await frontend.refused(UserInput(session_id, "x" * (INPUT_BYTES_MAX + 1)))
    assert (refused.code, refused.data["limit"]) == ("too_large", INPUT_BYTES_MAX)
    assert len(await frontend.log(session_id)) == 1
    await frontend.say(session_id, "x" * INPUT_BYTES_MAX)
    assert (await frontend.turn_ended(session_id)).outcome == "completed"
    await frontend.say(session_id, "and now?")
    assert (await frontend.turn_ended(session_id, 2)).last_message == "short"


@pytest.mark.promise("B57")
async def test_a_message_of_20_mb_closes_its_connection_and_no_other(
    new_daemon: Callable[[], Daemon], nursery: trio.Nursery, workspace: Path
) -> None:
    """20 MB at once → the connection is closed unread, memory stays flat, others are served."""
    daemon = new_daemon()  # without what other tests leave in memory
    daemon.start()
    frontend = await Frontend.connect(daemon, nursery)
    session_id = await frontend.session(workspace, text("warm"), text("fine"))
    await frontend.say(session_id)
    await frontend.turn_ended(session_id)  # what a first turn imports is not the message's
    before = daemon.rss_bytes
    address = f"ipc://{daemon.places.runtime / OPS_SOCKET}"
    closed = trio.Event()
    token = trio.lowlevel.current_trio_token()
    with pynng.Req0(reconnect_time_min=60_000, resend_time=60_000) as one:
        one.add_post_pipe_remove_cb(lambda _: token.run_sync_soon(closed.set))
        one.dial(address, block=True)
        op = UserInput(session_id, "x" * 20_000_000)
        one.send(encode_submission(Submission("huge", op, "e2e", frontend.token)))
        with trio.fail_after(10):
            await closed.wait()
    await frontend.say(session_id)
    assert (await frontend.turn_ended(session_id, 2)).last_message == "fine"
    assert daemon.rss_bytes - before < MESSAGE_BYTES_MAX
    await frontend.close()


@pytest.mark.promise("B57")
async def test_strangers_on_the_sockets_disturb_nobody(frontend: Frontend, daemon: Daemon) -> None:
    """Connections without nng, with another protocol, or silent → others are served, no leak."""
    await frontend.must(DaemonStatus())
    before = _descriptors(daemon)
    for name in (OPS_SOCKET, EVENTS_SOCKET):
        path = str(daemon.places.runtime / name)
        silent = [_connect(path) for _ in range(50)]
        for garbage in (b"GET / HTTP/1.1\r\n\r\n", b"\0SP\0\0\x99\0\0", os.urandom(4096)):
            with _connect(path) as one:
                one.sendall(garbage)
        with pynng.Pair0(dial=f"ipc://{path}", block_on_dial=False):
            await frontend.must(DaemonStatus())
        for one in silent:
            one.close()
    with trio.fail_after(10):
        while _descriptors(daemon) > before:
            await frontend.must(DaemonStatus())


@pytest.mark.promise("B57")
async def test_ten_thousand_connects_leave_nothing_behind(
    frontend: Frontend, daemon: Daemon
) -> None:
    """Connections that come and go, greeted or not, some in the middle of a message → no leak."""
    await frontend.must(DaemonStatus())
    before, rss = _descriptors(daemon), daemon.rss_bytes
    path = str(daemon.places.runtime / OPS_SOCKET)
    beginnings = (b"", b"\0SP", b"\0SP\0\x00\x30\0\0", b"\0SP\0\x00\x30\0\0\x01\0\0")
    for number in range(10_000):
        with _connect(path) as one:
            one.sendall(beginnings[number % len(beginnings)])
        if number % 500 == 0:
            await frontend.must(DaemonStatus())
    with trio.fail_after(10):
        while _descriptors(daemon) > before:
            await frontend.must(DaemonStatus())
    assert daemon.rss_bytes - rss < MESSAGE_BYTES_MAX


def _connect(path: str) -> socket.socket:
    one = socket.socket(socket.AF_UNIX)
    one.connect(path)
    return one


def _descriptors(daemon: Daemon) -> int:
    assert daemon.process is not None
    kinds: list[str] = []
    for descriptor in Path(f"/proc/{daemon.process.pid}/fd").iterdir():
        with contextlib.suppress(OSError):  # closed since
            kinds.append(str(descriptor.readlink()))
    # The daemon opens its own files while it is idle, such as the search index.
    return sum(kind.startswith("socket:") for kind in kinds)


def _missing(path: Path) -> Path:
    return path / "missing"


def _file(path: Path) -> Path:
    return path / "greeting.txt"


def _unreadable(path: Path) -> Path:
    (path / "closed").mkdir(mode=0)
    if os.access(path / "closed", os.R_OK):
        pytest.skip("root can read every directory")
    return path / "closed"


def _relative(path: Path) -> Path:
    return Path(path.name)


@pytest.mark.parametrize("make", [_missing, _file, _unreadable, _relative])
async def test_a_workspace_that_is_none_is_refused(
    frontend: Frontend, workspace: Path, make: Callable[[Path], Path]
) -> None:
    """A workspace that is missing, a file, unreadable or relative → a sentence that names it."""
    chosen = make(workspace)
    refused = await frontend.refused(SessionCreate(str(chosen)))
    assert refused.code == "invalid_settings"
    assert str(chosen) in refused.message


async def test_a_workspace_that_has_gone_is_said_at_the_next_input(
    frontend: Frontend, tmp_path: Path
) -> None:
    """A removed workspace → the input is refused; when it is back, the session continues."""
    place = tmp_path / "place"
    place.mkdir()
    session_id = await frontend.session(place, always("here again"))
    place.rename(tmp_path / "elsewhere")
    refused = await frontend.refused(UserInput(session_id, "go"))
    assert refused.code == "invalid_settings"
    assert "does not exist" in refused.message
    (tmp_path / "elsewhere").rename(place)
    await frontend.say(session_id)
    assert (await frontend.turn_ended(session_id)).last_message == "here again"


async def test_unknown_models_agents_and_tools_are_refused_with_what_there_is(
    frontend: Frontend, workspace: Path
) -> None:
    """An unknown provider, agent or tool → `invalid_settings`, which lists the known ones."""
    session_id = await frontend.session(workspace, always("fine"))
    place = str(workspace)
    for op, unknown, known in (
        (SessionCreate(place, model="nobody/x"), "nobody/x", "scripted"),
        (SessionCreate(place, model="x"), "x", "provider/model"),
        (SessionCreate(place, agent="stranger"), "stranger", "build"),
        (SessionConfigure(session_id, Settings(agent="stranger")), "stranger", "build"),
        (_input(session_id, model="nobody/x"), "nobody/x", "scripted"),
        (_input(session_id, agent="stranger"), "stranger", "build"),
        (_input(session_id, tools=("hammer",)), "hammer", "bash"),
    ):
        refused = await frontend.refused(op)
        assert refused.code == "invalid_settings"
        assert unknown in refused.message
        assert known in refused.message
    assert len(await frontend.log(session_id)) == 1
    await frontend.say(session_id)
    assert (await frontend.turn_ended(session_id)).last_message == "fine"


async def test_close_models_agents_and_tools_are_offered(
    frontend: Frontend, workspace: Path
) -> None:
    """A misspelt name → the message suggests the closest name."""
    session_id = await frontend.session(workspace, always("fine"))
    for op, meant in (
        (SessionCreate(str(workspace), model="scriptd/main"), "scripted/main"),
        (SessionCreate(str(workspace), model="roomy"), "scripted/roomy"),
        (SessionCreate(str(workspace), model="scripted/"), "scripted/roomy"),
        (SessionCreate(str(workspace), agent="biuld"), "build"),
        (_input(session_id, tools=("read", "bahs")), "bash"),
    ):
        refused = await frontend.refused(op)
        assert f"Did you mean `{meant}`" in refused.message
    for op in (
        SessionCreate(str(workspace), agent="stranger"),
        _input(session_id, tools=("x",)),
    ):
        assert "Did you mean" not in (await frontend.refused(op)).message


async def test_a_script_that_is_not_there_fails_the_turn_and_not_the_session(
    frontend: Frontend, workspace: Path, daemon: Daemon
) -> None:
    """A model that its provider does not have → the turn is `failed`; the next one may work."""
    session_id = await frontend.session(workspace, model="scripted/later")
    await frontend.say(session_id)
    ended = await frontend.turn_ended(session_id)
    assert ended.outcome == "failed"
    assert ended.error is not None
    assert "later" in ended.error.message
    daemon.play("later", always("here I am"))
    await frontend.say(session_id)
    assert (await frontend.turn_ended(session_id, 2)).last_message == "here I am"


def _input(session_id: str, **overrides: Any) -> UserInput:
    return UserInput(session_id, "go", overrides=TurnOverrides(**overrides))
