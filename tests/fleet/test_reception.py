"""The two ends of a link by themselves: what they take, and when they end."""

import asyncio
import subprocess
import sys
import time
from pathlib import Path

import pytest
from nats.aio.msg import Msg

from e2e.words import always
from support import fleet
from support.daemon import Daemon, gone
from support.far_homes import TIMEOUT_S, FarHome
from support.far_host import DRIVER, GATEWAY, VIEWER, FarHost, url
from tiller_client.connecting.connection import DaemonConnection
from tiller_client.connecting.fleet_daemon import LinkState
from tiller_client.fleet import link, names
from tiller_client.fleet.broker import Broker
from tiller_client.fleet.sockets import UNREAD_BYTES_MAX, Sockets
from tiller_protocol.answers import AnyAnswer, Created, Rejected, ReplayResult
from tiller_protocol.codec import decode_answer, encode_submission
from tiller_protocol.events import TurnEnded
from tiller_protocol.fleet import Fleet
from tiller_protocol.ops import AnyOp, Catalog, Replay, SessionCreate, Submission, UserInput
from tiller_protocol.places import EVENTS_SOCKET, TOKEN_FILE

SUBSCRIBER = b"\0SP\0\0\x21\0\0"
"""The greeting of nng's SUB socket."""

PUBLISHED_BYTES = 1024 * 1024

LARGE_BYTES = 5 * 1024 * 1024
"""More than four messages of NATS, whose servers allow 1 MiB by default."""


def asked(settings: Fleet, subject: str, op: AnyOp) -> AnyAnswer:
    """Send an op as a program of one's own may, without a link."""

    async def ask() -> bytes:
        async with Broker(settings, "test") as broker:
            frame = encode_submission(Submission("own program", op, "me", "any token"))
            return await asyncio.wait_for(broker.request("box", subject, frame), 10)

    return decode_answer(asyncio.run(ask()))


def test_what_is_sent_to_look_can_do_nothing_else(
    nats: fleet.Broker, box: FarHost, daemon: Daemon
) -> None:
    viewer = Fleet(servers=(url(nats, VIEWER),))
    for op in (SessionCreate("/tmp"), Catalog(start_servers=True)):
        answer = asked(viewer, names.look("box"), op)
        assert isinstance(answer, Rejected)
        assert answer.code == "forbidden"
    assert not isinstance(asked(viewer, names.look("box"), Catalog()), Rejected)


def _turn(connection: DaemonConnection, session_id: str) -> None:
    """Run a turn, and return once it has ended."""
    after = connection.ask(Replay(session_id), ReplayResult).head
    connection.submit(UserInput(session_id, "go"))
    while not any(
        isinstance(event.body, TurnEnded)
        for event in connection.ask(Replay(session_id, after), ReplayResult).events
    ):
        time.sleep(0.01)


def test_a_session_is_published_while_it_is_followed_over_the_fleet_and_else_is_not(
    nats: fleet.Broker, box: FarHost, daemon: Daemon, tmp_path: Path
) -> None:
    settings, heard = Fleet(servers=(url(nats),)), list[str]()

    async def note(message: Msg) -> None:
        heard.append(message.subject)

    async def run() -> None:
        async with Broker(settings, "test") as broker:
            await broker.nc.subscribe("tiller.live.box.>", cb=note)
            await broker.nc.flush()
            with DaemonConnection(daemon.places, "test") as connection:
                model = daemon.script(always("said"))
                op = SessionCreate(str(tmp_path), model=model)
                session_id = connection.ask(op, Created).session_id
                await asyncio.to_thread(_turn, connection, session_id)
                replay = encode_submission(Submission("r", Replay(session_id), "me", ""))
                own = names.live("box", session_id)
                assert own not in heard
                await broker.request("box", names.look("box"), replay)
                await asyncio.to_thread(_turn, connection, session_id)
                async with asyncio.timeout(TIMEOUT_S):
                    while own not in heard:  # noqa: ASYNC110 - a test
                        await asyncio.sleep(0.01)

    asyncio.run(run())


