"""One provider in use: its key, its HTTP client and its adapter, created when first needed.

Also the providers that need no configuration when their key is in the environment.

`tiller_daemon.providers` chooses the provider and the model.
"""

from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from msgspec import Struct, structs

from tiller_daemon.config import Api, Model, Provider
from tiller_daemon.models.accounts.accounts import AccountKey, LoginAccounts
from tiller_daemon.models.base import ModelClient
from tiller_daemon.models.catalog.listing import Listing, fetch_listing
from tiller_daemon.models.dialects.anthropic_messages import thinking
from tiller_daemon.models.dialects.anthropic_messages.adapter import AnthropicMessages
from tiller_daemon.models.dialects.openai_chat import request as openai_chat_request
from tiller_daemon.models.dialects.openai_chat.adapter import OpenAIChat
from tiller_daemon.models.dialects.openai_responses import request as openai_responses_request
from tiller_daemon.models.dialects.openai_responses.adapter import OpenAIResponses
from tiller_daemon.models.http.client import HttpClient
from tiller_daemon.models.http.reading_pace import ReadingPace
from tiller_daemon.models.http.request_head import BEARER
from tiller_daemon.models.images import AcceptedInput
from tiller_daemon.models.keys import EnvironmentKey, Key, NoKey, find_key
from tiller_daemon.models.scripted import ScriptedModel
from tiller_protocol.catalog import RateLimit


class Dialect(Struct, frozen=True):
    """One value of the setting `api`: its adapter and its defaults."""

    adapter: Callable[[HttpClient], ModelClient]
    """Creates the adapter."""

    base_url: str
    """The server used when no `base_url` is configured."""

    key_variable: str
    """The environment variable with the key for that server."""

    variants: tuple[str, ...]
    """The variants that the adapter supports, the smallest effort first."""

    documents: bool
    """Whether a model that takes images usually takes documents (PDF), too."""

    key_header: str = BEARER
    """The request header for the key."""

    tools_max: int | None = None
    """How many tools a request may have; None for no limit."""


OPENAI = "https://api.openai.com/v1"

OPENAI_TOOLS_MAX = 128
"""OpenAI and many compatible servers refuse requests with more tools."""

DIALECTS: dict[Api, Dialect] = {
    "openai_chat": Dialect(
        OpenAIChat,
        OPENAI,
        "OPENAI_API_KEY",
        openai_chat_request.EFFORTS,
        documents=False,
        tools_max=OPENAI_TOOLS_MAX,
    ),
    "openai_responses": Dialect(
        OpenAIResponses,
        OPENAI,
        "OPENAI_API_KEY",
        openai_responses_request.EFFORTS,
        documents=True,
        tools_max=OPENAI_TOOLS_MAX,
    ),
    "anthropic_messages": Dialect(
        AnthropicMessages,
        "https://api.anthropic.com/v1",
        "ANTHROPIC_API_KEY",
        (thinking.NO_THINKING, *thinking.EFFORTS),
        documents=True,
        key_header="x-api-key",
    ),
}


class DefaultProvider(Struct, frozen=True):
    """A provider that needs no configuration when its key is in the environment."""

    variable: str
    """The environment variable with the key."""

    provider: str
    """The name of the provider."""

    base_url: str
    """The provider's base URL."""

    model: str
    """The default model if this is the first provider with a key."""

    api: Api = "openai_chat"
    """The provider's API."""

    def chosen_by(self, environ: Mapping[str, str]) -> "DefaultProvider":
        """Return this provider at the base URL that the user's environment has for it, if any.

        Behind a gateway, the key is the gateway's, and must not go to the provider.
        """
        variable, suffix = BASE_URLS.get(self.variable, ("", ""))
        base_url = environ.get(variable, "").strip().rstrip("/")
        if not base_url:
            return self
        return structs.replace(self, base_url=base_url.removesuffix(suffix) + suffix)

    def settings(self) -> Provider:
        """Return the settings that would configure this provider."""
        return Provider(self.api, base_url=self.base_url, api_key_env=self.variable)


BASE_URLS = {
    "OPENAI_API_KEY": ("OPENAI_BASE_URL", ""),
    "ANTHROPIC_API_KEY": ("ANTHROPIC_BASE_URL", "/v1"),
}
"""For variables with keys: the variable with the base URL that the provider's own programs use, and
what they append to it."""

