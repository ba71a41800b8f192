"""A daemon on another host of the fleet, used over a real NATS server that may go away."""

import json
import stat
from contextlib import ExitStack
from pathlib import Path
from typing import Any, cast

import pytest
import trio

from e2e.clients import Tillers
from e2e.gates import Gate
from e2e.words import always, bash, calls, text
from support.daemon import Daemon, gone
from support.far_homes import TIMEOUT_S, Done, FarHome
from support.far_host import GATEWAY, VIEWER, FarHost, url
from support.fleet import Broker
from support.frontend import Frontend
from tiller_client.fleet.sealing import make_key
from tiller_protocol.events import ItemCompleted, ItemDelta, TurnEnded, TurnStarted
from tiller_protocol.items import UserMessage
from tiller_protocol.places import Places

LARGE_CHARS = 5 * 1024 * 1024
"""More than four messages of NATS, whose servers allow 1 MiB by default."""


CUTS = 3
"""How often each part dies."""


class Through:
    """A daemon as frontends see it that use these places."""

    def __init__(self, daemon: Daemon, places: Places) -> None:
        self._daemon, self.places = daemon, places

    def __getattr__(self, name: str) -> object:
        return getattr(self._daemon, name)


async def connect(daemon: Daemon, here: FarHome, nursery: trio.Nursery) -> Frontend:
    """Connect a frontend that uses nng's own library to the link."""
    assert (await tiller(here, "--host", "box", "ls")).returncode == 0
    return await Frontend.connect(cast("Daemon", Through(daemon, here.places)), nursery)


async def tiller(home: FarHome, *words: str) -> Done:
    return await trio.to_thread.run_sync(home.tiller, *words)


def rows(done: Done) -> list[dict[str, Any]]:
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_verb_works_on_another_host_by_its_name_in_the_fleet(
    here: FarHome, daemon: Daemon, workspace: Path
) -> None:
    model = daemon.script(calls(bash("pwd")), always("done there"))
    done = here.tiller(
        "--host",
        "fleet:box",
        "exec",
        "-C",
        str(workspace),
        "-m",
        model,
        "--approve",
        "always",
        "go",
    )
    assert (done.returncode, done.stdout) == (0, "done there\n"), done.stderr
    assert "done there" in here.tiller("show", "box:last").stdout
    (listed,) = rows(here.tiller("--host", "box", "ls", "--json"))
    assert listed["workspace"] == str(workspace)
    relative = here.tiller("--host", "box", "new", "--json", "-C", ".")
    (created,) = rows(relative)
    (made,) = [
        one
        for one in rows(here.tiller("--host", "box", "ls", "--json"))
        if one["session_id"] == created["session_id"]
    ]
    assert made["workspace"] == str(daemon.places.config.parent)
    refused = here.tiller("--host", "box", "daemon", "status")
    assert refused.returncode == 2
    assert "can't be managed over the fleet; log in to box" in refused.stderr


def test_verbs_share_one_link_which_is_private(here: FarHome) -> None:
    here.end_link()
    started = [here.start("--host", "box", "ls") for _ in range(3)]
    for one in started:
        with one:
            assert one.wait() == 0, one.stderr and one.stderr.read()
    link, directory = here.link, here.places.runtime
    assert here.tiller("--host", "box", "ls").returncode == 0
    assert here.link == link
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) & 0o077 for path in directory.iterdir()} == {0}


async def test_a_frontend_follows_live_each_event_once_and_large_ones_too(
    here: FarHome, daemon: Daemon, workspace: Path, nursery: trio.Nursery
) -> None:
    frontend = await connect(daemon, here, nursery)
    steps = text("first"), text("one two three", 30), text("large")
    session_id = await frontend.session(workspace, *steps)
    await frontend.say(session_id)
    await frontend.turn_ended(session_id)  # from here on, the session is surely followed
    await frontend.say(session_id)
    await frontend.turn_ended(session_id, 2)
    await frontend.say(session_id, "x" * LARGE_CHARS)
    await frontend.turn_ended(session_id, 3)
    seen = frontend.events(session_id)
    assert seen == await frontend.log(session_id)
    deltas = {event.seq for event in seen if isinstance(event.body, ItemDelta)}
    live = frontend._sessions[session_id].published  # pyright: ignore[reportPrivateUsage]
    assert deltas & live.keys(), "no delta was seen live"
    await frontend.close()


