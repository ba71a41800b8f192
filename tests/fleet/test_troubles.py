"""What keeps a fleet from working: a full stream, a wrong clock, an expired credential."""

import asyncio
import base64
import json
import os
import re
import time
from collections.abc import Awaitable, Callable, Generator
from pathlib import Path
from typing import NamedTuple

import nkeys
import pytest
from nats.js import JetStreamContext

from e2e.words import text
from support.fleet import TIMEOUT_S, Broker, Host, fleet_of, repository, wait_until
from tiller_client.fleet.broker import Broker as FleetBroker
from tiller_client.fleet.names import EVENTS_STREAM, INBOX_STREAM, inbox
from tiller_client.fleet.settings import read_settings

STATUS_USAGE = 2
HOUR_S = 3600

WRONG_S = 600
"""How far the clock of a host is wrong."""


@pytest.fixture
def host(tmp_path: Path) -> Generator[Host]:
    with fleet_of(tmp_path, 1) as (_, hosts):
        yield hosts[0]


def on_broker(host: Host, act: Callable[[JetStreamContext], Awaitable[object]]) -> None:
    async def run() -> None:
        async with FleetBroker(read_settings(host.daemon.places), "test") as broker:
            await act(broker.js)

    asyncio.run(run())


def limit_stream(host: Host, size: int) -> None:
    async def act(js: JetStreamContext) -> None:
        config = (await js.stream_info(EVENTS_STREAM)).config
        await js.update_stream(config, max_bytes=size)

    on_broker(host, act)


def test_events_wait_in_the_log_while_the_stream_is_full(host: Host) -> None:
    limit_stream(host, 4096)
    model = host.daemon.script(text("x" * 10_000))
    assert not host.tiller("exec", "--model", model, "Go").returncode
    wait_until(lambda: "is full; the events wait" in host.tiller("fleet", "ls").stdout)
    (session,) = (one["session_id"] for one in host.lines("ls"))
    limit_stream(host, -1)
    logged = host.tiller("log", session, "--json").stdout.splitlines(keepends=True)
    whole = "".join(one for one in logged if '"item_delta"' not in one)
    published = "fleet", "logs", f"{session}@{host.name}", "--json"
    wait_until(lambda: host.tiller(*published).stdout == whole)
    wait_until(lambda: "is full" not in host.tiller("fleet", "ls").stdout)


@pytest.mark.parametrize("shift_s", [WRONG_S, pytest.param(-WRONG_S, marks=pytest.mark.nightly)])
def test_a_gateway_with_a_wrong_clock_does_tasks_and_gets_messages(
    host: Host, tmp_path: Path, shift_s: int
) -> None:
    library = next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"), None)
    if library is None:
        pytest.skip("no libfaketime: apt install faketime")
    wrong = {
        "LD_PRELOAD": str(library),
        "FAKETIME": f"{shift_s:+}s",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }
    host.stop_gateway()
    host.start_gateway(**wrong)
    assert host.gateway
    assert "libfaketime" in Path(f"/proc/{host.gateway.pid}/maps").read_text()
    origin = repository(tmp_path / "origin")
    model = host.daemon.script(text("Done."))
    (task,) = host.run("Go", origin, "--model", model, "--retry", "1")
    assert host.ended(task)["report"]["outcome"] == "completed"
    session = left_for(host)
    host.start_gateway(**wrong)
    wait_until(lambda: len(host.daemon.requests(session)) == 2)


def left_for(host: Host) -> str:
    """Stop the gateway, and leave a message for a session, which is returned."""
    assert not host.tiller("exec", "--model", host.daemon.script(text("Done.")), "Go").returncode
    session = host.lines("ls")[0]["session_id"]
    host.stop_gateway()
    sent = host.tiller("fleet", "send", f"{session}@{host.name}", "More", "--wait", "60s")
    assert not sent.returncode, sent.stderr
    return str(session)


