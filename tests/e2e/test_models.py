"""Models: which are usable now, why others are not, their windows, and their prices."""

import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import msgspec
import pytest
import trio
from msgspec import structs

from e2e.provider import config_for, said, text_frames
from support.daemon import Daemon
from support.frontend import Frontend
from support.http_server import events, serving, status
from tiller_protocol.answers import CatalogResult
from tiller_protocol.catalog import ModelSummary, Price, RateLimit
from tiller_protocol.events import StepEnded, TurnStarted
from tiller_protocol.ops import Catalog

TIMEOUT_S = 20.0

CONFIG = """
model = "good/qwen"

[providers.good]
api = "openai_chat"
base_url = "{good}"

[providers.gone]
api = "openai_responses"
base_url = "http://127.0.0.1:{gone}/v1"

[providers.locked]
api = "anthropic_messages"
base_url = "{locked}"
api_key_env = "LOCKED_KEY"

[providers.keyless]
api = "openai_chat"
base_url = "{good}"
api_key_env = "NOT_SET"

[providers.shy]
api = "openai_chat"
base_url = "{shy}"

[models."gone/m"]
[models."locked/m"]
[models."keyless/m"]
[models."shy/m"]
context_window = 5_000
price = {{ input = 1.5, output = 6, cached_input = 0.1 }}
variants.deep = {{ reasoning_effort = "high" }}
"""