async def test_a_session_that_nobody_follows_over_the_fleet_is_not_published(
    here: FarHome, daemon: Daemon, workspace: Path, nursery: trio.Nursery
) -> None:
    local = await Frontend.connect(daemon, nursery)
    far = await connect(daemon, here, nursery)
    session_id = await local.session(workspace, text("unheard", 5))
    await local.say(session_id)
    await local.turn_ended(session_id)
    heard = far.lifecycle
    assert {event.session_id for event in heard} >= {session_id}
    far.follow(session_id)
    await far.turn_ended(session_id)
    assert not far._sessions[session_id].published  # pyright: ignore[reportPrivateUsage]
    await far.close()
    await local.close()


async def test_a_request_is_listed_and_answered_by_its_host(
    here: FarHome, daemon: Daemon, workspace: Path, nursery: trio.Nursery
) -> None:
    frontend = await Frontend.connect(daemon, nursery)
    steps = [calls(bash("touch answered")), always("done")]
    session_id = await frontend.session(workspace, *steps, approve="ask")
    await frontend.say(session_id)
    request = await frontend.request_opened(session_id)
    listed = await tiller(here, "--host", "box", "requests", "--json")
    assert [row["request"]["id"] for row in rows(listed)] == [request.id]
    answered = await tiller(here, "answer", f"box:{request.id[-8:]}", "once")
    assert answered.returncode == 0, answered.stderr
    assert (await frontend.turn_ended(session_id)).outcome == "completed"
    assert (workspace / "answered").exists()
    await frontend.close()


async def test_who_may_only_look_follows_and_is_told_why_an_op_is_refused(
    here: FarHome,
    nats: Broker,
    daemon: Daemon,
    workspace: Path,
    nursery: trio.Nursery,
    tmp_path_factory: pytest.TempPathFactory,
    tillers: Tillers,
) -> None:
    frontend = await Frontend.connect(daemon, nursery)
    session_id = await frontend.session(workspace, text("seen", 5))
    fleet = f'[fleet]\nservers = ["{url(nats, VIEWER)}"]'
    with FarHome(tmp_path_factory.mktemp("v"), fleet) as viewer:
        attached = await tillers(viewer, "--host", "box", "attach", "--json", session_id)
        await attached.until(1)
        await frontend.say(session_id)
        await frontend.turn_ended(session_id)
        await attached.until(frontend.events(session_id)[-1].seq)
        assert attached.seen == frontend.events(session_id)
        refused = await tiller(viewer, "send", f"box:{session_id}", "more")
        assert refused.returncode == 1
        assert "these credentials permit only to look at box" in refused.stderr
        answer = await tiller(viewer, "--host", "box", "set", "--json", session_id, "title", "x")
        assert rows(answer)[0]["code"] == "forbidden"
    assert await frontend.log(session_id) == frontend.events(session_id)
    await frontend.close()


