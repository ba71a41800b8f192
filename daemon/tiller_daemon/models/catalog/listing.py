"""Which models a provider has by its own account, and what it says of each.

`GET /models` is everywhere; what stands in it is not, and two local servers tell the window that
they really use elsewhere. The parsing is pure; `fetch_listing` asks.
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any, cast

from tiller_daemon.models.base import ModelError
from tiller_daemon.models.catalog.facts import Facts
from tiller_daemon.models.http.client import HttpClient
from tiller_protocol.prices import TOKENS_PER_PRICE, Price

Listing = dict[str, Facts]

_WINDOWS = (
    "loaded_context_length",  # LM Studio
    "context_length",  # OpenRouter, Together, Ollama
    "max_model_len",  # vLLM, SGLang
    "context_window",  # Groq
    "max_context_length",  # Mistral, LM Studio
    "max_input_tokens",  # Anthropic
    "inputTokenLimit",  # Gemini
    "n_ctx",  # llama.cpp
    "n_ctx_train",  # llama.cpp, older: what the model could, not what the server lets it
)
_OUTPUTS = ("max_completion_tokens", "max_output_tokens", "max_tokens", "outputTokenLimit")
_INNER = ("meta", "top_provider", "limits")

LOADED_MODEL_PATHS = {"library": "/api/ps", "organization_owner": "/api/v0/models"}
"""Where Ollama and LM Studio tell the window of what is loaded, by the `owned_by` of theirs."""

TOKENS_MAX = 2**31


async def fetch_listing(http: HttpClient) -> Listing:
    """Ask a provider for its models; raises `ModelError`. Sets no limit of time."""
    told = await http.get("/models", object)
    listing = parse_listing(told)
    owners = {str(entry.get("owned_by")) for entry in _entries(told)}
    for owner, path in LOADED_MODEL_PATHS.items():
        if owner in owners:
            with suppress(ModelError):
                more = parse_listing(await http.get(path, dict[str, Any], from_root=True))
                listing |= {
                    name: facts.over(listing.get(name, Facts())) for name, facts in more.items()
                }
    return listing


def parse_listing(told: object) -> Listing:
    """The models in the answer to `GET /models`, by the names that requests use."""
    listing: Listing = {}
    for entry in _entries(told):
        name = entry.get("id") or entry.get("model") or entry.get("name")
        if isinstance(name, str) and name:
            listing[name.removeprefix("models/")] = _facts_of(entry)
    return listing


def _entries(told: object) -> Iterator[dict[str, Any]]:
    if isinstance(told, dict):
        table = cast("dict[str, Any]", told)
        told = table.get("data") or table.get("models")
    if isinstance(told, list):
        for entry in cast("list[Any]", told):
            if isinstance(entry, dict):
                yield cast("dict[str, Any]", entry)


def _facts_of(entry: dict[str, Any]) -> Facts:
    tables = [entry]
    tables += [
        cast("dict[str, Any]", t) for name in _INNER if isinstance(t := entry.get(name), dict)
    ]
    pricing = entry.get("pricing")
    return Facts(
        _first_tokens(tables, _WINDOWS),
        _first_tokens(tables, _OUTPUTS),
        _price_of(cast("dict[str, Any]", pricing)) if isinstance(pricing, dict) else None,
    )


def _first_tokens(tables: list[dict[str, Any]], names: tuple[str, ...]) -> int | None:
    for name in names:
        for table in tables:
            number = table.get(name)
            if isinstance(number, int) and not isinstance(number, bool) and 0 < number < TOKENS_MAX:
                return number
    return None


def _price_of(pricing: dict[str, Any]) -> Price | None:
    """OpenRouter's prices: text, in US dollars per token. Negative ones depend on the request."""
    plain, output = _dollars(pricing.get("prompt")), _dollars(pricing.get("completion"))
    if plain is None or output is None:
        return None
    cached, written = (_dollars(pricing.get(f"input_cache_{name}")) for name in ("read", "write"))
    return Price(plain, output, cached, written)


def _dollars(text: object) -> float | None:
    """Dollars per million tokens, rounded to what prices are given in."""
    if not isinstance(text, str | int | float):
        return None
    try:
        number = float(text) * TOKENS_PER_PRICE
    except ValueError:
        return None
    return round(number, 6) if 0 <= number < float("inf") else None
