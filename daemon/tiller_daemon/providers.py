"""Models to choose from: configured providers, else usual keys, else servers on this machine.

Builds each provider's client when it is first used and closes them all at the end.
"""

from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path

from msgspec import Struct, structs

from tiller_daemon.config import Api, Configuration, Model, Provider
from tiller_daemon.config.options import merge_options
from tiller_daemon.errors import RejectionError
from tiller_daemon.models.anthropic_messages import AnthropicMessages
from tiller_daemon.models.base import ModelClient
from tiller_daemon.models.catalog import list_local_servers
from tiller_daemon.models.http_client import BEARER, HttpClient
from tiller_daemon.models.images import WithoutImages
from tiller_daemon.models.keys import Key, KeyVariable, NoKey, find_key
from tiller_daemon.models.openai_chat import OpenAIChat
from tiller_daemon.models.openai_responses import OpenAIResponses
from tiller_daemon.models.scripted import ScriptedModel
from tiller_daemon.session.services import ChosenModel
from tiller_daemon.tools.similar import did_you_mean
from tiller_daemon.workspace.environment import is_secret_header
from tiller_protocol.answers import ModelSummary


class UsualKey(Struct, frozen=True):
    """A provider that is used without configuration when its usual key is in the environment."""

    variable: str
    provider: str
    base_url: str
    model: str
    api: Api = "openai_chat"


USUAL_KEYS = (
    UsualKey("OPENAI_API_KEY", "openai", "https://api.openai.com/v1", "gpt-5", "openai_responses"),
    UsualKey(
        "ANTHROPIC_API_KEY",
        "anthropic",
        "https://api.anthropic.com/v1",
        "claude-sonnet-5-5",
        "anthropic_messages",
    ),
    UsualKey("OPENROUTER_API_KEY", "openrouter", "https://openrouter.ai/api/v1", "openrouter/auto"),
    UsualKey(
        "GEMINI_API_KEY",
        "gemini",
        "https://generativelanguage.googleapis.com/v1beta/openai",
        "gemini-2.5-pro",
    ),
)
"""The first that has a key is taken."""


class Wire(Struct, frozen=True):
    """One `api`: its adapter, and its own server.

    `key_variable` is where the key of that is by default, `key_header` what every key goes into.
    """

    adapter: Callable[[HttpClient], ModelClient]
    base_url: str
    key_variable: str
    key_header: str = BEARER


WIRES: dict[Api, Wire] = {
    "openai_chat": Wire(OpenAIChat, "https://api.openai.com/v1", "OPENAI_API_KEY"),
    "openai_responses": Wire(OpenAIResponses, "https://api.openai.com/v1", "OPENAI_API_KEY"),
    "anthropic_messages": Wire(
        AnthropicMessages, "https://api.anthropic.com/v1", "ANTHROPIC_API_KEY", "x-api-key"
    ),
}

SECRET_CHARS_MIN = 8
"""A shorter key is not looked for in what tools say: it may be an ordinary word."""

NO_MODEL = (
    "No model is configured, no usual key is set, and no local server answers. Three ways out: "
    "(1) set a key, such as OPENAI_API_KEY, where the daemon starts, then `tiller daemon restart`; "
    "(2) start a local server (Ollama, llama.cpp, LM Studio), or name yours in {config}: "
    'model = "local/NAME" and [providers.local] api = "openai_chat", base_url = "http://…/v1"; '
    "(3) see it work without any model: `tiller demo`."
)


