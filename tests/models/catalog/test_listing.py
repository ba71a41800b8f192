"""What providers say of their models, each in its own way."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.each import each
from support.http_server import serving, status
from support.login_service import LISTING
from support.peers import Llama, llama
from support.providers import open_http
from tiller_daemon.models.base import ModelError
from tiller_daemon.models.catalog.facts import Facts
from tiller_daemon.models.catalog.listing import fetch_listing, parse_listing
from tiller_protocol.catalog import Price

__all__ = ["llama"]


@each(
    ("entry", "facts"),
    [
        ({"id": "m", "max_model_len": 40_960, "owned_by": "vllm"}, Facts(40_960)),
        (
            {"id": "m", "owned_by": "llamacpp", "meta": {"n_ctx": 4_096, "n_ctx_train": 8_192}},
            Facts(4_096),
        ),
        ({"id": "m", "owned_by": "llamacpp", "meta": {"n_ctx_train": 8_192}}, Facts(8_192)),
        (
            {
                "id": "m",
                "context_length": 163_840,
                "top_provider": {"context_length": 131_072, "max_completion_tokens": 8_000},
                "pricing": {
                    "prompt": "0.0000006",
                    "completion": "0.0000018",
                    "input_cache_read": "0.00000006",
                    "image": "0",
                },
            },
            Facts(163_840, 8_000, Price(0.6, 1.8, cached_input=0.06)),
        ),
        (
            {
                "id": "m",
                "context_length": 2_000_000,
                "pricing": {"prompt": "-1", "completion": "-1"},
            },
            Facts(2_000_000),
        ),
        (
            {"id": "m", "pricing": {"prompt": "0", "completion": "0"}},
            Facts(price=Price(0.0, 0.0)),
        ),
        (
            {"id": "m", "context_window": 131_072, "max_completion_tokens": 32_768},
            Facts(131_072, 32_768),
        ),
        ({"id": "m", "max_context_length": 262_144, "capabilities": {}}, Facts(262_144)),
        ({"id": "m", "max_input_tokens": 200_000, "max_tokens": 64_000}, Facts(200_000, 64_000)),
        (
            {"name": "models/m", "inputTokenLimit": 1_048_576, "outputTokenLimit": 65_536},
            Facts(1_048_576, 65_536),
        ),
        ({"id": "m", "object": "model", "created": 1, "owned_by": "openai"}, Facts()),
        ({"id": "m", "context_length": "131072", "max_tokens": True}, Facts()),
        ({"id": "m", "context_length": 0, "context_window": 5, "pricing": []}, Facts(5)),
    ],
)
def test_each_way_to_tell_the_window_is_understood(entry: dict[str, Any], facts: Facts) -> None:
    assert parse_listing({"object": "list", "data": [entry]}) == {"m": facts}
    assert parse_listing({"models": [entry]}) == {"m": facts}
    assert parse_listing([entry]) == {"m": facts}


def test_a_plan_lists_models_by_slug_and_says_which_to_show_in_which_order() -> None:
    listing = parse_listing(LISTING)
    assert [*listing] == ["gpt-6-sol", "gpt-6-luna"]
    assert listing["gpt-6-sol"] == Facts(272_000)


anything = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text() | st.integers(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["data", "id", "meta", "n_ctx", "pricing", "prompt", "completion"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=30,
)


@given(told=anything)
def test_no_answer_can_break_it(told: object) -> None:
    assert all(isinstance(name, str) for name in parse_listing(told))


async def test_ollama_is_asked_for_the_window_that_is_really_used() -> None:
    listing = {
        "data": [{"id": "qwen:8b", "owned_by": "library"}, {"id": "x", "owned_by": "library"}]
    }
    loaded = {"models": [{"name": "qwen:8b", "model": "qwen:8b", "context_length": 4_096}]}
    answers = (status(200, listing, **JSON), status(200, loaded, **JSON))
    async with serving(*answers, lists=False) as server, open_http(server.base_url) as http:
        assert await fetch_listing(http) == {"qwen:8b": Facts(4_096), "x": Facts()}
    assert [one.path for one in server.received] == ["/v1/models", "/api/ps"]


async def test_lm_studio_too() -> None:
    listing = {"data": [{"id": "qwen", "owned_by": "organization_owner"}]}
    more = {"data": [{"id": "qwen", "max_context_length": 32_768, "loaded_context_length": 8_192}]}
    answers = (status(200, listing, **JSON), status(200, more, **JSON))
    async with serving(*answers, lists=False) as server, open_http(server.base_url) as http:
        assert await fetch_listing(http) == {"qwen": Facts(8_192)}
    assert server.received[1].path == "/api/v0/models"


JSON = {"Content_Type": "application/json"}


async def test_what_is_told_elsewhere_may_be_missing() -> None:
    listing = {"data": [{"id": "qwen", "owned_by": "library"}]}
    answers = (status(200, listing, **JSON), status(404))
    async with serving(*answers, lists=False) as server, open_http(server.base_url) as http:
        assert await fetch_listing(http) == {"qwen": Facts()}


@pytest.mark.parametrize(("code", "kind"), [(401, "authentication"), (404, "not_found")])
async def test_a_provider_that_lists_nothing_says_why(code: int, kind: str) -> None:
    async with serving(status(code), lists=False) as server, open_http(server.base_url) as http:
        with pytest.raises(ModelError) as caught:
            await fetch_listing(http)
    assert caught.value.kind == kind


@pytest.mark.peer
async def test_llama_cpp_tells_the_window_that_it_was_started_with(llama: Llama) -> None:
    async with open_http(llama.base_url) as http:
        assert await fetch_listing(http) == {"smollm2": Facts(8_192)}