async def test_a_follower_misses_nothing_when_the_broker_is_killed_and_starts_again(
    here: FarHome,
    nats: Broker,
    daemon: Daemon,
    workspace: Path,
    nursery: trio.Nursery,
    tillers: Tillers,
) -> None:
    frontend = await Frontend.connect(daemon, nursery)
    gate = Gate(workspace)
    session_id = await frontend.session(workspace, calls(bash(gate.command)), text("after", 20))
    attached = await tillers(here, "--host", "box", "attach", "--json", session_id)
    await frontend.say(session_id)
    started = await frontend.until_body(session_id, TurnStarted)
    await attached.until(started.seq)
    await gate.reached()
    nats.kill9()
    gate.open("passed")
    await frontend.turn_ended(session_id)
    nats.start()
    await attached.until(frontend.events(session_id)[-1].seq)
    seqs = [event.seq for event in attached.seen]
    assert seqs == sorted(set(seqs))
    complete = [event for event in attached.seen if not isinstance(event.body, ItemDelta)]
    log = await frontend.log(session_id)
    assert complete == [event for event in log if not isinstance(event.body, ItemDelta)]
    await frontend.close()


async def test_an_input_that_is_sent_while_the_broker_is_away_takes_effect_once(
    here: FarHome, nats: Broker, daemon: Daemon, workspace: Path, nursery: trio.Nursery
) -> None:
    local = await Frontend.connect(daemon, nursery)
    session_id = await local.session(workspace, always("once"))
    far = await connect(daemon, here, nursery)
    nats.kill9()
    async with trio.open_nursery() as sending:
        sending.start_soon(far.say, session_id, "hello")
        await trio.sleep(0.2)
        nats.start()
    assert (await local.turn_ended(session_id)).outcome == "completed"
    bodies = [event.body for event in await local.log(session_id)]
    assert len([body for body in bodies if isinstance(body, TurnEnded)]) == 1
    await far.close()
    await local.close()


async def test_a_host_without_its_gateway_is_named_at_once_and_found_again(
    nats: Broker,
    daemon: Daemon,
    workspace: Path,
    nursery: trio.Nursery,
    tmp_path_factory: pytest.TempPathFactory,
    tillers: Tillers,
) -> None:
    frontend = await Frontend.connect(daemon, nursery)
    gate = Gate(workspace)
    session_id = await frontend.session(workspace, calls(bash(gate.command)), text("after", 20))
    box = FarHost(url(nats, GATEWAY), "lone", daemon.places)
    fleet = f'[fleet]\nservers = ["{url(nats)}"]\n[hosts]\nlone = "fleet:lone"'
    with FarHome(tmp_path_factory.mktemp("h"), "") as home:
        (home.home / "t/config/config.toml").write_text(fleet)
        with box:
            attached = await tillers(home, "--host", "lone", "attach", "--json", session_id)
            await frontend.say(session_id)
            await gate.reached()
            await attached.until(2)
        away = await tiller(home, "--host", "lone", "ls")
        assert away.returncode == 1
        assert "no gateway of the host lone is connected" in away.stderr
        listed = await tiller(home, "ls", "--all", "--json")
        assert rows(listed)[-1]["reason"] == "unreachable"
        gate.open("passed")
        await frontend.turn_ended(session_id)
        with box:
            await attached.until(frontend.events(session_id)[-1].seq)
    seqs = [event.seq for event in attached.seen]
    assert seqs == sorted(set(seqs))
    await frontend.close()


async def test_a_daemon_that_was_stopped_is_not_started_from_afar_but_followed_again(
    here: FarHome, daemon: Daemon, workspace: Path, nursery: trio.Nursery, tillers: Tillers
) -> None:
    frontend = await Frontend.connect(daemon, nursery)
    session_id = await frontend.session(workspace, always("said by the next one"))
    attached = await tillers(here, "--host", "box", "attach", "--json", session_id)
    await attached.until(1)
    await daemon.terminate()
    stopped = await tiller(here, "--host", "box", "ls")
    assert stopped.returncode == 1
    assert "no daemon is running on box; log in there and run" in stopped.stderr
    daemon.start()
    await frontend.reconnect()
    await frontend.say(session_id)
    await frontend.turn_ended(session_id)
    await attached.until(frontend.events(session_id)[-1].seq)
    assert attached.seen == frontend.events(session_id)
    await frontend.close()