class Providers:
    """The clients of one configuration. `aclose` ends their connections."""

    def __init__(
        self, configuration: Configuration, environ: Mapping[str, str], config: Path
    ) -> None:
        self._configuration = configuration
        self._environ = environ
        self._config = config
        self._clients: dict[str, ModelClient] = {}
        self._keys: dict[str, Key] = {}
        self._found: dict[str, Provider] = {}
        self._found_default: str | None = None
        self._closing = AsyncExitStack()

    @property
    def secret_names(self) -> frozenset[str]:
        """The variables that hold keys: no command may see them."""
        named = {p.api_key_env for p in self._providers.values() if p.api_key_env}
        return frozenset(named | {usual.variable for usual in USUAL_KEYS})

    def secret_values(self) -> tuple[str, ...]:
        """The keys themselves, the longest first; shorter ones may be ordinary words."""
        values = {self._environ.get(name, "") for name in self.secret_names}
        values.update(*(key.secrets for key in self._keys.values()))
        values.update(
            value
            for provider in self._providers.values()
            for name, value in provider.headers.items()
            if is_secret_header(name)
        )
        return tuple(sorted((v for v in values if len(v) >= SECRET_CHARS_MIN), key=len)[::-1])

    async def discover(self) -> None:
        """Without a configured model: look for usual keys, then for local servers."""
        if self._configuration.model is not None or self._found_default is not None:
            return
        for usual in USUAL_KEYS:
            if self._environ.get(usual.variable):
                self._found[usual.provider] = Provider(
                    usual.api, base_url=usual.base_url, api_key_env=usual.variable
                )
                self._found_default = f"{usual.provider}/{usual.model}"
                return
        for server in await list_local_servers():
            if server.models:
                self._found[server.name] = Provider("openai_chat", base_url=server.base_url)
                self._found_default = f"{server.name}/{server.models[0]}"
                return

    def choose(self, name: str | None) -> ChosenModel:
        """Find a model by `provider/model`, or the default one; raises `RejectionError`."""
        chosen = name or self._configuration.model or self._found_default
        if chosen is None:
            raise RejectionError("invalid_settings", NO_MODEL.format(config=self._config))
        provider_name, slash, provider_model = chosen.partition("/")
        provider = self._providers.get(provider_name)
        if provider is None or not slash or not provider_model:
            raise RejectionError("invalid_settings", self._unknown(chosen))
        if problem := self._problem(provider_name, provider):
            raise RejectionError("invalid_settings", f"Model {chosen} can't be used: {problem}.")
        model = self._configuration.models.get(chosen, Model())
        client = self._client(provider_name, provider)
        return ChosenModel(
            chosen,
            provider_model,
            client if model.images else WithoutImages(client),
            model.context_window,
            model.max_output,
            merge_options(provider.options, model.options),
            model.variants,
            model.images,
        )

    def summaries(self) -> tuple[ModelSummary, ...]:
        """The models that are configured or were found, the default one first."""
        default = self._configuration.model or self._found_default
        names = dict.fromkeys([default] if default else [])
        names.update(dict.fromkeys(self._configuration.models))
        return tuple(self._summary(name, default=name == default) for name in names)

    async def aclose(self) -> None:
        """Close every client's connections."""
        await self._closing.aclose()

    @property
    def _providers(self) -> dict[str, Provider]:
        return {**self._found, **self._configuration.providers}

    def _summary(self, name: str, *, default: bool) -> ModelSummary:
        provider = self._providers.get(name.partition("/")[0])
        model = self._configuration.models.get(name)
        return ModelSummary(
            name=name,
            api=provider.api if provider else "",
            default=default,
            context_window=model.context_window if model else None,
            problem=self._problem(name.partition("/")[0], provider)
            if provider
            else self._unknown(name),
        )

    def _unknown(self, name: str) -> str:
        there_are = ", ".join(sorted(self._providers)) or "none"
        provider_model = name.rpartition("/")[2]
        known = set(self._configuration.models) - {name}
        known.update(f"{provider}/{provider_model}" for provider in self._providers)
        return (
            f"There is no model {name!r}: a model is named provider/model, and the providers in "
            f"{self._config} are: {there_are}.{did_you_mean(name, known)}"
        )

    def _problem(self, name: str, provider: Provider) -> str:
        if problem := self._key(name, provider).problem():
            return problem
        if provider.api != "scripted" and provider.api not in WIRES:
            return f'its wire {provider.api} is not spoken by this daemon: use api = "openai_chat"'
        return ""

    def _client(self, name: str, provider: Provider) -> ModelClient:
        if name not in self._clients:
            self._clients[name] = self._build(name, provider)
        return self._clients[name]

    def _build(self, name: str, provider: Provider) -> ModelClient:
        if provider.api == "scripted":
            record = Path(provider.record) if provider.record else None
            return ScriptedModel.from_directory(Path(provider.scripts or "."), record=record)
        wire = WIRES[provider.api]
        whole = structs.replace(
            provider,
            base_url=provider.base_url or wire.base_url,
            api_key_header=provider.api_key_header or wire.key_header,
        )
        try:
            http = HttpClient(name, whole, self._key(name, provider), self._environ)
        except ValueError as error:
            message = f"The provider {name} can't be used: {error}."
            raise RejectionError("invalid_settings", message) from None
        self._closing.push_async_callback(http.aclose)
        return wire.adapter(http)

    def _key(self, name: str, provider: Provider) -> Key:
        """The key of a provider, the same one at every call."""
        if name not in self._keys:
            self._keys[name] = self._find_key(provider)
        return self._keys[name]

    def _find_key(self, provider: Provider) -> Key:
        if found := find_key(provider, self._environ, self.secret_names):
            return found
        if provider.base_url is None and provider.api in WIRES:
            return KeyVariable(WIRES[provider.api].key_variable, self._environ)
        return NoKey()