def test_a_message_that_a_killed_gateway_took_is_delivered_soon_again(host: Host) -> None:
    session = left_for(host)

    async def take(js: JetStreamContext) -> None:
        durable = f"host_{host.name}"
        reader = await js.pull_subscribe(inbox(host.name), durable=durable, stream=INBOX_STREAM)
        assert await reader.fetch(1)

    on_broker(host, take)
    host.start_gateway()
    wait_until(lambda: len(host.daemon.requests(session)) == 2)


class Team(NamedTuple):
    """An operator, an account and its signing key, as `nsc` makes them."""

    config: str
    """For the server."""
    account: nkeys.KeyPair

    def credentials(self, ends_at: float) -> str:
        """The content of a credentials file that is valid until then, in Unix seconds."""
        user, seed = new_key(nkeys.PREFIX_BYTE_USER)
        token = signed(self.account, user, "user", {"subs": -1, "data": -1, "payload": -1}, ends_at)
        return (
            f"-----BEGIN NATS USER JWT-----\n{token}\n------END NATS USER JWT------\n\n"
            f"-----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
        )


def new_key(kind: int) -> tuple[nkeys.KeyPair, str]:
    seed = nkeys.encode_seed(os.urandom(32), kind)
    return nkeys.from_seed(bytes(seed)), bytes(seed).decode()


def signed(
    issuer: nkeys.KeyPair,
    subject: nkeys.KeyPair,
    kind: str,
    claims: dict[str, object],
    ends_at: float = 0,
) -> str:
    head = {"typ": "JWT", "alg": "ed25519-nkey"}
    body: dict[str, object] = {
        "jti": os.urandom(8).hex(),
        "iat": int(time.time()),
        "iss": bytes(issuer.public_key).decode(),
        "sub": bytes(subject.public_key).decode(),
        "name": kind,
        "nats": {**claims, "type": kind, "version": 2},
    }
    if ends_at:
        body["exp"] = int(ends_at)
    text = ".".join(encoded(json.dumps(one).encode()) for one in (head, body))
    return f"{text}.{encoded(issuer.sign(text.encode()))}"


def encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


@pytest.fixture
def team() -> Team:
    operator, _ = new_key(nkeys.PREFIX_BYTE_OPERATOR)
    account, _ = new_key(nkeys.PREFIX_BYTE_ACCOUNT)
    system, _ = new_key(nkeys.PREFIX_BYTE_ACCOUNT)
    all_of = ("conn", "leaf", "subs", "data", "payload", "imports", "exports", "consumer")
    limits = dict.fromkeys((*all_of, "mem_storage", "disk_storage", "streams"), -1)
    accounts = [
        (one, signed(operator, one, "account", {"limits": {**limits, "wildcards": True, **none}}))
        for one, none in ((account, {}), (system, {"mem_storage": 0, "disk_storage": 0}))
    ]
    known = "\n".join(f"{bytes(one.public_key).decode()}: {token}" for one, token in accounts)
    return Team(
        f"operator: {signed(operator, operator, 'operator', {})}\n"
        f"system_account: {bytes(system.public_key).decode()}\n"
        f"resolver: MEMORY\nresolver_preload {{\n{known}\n}}\n",
        account,
    )


def test_an_expired_credential_is_named_and_a_new_one_taken(tmp_path: Path, team: Team) -> None:
    file = tmp_path / "box.creds"
    file.write_text(team.credentials(time.time() + 4))
    with Broker(tmp_path, team.config) as broker:
        (tmp_path / "h").mkdir()
        with Host(tmp_path / "h", "box", broker, f'creds = "{file}"') as host:
            assert host.gateway
            assert host.gateway.wait(TIMEOUT_S) == STATUS_USAGE
            refused = host.tiller("fleet", "ls")
            assert refused.returncode == STATUS_USAGE
            for said in (host.said, refused.stderr):
                assert re.search(rf"refuses the credentials \(.*\); check {file}", said)
            file.write_text(team.credentials(time.time() + HOUR_S))
            host.start_gateway()
            assert "box" in host.tiller("fleet", "ls").stdout
