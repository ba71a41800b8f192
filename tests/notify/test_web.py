"""Messages at real HTTP servers: what ntfy, Slack and webhooks get, and what refusals mean."""

import pytest
import trio

from support.http_server import LocalServer, serving, status, wait_closed
from tiller_daemon.config import KeyPlaces
from tiller_daemon.models.keys import Key, NoKey, find_key
from tiller_daemon.notify.delivery import TargetProblem
from tiller_daemon.notify.messages import Message
from tiller_daemon.notify.web import Ntfy, Slack, Webhook

MESSAGE = Message(
    "01S", "needs_answer", "Pay needs an answer", "Run <ls>\n& more", "/work/shop", "01R"
)
DONE = Message("01S", "ended", "Pay is done", "Paid.", "/work/shop")
TOKEN = "tk_0123456789abcdefghij"


def key(secret: str) -> Key:
    found = find_key(KeyPlaces(api_key_env="TOKEN"), {"TOKEN": secret}, ())
    assert found
    return found


def topic(server: LocalServer) -> str:
    return f"http://127.0.0.1:{server.port}/my-topic"


async def test_ntfy_gets_a_message_that_replaces_the_last_one_and_can_be_deleted() -> None:
    async with serving(status(200, {"id": "x"})) as server:
        target = Ntfy(topic(server), key(TOKEN), {})
        shown = await target.show(MESSAGE, "")
        assert await target.show(DONE, shown) == shown
        await target.withdraw(shown)
    first, second, deleted = server.received
    assert first.body == {
        "topic": "my-topic",
        "title": "Pay needs an answer",
        "message": "Run <ls>\n& more",
        "tags": ["raising_hand"],
        "priority": 4,
        "sequence_id": "tiller-01S",
    }
    assert (first.method, first.path) == ("POST", "/")
    assert first.headers["authorization"] == f"Bearer {TOKEN}"
    assert second.body["sequence_id"] == first.body["sequence_id"]
    assert (deleted.method, deleted.path) == ("DELETE", "/my-topic/tiller-01S")
    assert deleted.headers["authorization"] == f"Bearer {TOKEN}"


@pytest.mark.parametrize("code", [404, 405])
async def test_an_ntfy_that_can_not_delete_is_no_problem(code: int) -> None:
    async with serving(status(code)) as server:
        await Ntfy(topic(server), NoKey(), {}).withdraw("tiller-01S")


async def test_slack_gets_a_text_that_mentions_nobody_at_a_secret_address() -> None:
    async with serving(status(200, b"ok")) as server:
        await Slack("", key(f"http://127.0.0.1:{server.port}/services/T0/secret"), {}).show(
            MESSAGE, ""
        )
    (received,) = server.received
    assert received.path == "/services/T0/secret"
    assert received.body == {"text": "Pay needs an answer\nRun &lt;ls&gt;\n&amp; more"}
    assert "authorization" not in received.headers


async def test_a_webhook_gets_all_fields() -> None:
    async with serving(status(204)) as server:
        await Webhook(f"http://127.0.0.1:{server.port}/hook", NoKey(), {}).show(MESSAGE, "")
    (received,) = server.received
    assert received.body == {
        "session_id": "01S",
        "moment": "needs_answer",
        "title": "Pay needs an answer",
        "text": "Run <ls>\n& more",
        "workspace": "/work/shop",
        "request_id": "01R",
    }


@pytest.mark.parametrize(
    ("code", "final"), [(400, True), (401, True), (404, True), (429, False), (500, False)]
)
async def test_a_refusal_is_final_unless_it_may_pass_and_names_no_secret(
    code: int, *, final: bool
) -> None:
    async with serving(status(code, f"bad token {TOKEN}".encode())) as server:
        with pytest.raises(TargetProblem) as caught:
            await Webhook(topic(server), key(TOKEN), {}).show(MESSAGE, "")
    assert caught.value.final is final
    assert str(code) in str(caught.value)
    assert TOKEN not in str(caught.value)


async def test_a_server_that_is_away_or_does_not_answer_is_a_problem(autojump_clock) -> None:
    async with serving(wait_closed) as server:
        silent = Webhook(topic(server), NoKey(), {})
        with pytest.raises(TargetProblem, match="does not answer"):
            await silent.show(MESSAGE, "")
    with pytest.raises(TargetProblem) as caught:
        await silent.show(MESSAGE, "")
    assert not caught.value.final


async def test_a_missing_key_is_a_final_problem() -> None:
    missing = find_key(KeyPlaces(api_key_env="TOKEN"), {}, ())
    assert missing
    with pytest.raises(TargetProblem, match="TOKEN") as caught:
        await Slack("", missing, {}).show(MESSAGE, "")
    assert caught.value.final
    await trio.lowlevel.checkpoint()