@pytest.mark.parametrize(
    ("fleet", "host", "status", "problem"),
    [
        ("", "fleet:box", 2, "has no table [fleet]"),
        ('[fleet]\nservers = ["{url}"]', "fleet:nobox", 2, "the fleet has no host 'nobox'"),
        ('[fleet]\nservers = ["{url}"]', "fleet:a.b", 2, "names no host of a fleet"),
        ('[fleet]\nservers = ["{wrong}"]', "box", 2, "refuses the credentials"),
        ('[fleet]\nservers = ["nats://127.0.0.1:1"]', "box", 1, "can't be reached"),
        (
            '[fleet]\nservers = ["{url}"]\nkey = "{key}"',
            "box",
            2,
            "is not encrypted with this team's key",
        ),
    ],
)
def test_what_keeps_a_link_from_starting_is_a_sentence(
    nats: Broker, box: FarHost, tmp_path: Path, fleet: str, host: str, status: int, problem: str
) -> None:
    make_key(tmp_path / "key")
    wrong = url(nats).replace(":secret-2@", ":x@")
    filled = fleet.format(url=url(nats), wrong=wrong, key=tmp_path / "key")
    with FarHome(tmp_path, filled) as home:
        done = home.tiller("--host", host, "ls")
        assert (done.returncode, done.stdout) == (status, "")
        assert problem in done.stderr
        assert not (pid := home.link) or gone(pid, timeout_s=TIMEOUT_S)


@pytest.mark.nightly
async def test_a_follower_misses_nothing_whatever_part_of_the_way_dies(
    nats: Broker,
    daemon: Daemon,
    workspace: Path,
    nursery: trio.Nursery,
    tmp_path_factory: pytest.TempPathFactory,
    tillers: Tillers,
) -> None:
    """The broker, the link and the gateway die in turn; inputs are sent just before."""
    rounds = 4 * CUTS
    gates = [Gate(workspace, f"gate{number}") for number in range(rounds)]
    steps = [step for gate in gates for step in (calls(bash(gate.command)), text("a b c", 9))]
    local = await Frontend.connect(daemon, nursery)
    session_id = await local.session(workspace, *steps)
    with (
        FarHome(tmp_path_factory.mktemp("h"), f'[fleet]\nservers = ["{url(nats)}"]') as home,
        ExitStack() as stack,
    ):
        gateway = stack.enter_context(FarHost(url(nats, GATEWAY), "box", daemon.places))
        attached = await tillers(home, "--host", "box", "attach", "--json", session_id)
        await attached.until(1)
        for number, gate in enumerate(gates):
            async with trio.open_nursery() as sending:
                sending.start_soon(_send, home, session_id, f"input {number}.")
                await gate.reached()
                match number % 4:
                    case 0:
                        nats.kill9()
                    case 1:
                        home.end_link()
                    case 2:
                        await trio.to_thread.run_sync(stack.close)
                gate.open("passed")
                await local.turn_ended(session_id, number + 1)
                match number % 4:
                    case 0:
                        nats.start()
                    case 2:
                        stack.enter_context(gateway)
        await attached.until(local.events(session_id)[-1].seq)
    seqs = [event.seq for event in attached.seen]
    assert seqs == sorted(set(seqs))
    log = await local.log(session_id)
    lasting = [event for event in log if not isinstance(event.body, ItemDelta)]
    assert [event for event in attached.seen if not isinstance(event.body, ItemDelta)] == lasting
    said = [event.body.item for event in log if isinstance(event.body, ItemCompleted)]
    inputs = [item.text for item in said if isinstance(item, UserMessage)]
    assert inputs == [f"input {number}." for number in range(rounds)]
    await local.close()


async def _send(home: FarHome, session_id: str, message: str) -> None:
    """Send an input; what has failed before the host was reached is tried again, as a user does."""
    while (sent := await tiller(home, "send", f"box:{session_id}", message)).returncode:
        assert "is connected" in sent.stderr or "be reached" in sent.stderr, sent.stderr
