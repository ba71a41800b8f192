"""Makes the HTTP client of a provider, closed at the end, with which tests make adapters."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from tiller_daemon.config import Api, Provider
from tiller_daemon.models.http.client import HttpClient
from tiller_daemon.models.keys import EnvironmentKey, Key

KEY_VARIABLE = "LOCAL_KEY"


def fixed_key(value: str | None) -> Key:
    """Return a key with this value, as if from the variable `LOCAL_KEY`."""
    return EnvironmentKey(KEY_VARIABLE, {KEY_VARIABLE: value} if value else {})


@asynccontextmanager
async def open_http(
    base_url: str, key: str | None = None, *, api: Api = "openai_chat", **fields: Any
) -> AsyncGenerator[HttpClient]:
    """Yield the client of the provider `local`; `fields` go into the provider's configuration."""
    provider = Provider(api, base_url=base_url, **fields)
    http = HttpClient("local", provider, fixed_key(key) if key else None)
    try:
        yield http
    finally:
        await http.aclose()
