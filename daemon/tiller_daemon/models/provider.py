"""One provider as it is configured: its key, its HTTP client and its adapter, made when needed.

Which providers there are, and which model is meant, is in `providers`.
"""

from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from msgspec import Struct, structs

from tiller_daemon.config import Api, Provider
from tiller_daemon.models.base import ModelClient
from tiller_daemon.models.catalog.listing import Listing, fetch_listing
from tiller_daemon.models.dialects.anthropic_messages import thinking
from tiller_daemon.models.dialects.anthropic_messages.adapter import AnthropicMessages
from tiller_daemon.models.dialects.openai_chat import request as openai_chat_request
from tiller_daemon.models.dialects.openai_chat.adapter import OpenAIChat
from tiller_daemon.models.dialects.openai_responses import request as openai_responses_request
from tiller_daemon.models.dialects.openai_responses.adapter import OpenAIResponses
from tiller_daemon.models.http.client import HttpClient
from tiller_daemon.models.http.request_head import BEARER
from tiller_daemon.models.keys import EnvironmentKey, Key, NoKey, find_key
from tiller_daemon.models.scripted import ScriptedModel


class Dialect(Struct, frozen=True):
    """One `api`: its adapter, and its own server.

    `key_variable` is where the key of that is by default, `key_header` what every key goes into.
    `variants` are those that the adapter knows.
    """

    adapter: Callable[[HttpClient], ModelClient]
    base_url: str
    key_variable: str
    variants: frozenset[str]
    key_header: str = BEARER


OPENAI = "https://api.openai.com/v1"

DIALECTS: dict[Api, Dialect] = {
    "openai_chat": Dialect(OpenAIChat, OPENAI, "OPENAI_API_KEY", openai_chat_request.EFFORTS),
    "openai_responses": Dialect(
        OpenAIResponses, OPENAI, "OPENAI_API_KEY", openai_responses_request.EFFORTS
    ),
    "anthropic_messages": Dialect(
        AnthropicMessages,
        "https://api.anthropic.com/v1",
        "ANTHROPIC_API_KEY",
        frozenset({*thinking.EFFORTS, thinking.NO_THINKING}),
        "x-api-key",
    ),
}

VARIANT_ORDER = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
"""The order in which variants are shown."""


class ActiveProvider:
    """A provider of the configuration. `environ` is the daemon's; `aclose` ends its connections."""

    def __init__(
        self,
        name: str,
        provider: Provider,
        environ: Mapping[str, str],
        secret_names: Collection[str],
    ) -> None:
        self.name = name
        self.provider = provider
        self.key = _key_of(provider, environ, secret_names)
        self._environ = environ
        self._dialect = DIALECTS.get(provider.api)
        self._http: HttpClient | None = None
        self._client: ModelClient | None = None

    @property
    def base_url(self) -> str:
        """Where it is; empty for one that is no server."""
        return self.provider.base_url or (self._dialect.base_url if self._dialect else "")

    @property
    def variants(self) -> tuple[str, ...]:
        """The variants that its API knows by itself, the smallest effort first."""
        known = self._dialect.variants if self._dialect else frozenset[str]()
        return tuple(name for name in VARIANT_ORDER if name in known)

    @property
    def problem(self) -> str:
        """Half a sentence that says why it can't be used, as far as can be seen without asking."""
        if problem := self.key.problem():
            return problem
        try:
            self.client  # noqa: B018 - made now, or said why not
        except ValueError as error:
            return str(error)
        return ""

    @property
    def client(self) -> ModelClient:
        """Its adapter; raises `ValueError`, half a sentence, for what can't be used."""
        if self._client is None:
            if self._dialect is None:
                record = Path(self.provider.record) if self.provider.record else None
                scripts = Path(self.provider.scripts or ".")
                self._client = ScriptedModel.from_directory(scripts, record=record)
            else:
                self._client = self._dialect.adapter(self._open_http())
        return self._client

    async def list_models(self) -> Listing:
        """Ask it for its models; raises `ModelError`. A scripted one lists none."""
        return await fetch_listing(self._open_http()) if self._dialect else {}

    async def aclose(self) -> None:
        """Close its connections."""
        if self._http is not None:
            await self._http.aclose()

    def _open_http(self) -> HttpClient:
        if self._http is None:
            assert self._dialect is not None
            header = self.provider.api_key_header or self._dialect.key_header
            whole = structs.replace(self.provider, base_url=self.base_url, api_key_header=header)
            self._http = HttpClient(self.name, whole, self.key, self._environ)
        return self._http


def _key_of(provider: Provider, environ: Mapping[str, str], secret_names: Collection[str]) -> Key:
    if found := find_key(provider, environ, secret_names):
        return found
    if provider.base_url is None and provider.api in DIALECTS:
        return EnvironmentKey(DIALECTS[provider.api].key_variable, environ)
    return NoKey()