def test_a_message_of_any_size_is_heard_in_order(nats: fleet.Broker) -> None:
    sent = [b"first", bytes(range(256)) * (LARGE_BYTES // 256), b"", b"last"]

    async def run() -> list[bytes]:
        heard = asyncio.Queue[bytes]()
        async with Broker(Fleet(servers=(url(nats),)), "test") as broker:
            await broker.hear("tiller.live.none.S", heard.put_nowait)
            gateway = Fleet(servers=(url(nats, GATEWAY),))
            async with Broker(gateway, "test") as other, asyncio.timeout(TIMEOUT_S):
                await broker.nc.flush()
                for body in sent:
                    await other.send("tiller.live.none.S", body)
                return [await heard.get() for _ in sent]

    assert asyncio.run(run()) == sent


def test_a_frontend_that_does_not_read_loses_its_connection_and_fills_no_memory(
    tmp_path: Path,
) -> None:
    async def refuse(data: bytes) -> None:
        return None

    async def run() -> None:
        async with Sockets(tmp_path, refuse) as sockets:
            reader, deaf = await asyncio.open_unix_connection(tmp_path / EVENTS_SOCKET, limit=1)
            deaf.write(SUBSCRIBER)
            await reader.readexactly(len(SUBSCRIBER))
            await asyncio.sleep(0.01)
            sent = 0
            while sockets.is_used:
                sockets.publish("daemon", bytes(PUBLISHED_BYTES))
                sent += PUBLISHED_BYTES
                assert sent < 4 * UNREAD_BYTES_MAX
                await asyncio.sleep(0.001)
            deaf.close()
            assert sent > UNREAD_BYTES_MAX

    asyncio.run(run())


def test_a_link_without_frontends_ends_by_itself(
    nats: fleet.Broker, box: FarHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "IDLE_S", 0.0)
    monkeypatch.setattr(link, "TICK_S", 0.01)
    said: list[LinkState] = []

    async def run() -> None:
        one = link.Link(Fleet(servers=(url(nats),)), "box", tmp_path, tmp_path / "none")
        await asyncio.wait_for(one.run(said.append), 20)

    asyncio.run(run())
    assert [state.problem for state in said] == [""]
    assert not list(tmp_path.iterdir())


def test_a_link_that_was_killed_is_replaced(here: FarHome) -> None:
    assert here.tiller("--host", "box", "ls").returncode == 0
    token = (here.places.runtime / TOKEN_FILE).read_text()
    here.end_link()
    done = here.tiller("--host", "box", "ls")
    assert done.returncode == 0, done.stderr
    assert (here.places.runtime / TOKEN_FILE).read_text() != token


def test_a_link_with_other_credentials_than_the_configuration_now_has_is_replaced(
    nats: fleet.Broker, box: FarHost, tmp_path: Path
) -> None:
    viewer, driver = (f'[fleet]\nservers = ["{url(nats, user)}"]' for user in (VIEWER, DRIVER))
    with FarHome(tmp_path, viewer) as home:
        new = ("--host", "box", "new", "-C", str(tmp_path))
        assert "permit only to look" in home.tiller(*new).stderr
        old = home.link
        home.configure(driver)
        assert gone(old, timeout_s=TIMEOUT_S)
        done = home.tiller(*new)
        assert done.returncode == 0, done.stderr


def test_a_verb_over_the_fleet_does_not_load_the_client_for_nats(here: FarHome) -> None:
    program = (
        "import sys; from tiller_client.__main__ import main; main(['--host', 'box', 'ls']); "
        "print({'nats', 'nacl', 'asyncio', 'tiller_client.fleet'} & set(sys.modules))"
    )
    command = [sys.executable, "-P", "-c", program]
    done = subprocess.run(command, env=here.variables, capture_output=True, check=True, text=True)
    assert done.stdout.splitlines()[-1] == "set()"
