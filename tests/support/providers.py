"""A provider's HTTP client as a test wants it, closed at the end; adapters are made with it."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from tiller_daemon.config import Api, Provider
from tiller_daemon.models.http.client import HttpClient
from tiller_daemon.models.keys import EnvironmentKey, Key

KEY_VARIABLE = "LOCAL_KEY"


def fixed_key(value: str | None) -> Key:
    """A key as if it stood in the variable `LOCAL_KEY`."""
    return EnvironmentKey(KEY_VARIABLE, {KEY_VARIABLE: value} if value else {})


@asynccontextmanager
async def open_http(
    base_url: str, key: str | None = None, *, api: Api = "openai_chat", **fields: Any
) -> AsyncGenerator[HttpClient]:
    """The client of the provider `local`; `fields` are those of its configuration."""
    provider = Provider(api, base_url=base_url, **fields)
    http = HttpClient("local", provider, fixed_key(key) if key else None)
    try:
        yield http
    finally:
        await http.aclose()
