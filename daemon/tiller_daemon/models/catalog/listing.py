"""Requests and parses a provider's list of models, and the facts in the list.

Every server has `GET /models`, but the fields in the response differ, and two local servers report
the context window that is actually in use under another path.
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any, cast

from tiller_daemon.models.base import ModelError
from tiller_daemon.models.catalog.facts import Facts
from tiller_daemon.models.http.client import HttpClient
from tiller_protocol.catalog import TOKENS_PER_PRICE, Price

Listing = dict[str, Facts]

_CONTEXT_WINDOW_FIELDS = (
    "loaded_context_length",  # LM Studio
    "context_length",  # OpenRouter, Together, Ollama
    "max_model_len",  # vLLM, SGLang
    "context_window",  # Groq
    "max_context_length",  # Mistral, LM Studio
    "max_input_tokens",  # Anthropic
    "inputTokenLimit",  # Gemini
    "n_ctx",  # llama.cpp
    "n_ctx_train",  # llama.cpp, older: the model's limit, which may exceed the server's
)
_MAX_OUTPUT_FIELDS = (
    "max_completion_tokens",
    "max_output_tokens",
    "max_tokens",
    "outputTokenLimit",
)
_NESTED_TABLES = ("meta", "top_provider", "limits")

LOADED_MODEL_PATHS = {"library": "/api/ps", "organization_owner": "/api/v0/models"}
"""Paths at which Ollama and LM Studio report the context windows of loaded models. The keys are the
values of `owned_by` in their listings."""

TOKENS_MAX = 2**31


async def fetch_listing(http: HttpClient) -> Listing:
    """Request a provider's list of models, without a time limit. Raises `ModelError`."""
    body = await http.get("/models", object)
    listing = parse_listing(body)
    owners = {str(entry.get("owned_by")) for entry in _entries(body)}
    for owner, path in LOADED_MODEL_PATHS.items():
        if owner in owners:
            with suppress(ModelError):
                more = parse_listing(await http.get(path, dict[str, Any], from_root=True))
                listing |= {
                    name: facts.over(listing.get(name, Facts())) for name, facts in more.items()
                }
    return listing


def parse_listing(body: object) -> Listing:
    """Return the models in a response to `GET /models`, by the names that requests use. Pure."""
    listing: Listing = {}
    for entry in _entries(body):
        # OpenAI lists a plan's models by `slug`, and says which of them to show.
        name = entry.get("id") or entry.get("slug") or entry.get("model") or entry.get("name")
        is_hidden = entry.get("visibility", "list") != "list"
        if isinstance(name, str) and name and not is_hidden:
            listing[name.removeprefix("models/")] = _facts_of(entry)
    return listing


def _entries(body: object) -> Iterator[dict[str, Any]]:
    if isinstance(body, dict):
        table = cast("dict[str, Any]", body)
        body = table.get("data") or table.get("models")
    if isinstance(body, list):
        for entry in cast("list[Any]", body):
            if isinstance(entry, dict):
                yield cast("dict[str, Any]", entry)


def _facts_of(entry: dict[str, Any]) -> Facts:
    tables = [entry]
    tables += [
        cast("dict[str, Any]", t)
        for name in _NESTED_TABLES
        if isinstance(t := entry.get(name), dict)
    ]
    pricing = entry.get("pricing")
    return Facts(
        _first_tokens(tables, _CONTEXT_WINDOW_FIELDS),
        _first_tokens(tables, _MAX_OUTPUT_FIELDS),
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
    """Parse OpenRouter's prices: strings, in US dollars per token.

    A negative price means that it depends on the request, so it counts as unknown.
    """
    plain, output = _dollars(pricing.get("prompt")), _dollars(pricing.get("completion"))
    if plain is None or output is None:
        return None
    cached, written = (_dollars(pricing.get(f"input_cache_{name}")) for name in ("read", "write"))
    return Price(plain, output, cached, written)


def _dollars(text: object) -> float | None:
    """Return dollars per million tokens, rounded because the factor leaves binary fractions."""
    if not isinstance(text, str | int | float):
        return None
    try:
        number = float(text) * TOKENS_PER_PRICE
    except ValueError:
        return None
    return round(number, 6) if 0 <= number < float("inf") else None
