"""Models to choose from: configured providers, else usual keys, else servers on this machine.

Builds each provider's client when it is first used and closes them all at the end.
"""

from collections.abc import Mapping
from pathlib import Path

import trio
from msgspec import Struct

from tiller_daemon.config import Api, Configuration, Model, Provider
from tiller_daemon.config.options import merge_options
from tiller_daemon.errors import RejectionError
from tiller_daemon.models.base import ModelClient, ModelError
from tiller_daemon.models.catalog.catalog import Catalog, is_public
from tiller_daemon.models.catalog.facts import Facts, Question
from tiller_daemon.models.catalog.listing import Listing
from tiller_daemon.models.catalog.local_servers import list_local_servers
from tiller_daemon.models.images import WithoutImages
from tiller_daemon.models.provider import ProviderInUse
from tiller_daemon.models.recording import RecordedModel
from tiller_daemon.models.redacted import RedactedModel
from tiller_daemon.processes.environment import is_secret_header
from tiller_daemon.redaction.spellings import hide
from tiller_daemon.session.services import ChosenModel
from tiller_daemon.tools.similar import did_you_mean
from tiller_protocol.answers import ModelSummary
from tiller_protocol.items import Usage


class UsualKey(Struct, frozen=True):
    """A provider that is used without configuration when its usual key is in the environment."""

    variable: str
    provider: str
    base_url: str
    model: str
    api: Api = "openai_chat"

    def provider_found(self) -> Provider:
        """The provider as if it were configured."""
        return Provider(self.api, base_url=self.base_url, api_key_env=self.variable)


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
"""The first that has a key is the default."""