DEFAULT_PROVIDERS = (
    DefaultProvider(
        "OPENAI_API_KEY", "openai", "https://api.openai.com/v1", "gpt-5", "openai_responses"
    ),
    DefaultProvider(
        "ANTHROPIC_API_KEY",
        "anthropic",
        "https://api.anthropic.com/v1",
        "claude-sonnet-5-5",
        "anthropic_messages",
    ),
    DefaultProvider(
        "OPENROUTER_API_KEY", "openrouter", "https://openrouter.ai/api/v1", "openrouter/auto"
    ),
    DefaultProvider(
        "GEMINI_API_KEY",
        "gemini",
        "https://generativelanguage.googleapis.com/v1beta/openai",
        "gemini-2.5-pro",
    ),
)
"""The providers in order of preference: the first one with a key gives the default model."""


class ActiveProvider:
    """A provider in use. `aclose` closes its connections.

    `environ` is the daemon's environment. `secret_names` are the variables that are hidden from a
    command that prints a key. All providers share `pace` and `accounts`.
    """

    def __init__(
        self,
        name: str,
        provider: Provider,
        environ: Mapping[str, str],
        secret_names: Collection[str],
        pace: ReadingPace,
        accounts: LoginAccounts,
    ) -> None:
        self.name = name
        self.provider = provider
        if provider.account:
            self.key: Key = AccountKey(accounts, provider.account)
        else:
            self.key = _key_of(provider, environ, secret_names)
        self._plan_url = accounts.oauth.service.resource
        self._environ = environ
        self._pace = pace
        self._dialect = DIALECTS.get(provider.api)
        self._http: HttpClient | None = None
        self._client: ModelClient | None = None

    @property
    def base_url(self) -> str:
        """The base URL of the server; empty for the scripted provider, which has no server."""
        if self.provider.account:
            return self._plan_url
        return self.provider.base_url or (self._dialect.base_url if self._dialect else "")

    @property
    def variants(self) -> tuple[str, ...]:
        """The variants that need no configuration, the smallest effort first.

        Empty for the scripted provider.
        """
        return self._dialect.variants if self._dialect else ()

    def accepted_input(self, model: Model) -> AcceptedInput:
        """Return which input a model takes."""
        dialect = self._dialect
        documents = model.images and (dialect is None or dialect.documents)
        documents = documents if model.documents is None else model.documents
        return AcceptedInput(model.images, documents, dialect.tools_max if dialect else None)

    @property
    def missing_key(self) -> str:
        """The variable that should hold the key, if it is not set; empty otherwise."""
        return self.key.variable if self.key.variable and self.key.problem() else ""

    @property
    def problem(self) -> str:
        """Why the provider can't be used, in whole sentences; empty if all is well.

        Only problems that are known without a request are reported.
        """
        if problem := self.key.problem():
            return problem
        try:
            self.client  # noqa: B018 - creating it checks the settings
        except ValueError as error:
            return f"Its settings are invalid: {error}."
        return ""

    @property
    def client(self) -> ModelClient:
        """The adapter. Raises `ValueError`, with a clause as message, for invalid settings."""
        if self._client is None:
            if self._dialect is None:
                record = Path(self.provider.record) if self.provider.record else None
                scripts = Path(self.provider.scripts or ".")
                self._client = ScriptedModel(scripts, record)
            elif self.provider.account:
                self._client = OpenAIResponses(self._open_http(), for_plan=True)
            else:
                self._client = self._dialect.adapter(self._open_http())
        return self._client

    def rate_limits(self, model: str) -> tuple[RateLimit, ...]:
        """Return the limits last reported by the server for `model`, the provider's name for it."""
        return self._http.rate_limits.get(model, ()) if self._http else ()

    async def list_models(self) -> Listing:
        """Request the provider's list of models; empty when scripted. Raises `ModelError`."""
        return await fetch_listing(self._open_http()) if self._dialect else {}

    async def aclose(self) -> None:
        """Close all connections."""
        if self._http is not None:
            await self._http.aclose()

    def _open_http(self) -> HttpClient:
        if self._http is None:
            assert self._dialect is not None
            header = self.provider.api_key_header or self._dialect.key_header
            # The settings of an account have no address, as its token goes only to its own API.
            settings = structs.replace(
                self.provider, account=None, base_url=self.base_url, api_key_header=header
            )
            self._http = HttpClient(self.name, settings, self.key, self._environ, self._pace)
        return self._http


def _key_of(provider: Provider, environ: Mapping[str, str], secret_names: Collection[str]) -> Key:
    if found := find_key(provider, environ, secret_names):
        return found
    # The default key is for the API's own server and must not be sent to any other server.
    if provider.base_url is None and provider.api in DIALECTS:
        return EnvironmentKey(DIALECTS[provider.api].key_variable, environ)
    return NoKey()