UNKNOWN = 'model = "local/m"\n[providers.local]\napi = "openai_chat"\nbase_url = "{}"\n'
"""Configures a server and a model without any properties."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Asked(Protocol):
    """Asks a daemon for its models; returns them by name."""

    async def __call__(self, daemon: Daemon, *, ask: bool) -> dict[str, ModelSummary]: ...


@pytest.fixture
async def asked(new_daemon: Callable[..., Daemon], nursery: trio.Nursery) -> Asked:
    async def ask(daemon: Daemon, *, ask: bool) -> dict[str, ModelSummary]:
        frontend = await Frontend.connect(daemon, nursery)
        result = await frontend.must(Catalog(ask=ask))
        await frontend.close()
        assert isinstance(result, CatalogResult)
        return {model.name: model for model in result.models}

    return ask


async def test_models_say_what_is_usable_now_and_why_another_is_not(
    new_daemon: Callable[..., Daemon], asked: Asked
) -> None:
    listing = {"data": [{"id": "qwen", "max_model_len": 40_960}, {"id": "other"}]}
    refused = status(401, {"error": {"message": "no such key"}})
    async with (
        serving(said("hi")) as good,
        serving(refused, lists=False) as locked,
        serving(status(404)) as shy,
    ):
        good.listing = listing
        servers = {"good": good.base_url, "locked": locked.base_url, "shy": shy.base_url}
        daemon = new_daemon(CONFIG.format(gone=free_port(), **servers))
        daemon.start(LOCKED_KEY="sk-canary-0123456789")
        known = await asked(daemon, ask=False)
        assert list(known) == ["good/qwen", "gone/m", "locked/m", "keyless/m", "shy/m"]
        models = await asked(daemon, ask=True)
    assert list(models) == [*known, "good/other"]
    assert models["good/other"].listed
    assert structs.replace(models["good/qwen"], variants=()) == ModelSummary(
        "good/qwen", "openai_chat", default=True, context_window=40_960
    )
    assert models["good/qwen"].variants == ("none", "minimal", "low", "medium", "high", "xhigh")
    assert "refuses connections" in models["gone/m"].problem
    assert "Check the variable LOCKED_KEY" in models["locked/m"].problem
    assert "no such key" in models["locked/m"].problem
    assert "max" in models["locked/m"].variants
    assert "NOT_SET" in models["keyless/m"].problem
    assert models["shy/m"].problem == "", "that it lists nothing does not mean that it can't answer"
    assert models["shy/m"].context_window == 5_000
    assert models["shy/m"].price == Price(1.5, 6.0, cached_input=0.1)
    assert models["shy/m"].variants[0] == "deep"


async def test_a_provider_that_never_answers_is_said_soon(
    new_daemon: Callable[..., Daemon], asked: Asked
) -> None:
    async def silent(stream: trio.abc.Stream) -> None:
        await trio.sleep_forever()

    async with serving(silent, lists=False) as server:
        daemon = new_daemon(
            config_for(server.base_url).replace("[models.", "#").split("context")[0]
        )
        daemon.start()
        with trio.fail_after(TIMEOUT_S):
            models = await asked(daemon, ask=True)
    assert "did not list its models within" in models["local/m"].problem


async def test_the_window_that_a_server_tells_is_that_of_the_next_turn_and_of_the_next_daemon(
    new_daemon: Callable[..., Daemon], workspace: Path, nursery: trio.Nursery
) -> None:
    """The daemon asks the server during the first turn, which does not wait for the answer."""
    async with serving(said("one")) as server:
        server.listing = {"data": [{"id": "m", "max_model_len": 12_345}]}
        daemon = new_daemon(UNKNOWN.format(server.base_url))
        daemon.start()
        frontend = await Frontend.connect(daemon, nursery)
        session_id = await frontend.session(workspace, model="local/m")
        await frontend.say(session_id)
        await frontend.turn_ended(session_id)
        kept = daemon.places.state / "catalog.json"
        with trio.fail_after(TIMEOUT_S):
            while not await trio.Path(kept).exists():  # noqa: ASYNC110 - another process writes it
                await trio.sleep(0.02)
        await frontend.say(session_id)
        await frontend.turn_ended(session_id, 2)
        await frontend.close()
        assert await daemon.terminate() == 0
        daemon.start()
        frontend = await Frontend.connect(daemon, nursery)
        frontend.follow(session_id)
        await frontend.say(session_id)
        await frontend.turn_ended(session_id, 3)
        begun = [e.body for e in frontend.events(session_id) if isinstance(e.body, TurnStarted)]
        await frontend.close()
    assert [one.context.context_window for one in begun[1:]] == [12_345, 12_345]
    assert kept.stat().st_mode & 0o077 == 0


async def test_a_configured_price_makes_the_cost_of_a_step_and_of_the_turn(
    new_daemon: Callable[..., Daemon], workspace: Path, nursery: trio.Nursery
) -> None:
    usage = {
        "prompt_tokens": 1_000,
        "completion_tokens": 100,
        "prompt_tokens_details": {"cached_tokens": 400},
    }
    frames = text_frames("done")
    counted = b'data: {"choices":[],"usage":%s}\n\n' % msgspec.json.encode(usage)
    async with serving(events(*frames[:-1], counted, frames[-1])) as server:
        price = "price = { input = 2, output = 10, cached_input = 0.5 }\n"
        daemon = new_daemon(config_for(server.base_url) + price)
        daemon.start()
        frontend = await Frontend.connect(daemon, nursery)
        session_id = await frontend.session(workspace, model="local/m")
        await frontend.say(session_id)
        ended = await frontend.turn_ended(session_id)
        (step,) = [e.body for e in frontend.events(session_id) if isinstance(e.body, StepEnded)]
        cost = (await frontend.snapshot(session_id)).cost
        await frontend.close()
    assert (step.cost, ended.cost, cost) == pytest.approx((0.0024, 0.0024, 0.0024))


async def test_models_say_what_is_left_of_the_limits_that_their_provider_reported(
    new_daemon: Callable[..., Daemon], nursery: trio.Nursery, workspace: Path
) -> None:
    """The limits are those of the last response, which may be a refusal."""
    used_up = status(
        429,
        {"error": {"message": "slow down"}},
        retry_after_ms="10",
        x_ratelimit_limit_requests="50",
        x_ratelimit_remaining_requests="0",
    )
    async with serving(used_up, said("hi")) as server:
        daemon = new_daemon(config_for(server.base_url))
        daemon.start()
        frontend = await Frontend.connect(daemon, nursery)
        session_id = await frontend.session(workspace, model="local/m")
        before = await frontend.must(Catalog())
        await frontend.say(session_id)
        await frontend.turn_ended(session_id)
        after = await frontend.must(Catalog())
        command = [sys.executable, "-m", "tiller_client", "models"]
        shown = await trio.run_process(command, env=daemon.variables, capture_stdout=True)
        await frontend.close()
    assert isinstance(before, CatalogResult)
    assert isinstance(after, CatalogResult)
    assert before.models[0].rate_limits == ()
    assert after.models[0].rate_limits == (RateLimit("requests", 0, 50),)
    assert "    left: 0 of 50 requests\n" in shown.stdout.decode()