NO_LISTING = frozenset({"not_found", "bad_request"})
"""How a provider says that it lists no models; it may answer all the same."""

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
    """The providers of the configuration. `run` looks up what is not known of their models.

    `config` is the configuration file, for messages; `catalog` the file of what is known.
    """

    def __init__(
        self,
        configuration: Configuration,
        environ: Mapping[str, str],
        config: Path,
        catalog: Path | None = None,
    ) -> None:
        self._environ = environ
        self._config = config
        self.secret_names = {usual.variable for usual in USUAL_KEYS}
        """The variables that hold keys, or held one: no command may see them."""
        self._in_use: dict[str, ProviderInUse] = {}
        self._given_up: list[ProviderInUse] = []
        self._usual = tuple(usual for usual in USUAL_KEYS if environ.get(usual.variable))
        self._catalog = Catalog(catalog, self._list, environ)
        self.configure(configuration)

    def configure(self, configuration: Configuration) -> None:
        """Take over another configuration; turns that run keep the clients they have."""
        self._configuration = configuration
        providers = {one.provider: one.provider_found() for one in self._usual}
        providers |= configuration.providers
        self.secret_names |= {p.api_key_env for p in providers.values() if p.api_key_env}
        before, self._in_use = self._in_use, {}
        for name, provider in providers.items():
            if name in before and before[name].provider == provider:
                self._in_use[name] = before.pop(name)
            else:
                self._use(name, provider)
        self._given_up += before.values()
        first = next((f"{one.provider}/{one.model}" for one in self._usual), None)
        self._default = configuration.model or first

    def secret_values(self) -> tuple[str, ...]:
        """The keys themselves, the longest first; shorter ones may be ordinary words."""
        values = {self._environ.get(name, "") for name in self.secret_names}
        providers = (*self._in_use.values(), *self._given_up)
        values.update(*(provider.key.secrets for provider in providers))
        values.update(
            value
            for provider in providers
            for name, value in provider.provider.headers.items()
            if is_secret_header(name)
        )
        return tuple(sorted((v for v in values if len(v) >= SECRET_CHARS_MIN), key=len)[::-1])

    async def discover(self) -> None:
        """Without a configured model and a usual key: look for local servers."""
        if self._default is not None:
            return
        for server in await list_local_servers():
            if server.models and server.name not in self._in_use:
                self._use(server.name, Provider("openai_chat", base_url=server.base_url))
                self._default = f"{server.name}/{server.models[0]}"
                return

    def choose(self, name: str | None) -> ChosenModel:
        """Find a model by `provider/model`, or the default one; raises `RejectionError`."""
        chosen = name or self._default
        if chosen is None:
            raise RejectionError("invalid_settings", NO_MODEL.format(config=self._config))
        provider_name, slash, provider_model = chosen.partition("/")
        provider = self._in_use.get(provider_name)
        if provider is None or not slash or not provider_model:
            raise RejectionError("invalid_settings", self._unknown(chosen))
        if problem := provider.problem:
            raise RejectionError("invalid_settings", f"Model {chosen} can't be used: {problem}.")
        model = self._configuration.models.get(chosen, Model())
        client: ModelClient = RedactedModel(provider.client, self.secret_values)
        if self._configuration.record:
            client = RecordedModel(client, Path(self._configuration.record))
        known = self._facts(provider, provider_model)

        def cost(usage: Usage) -> float | None:
            # What was not known when the turn began may be known when its step ends.
            price = self._facts(provider, provider_model).price
            return price.cost(usage) if price else None

        return ChosenModel(
            chosen,
            provider_model,
            client if model.images else WithoutImages(client),
            known.context_window,
            model.max_output,
            merge_options(provider.provider.options, model.options),
            model.variants,
            model.images,
            cost,
        )

    async def run(self) -> None:
        """Look up what is not known of the models in use, until cancelled."""
        await self._catalog.run()

    async def summaries(self, *, ask: bool = False) -> tuple[ModelSummary, ...]:
        """The models that are configured or were found, the default one first.

        With `ask` their providers are asked, which says what is wrong with them, and what else they
        have.
        """
        listed: dict[str, Listing] = {}
        problems: dict[str, str] = {}
        if ask:
            await self.discover()
            async with trio.open_nursery() as nursery:
                for provider in self._in_use.values():
                    if provider.base_url and not provider.problem:
                        nursery.start_soon(self._survey, provider, listed, problems)
        named = [self._summary(name, problems) for name in self._named()]
        others = (
            self._summary(f"{provider}/{model}", problems, listed=True)
            for provider, listing in listed.items()
            for model in listing
        )
        known = {one.name for one in named}
        return (*named, *(one for one in others if one.name not in known))

    async def aclose(self) -> None:
        """Close every client's connections."""
        for provider in (*self._in_use.values(), *self._given_up):
            await provider.aclose()

    def _use(self, name: str, provider: Provider) -> None:
        self._in_use[name] = ProviderInUse(name, provider, self._environ, self.secret_names)

    async def _list(self, provider_name: str) -> Listing:
        provider = self._in_use.get(provider_name)
        listing = await provider.list_models() if provider else {}
        secrets = self.secret_values()
        return {hide(model, secrets): facts for model, facts in listing.items()}

    async def _survey(
        self, provider: ProviderInUse, listed: dict[str, Listing], problems: dict[str, str]
    ) -> None:
        """Ask one provider for its models, or find out why it can't be asked for anything."""
        try:
            listed[provider.name] = await self._catalog.listing(provider.name, provider.base_url)
        except ModelError as error:
            if error.kind not in NO_LISTING:
                problems[provider.name] = error.message

    def _facts(self, provider: ProviderInUse, model: str) -> Facts:
        """What is known of a model: by the configuration, else by the catalogue."""
        own = self._configuration.models.get(f"{provider.name}/{model}", Model())
        told = Facts(own.context_window, own.max_output, own.price)
        if told.context_window and (told.price or not is_public(provider.base_url)):
            return told
        if not provider.base_url:
            return told
        return told.over(self._catalog.facts(provider.name, Question(provider.base_url, model)))

    def _named(self) -> dict[str, None]:
        """Every model that the configuration or a usual key names, the default one first."""
        configuration = self._configuration
        names = [
            self._default,
            *configuration.models,
            configuration.small_model,
            configuration.compaction_model,
            *(agent.model for agent in configuration.agents.values()),
            *(f"{usual.provider}/{usual.model}" for usual in self._usual),
        ]
        return dict.fromkeys(name for name in names if name)

    def _summary(
        self, name: str, problems: Mapping[str, str], *, listed: bool = False
    ) -> ModelSummary:
        provider_name, _, model = name.partition("/")
        provider = self._in_use.get(provider_name)
        if provider is None:
            return ModelSummary(
                name, "", default=name == self._default, problem=self._unknown(name)
            )
        known = self._facts(provider, model)
        own = self._configuration.models.get(name, Model()).variants
        return ModelSummary(
            name=name,
            api=provider.provider.api,
            default=name == self._default,
            context_window=known.context_window,
            problem=provider.problem or problems.get(provider_name, ""),
            max_output=known.max_output,
            price=known.price,
            variants=(*own, *(one for one in provider.variants if one not in own)),
            listed=listed,
        )

    def _unknown(self, name: str) -> str:
        there_are = ", ".join(sorted(self._in_use)) or "none"
        provider_model = name.rpartition("/")[2]
        known = set(self._configuration.models) - {name}
        known.update(f"{provider}/{provider_model}" for provider in self._in_use)
        return (
            f"There is no model {name!r}: a model is named provider/model, and the providers in "
            f"{self._config} are: {there_are}.{did_you_mean(name, known)}"
        )
