"""The models to choose from: from configured providers, accounts, well-known keys, local servers.

An account, and a provider whose well-known key variable is set, need no configuration. Servers
on this machine are searched for only if no configuration, account or key gives a default model.
"""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import trio
from msgspec import structs

from tiller_daemon.config import Configuration, Model, Provider
from tiller_daemon.config.request_options import merge_options
from tiller_daemon.errors import RejectionError
from tiller_daemon.models.accounts.accounts import LoginAccounts
from tiller_daemon.models.base import ModelClient, ModelError
from tiller_daemon.models.catalog.catalog import Catalog, is_public
from tiller_daemon.models.catalog.facts import Facts, ModelRef
from tiller_daemon.models.catalog.listing import Listing
from tiller_daemon.models.catalog.local_servers import list_local_servers
from tiller_daemon.models.http.reading_pace import ReadingPace
from tiller_daemon.models.images import LimitedModel
from tiller_daemon.models.provider import DEFAULT_PROVIDERS, ActiveProvider, DefaultProvider
from tiller_daemon.models.recording import RecordingModel
from tiller_daemon.models.redacted import RedactedModel
from tiller_daemon.processes.environment import is_secret_header
from tiller_daemon.redaction.text import redact
from tiller_daemon.session.services import ChosenModel, ModelSurvey
from tiller_daemon.tools.suggestions import did_you_mean
from tiller_protocol.catalog import (
    Accounts,
    AccountsResult,
    ModelSummary,
    ProviderOffer,
    ProviderSummary,
)
from tiller_protocol.items import Usage

if TYPE_CHECKING:
    from tiller_daemon.models.accounts.logins import Logins

NO_LISTING_KINDS = frozenset({"not_found", "bad_request"})
"""The errors of a provider that can't list its models, but may well be usable."""

SECRET_CHARS_MIN = 8
"""Shorter keys are not redacted from tool output, because they may be ordinary words."""

NO_MODEL_MESSAGE = (
    "No model is configured, no well-known key is set, and no local server answers. Do one of "
    "these: (1) use your ChatGPT plan: run `tiller login`; (2) set a key, such as OPENAI_API_KEY, "
    "then run `tiller daemon restart` and `tiller init`; "
    "(3) start a local server (Ollama, llama.cpp, LM Studio, vLLM), or name yours in {config}: "
    'model = "local/NAME" and [providers.local] api = "openai_chat", base_url = "http://…/v1"; '
    "(4) try tiller without a model: run `tiller demo`."
)


class Providers:
    """All providers in use. Context windows and prices are looked up only while `run` is running.

    `accounts` are the user's logins. `config` is the path of the configuration file, for messages.
    `catalog` is the file in which facts about models are cached, or None.
    """

    def __init__(
        self,
        configuration: Configuration,
        environ: Mapping[str, str],
        accounts: LoginAccounts,
        config: Path,
        catalog: Path | None = None,
    ) -> None:
        self._environ = environ
        self.accounts = accounts
        self._logins: Logins | None = None
        self._config = config
        self.secret_names = {default.variable for default in DEFAULT_PROVIDERS}
        """The environment variables with keys, including those no longer configured. Commands don't
        get these variables."""
        self._active: dict[str, ActiveProvider] = {}
        self._retired: list[ActiveProvider] = []
        self._pace = ReadingPace()
        self._default_providers = tuple(
            default.chosen_by(environ)
            for default in DEFAULT_PROVIDERS
            if environ.get(default.variable)
        )
        self._catalog = Catalog(catalog, self._list, environ)
        self.configure(configuration)

    def configure(self, configuration: Configuration) -> None:
        """Apply a new configuration; running turns keep their clients."""
        self._configuration = configuration
        providers = {one.provider: one.settings() for one in self._default_providers}
        for name in self.accounts.files.names():
            providers[name] = Provider("openai_responses", account=name)
        providers |= configuration.providers
        self.secret_names |= {p.api_key_env for p in providers.values() if p.api_key_env}
        self._keys_in_environ = {self._environ.get(name, "") for name in self.secret_names}
        before, self._active = self._active, {}
        for name, provider in providers.items():
            if name in before and before[name].provider == provider:
                self._active[name] = before.pop(name)
            else:
                self._activate(name, provider)
        # Running turns may still use these, so they are closed only at the end.
        self._retired += before.values()
        first = next((f"{one.provider}/{one.model}" for one in self._default_providers), None)
        # A user who has logged in wants to use the plan, not the key.
        self._default = configuration.model or self.accounts.default_model or first

    def secret_values(self) -> tuple[str, ...]:
        """Return all keys and secret headers except short ones, the longest first."""
        values = {*self._keys_in_environ, *self.accounts.secrets}
        providers = (*self._active.values(), *self._retired)
        values.update(*(provider.key.secrets for provider in providers))
        values.update(
            value
            for provider in providers
            for name, value in provider.provider.headers.items()
            if is_secret_header(name)
        )
        return tuple(sorted((v for v in values if len(v) >= SECRET_CHARS_MIN), key=len)[::-1])

    def missing_keys(self) -> tuple[str, ...]:
        """Return the variables for providers' keys that the daemon's environment lacks.

        If no model is configured, this includes the well-known variables, as any one of them
        would make a model available.
        """
        missing = [provider.missing_key for provider in self._active.values()]
        default = self._configuration.model or self.accounts.default_model
        if default is None and not self._default_providers:
            missing += (default.variable for default in DEFAULT_PROVIDERS)
        return tuple(dict.fromkeys(name for name in missing if name))

    async def log_in(self, op: Accounts) -> AccountsResult:
        """List the accounts, log in or log out; see `Logins.handle`."""
        if self._logins is None:
            from tiller_daemon.models.accounts.logins import Logins

            self._logins = Logins(
                self.accounts, self._reconfigure, self._first_model, self._is_taken
            )
        return await self._logins.handle(op)

    @property
    def has_default(self) -> bool:
        """Whether there is a default model, so that `discover` has nothing to do."""
        return self._default is not None

    async def discover(self) -> None:
        """Search for local servers, unless there is a default model already."""
        if self.has_default:
            return
        for server in await list_local_servers():
            if server.models and server.name not in self._active:
                self._activate(server.name, Provider("openai_chat", base_url=server.base_url))
                self._default = f"{server.name}/{server.models[0]}"
                return

    def choose(self, name: str | None) -> ChosenModel:
        """Return the model `name` (`provider/model`) or the default; raises `RejectionError`."""
        chosen = name or self._default
        if chosen is None:
            raise RejectionError("invalid_settings", NO_MODEL_MESSAGE.format(config=self._config))
        provider_name, slash, provider_model = chosen.partition("/")
        provider = self._active.get(provider_name)
        if provider is None or not slash or not provider_model:
            raise RejectionError("invalid_settings", self._unknown_model(chosen))
        if problem := provider.problem:
            raise RejectionError("invalid_settings", f"Model {chosen} can't be used. {problem}")
        model = self._configuration.models.get(chosen, Model())
        client: ModelClient = RedactedModel(provider.client, self.secret_values)
        if self._configuration.record:
            client = RecordingModel(client, Path(self._configuration.record))
        known = self._facts(provider, provider_model)
        accepts = provider.accepted_input(model)

        def cost(usage: Usage) -> float | None:
            # A price that was unknown when the turn began may be known when a step ends.
            price = self._facts(provider, provider_model).price
            return price.cost(usage) if price else None

        return ChosenModel(
            name=chosen,
            provider_model=provider_model,
            client=LimitedModel(client, accepts),
            context_window=known.context_window,
            max_output_tokens=model.max_output,
            options=merge_options(provider.provider.options, model.options),
            variants=model.variants,
            efforts=provider.variants,
            prompt_header=provider.provider.prompt_header or "",
            accepts=accepts,
            price=cost,
            hosted_tools=model.hosted_tools,
        )

    async def run(self) -> None:
        """Look up missing facts about the models in use, until cancelled."""
        await self._catalog.run()

    async def survey(self, *, ask: bool = False, offers: bool = False) -> ModelSurvey:
        """Return the configured and discovered models, the default one first, and the providers.

        With `ask`, each provider is asked for its models. This adds the other models that the
        provider lists, or the problem if it can't be reached. With `offers`, servers on this
        machine are searched for.
        """
        listed: dict[str, Listing] = {}
        problems: dict[str, str] = {}
        if ask:
            await self.discover()
            async with trio.open_nursery() as nursery:
                for provider in self._active.values():
                    if provider.base_url and not provider.problem:
                        nursery.start_soon(self._survey, provider, listed, problems)
        named = [self._summary(name, problems) for name in self._named_models()]
        others = (
            self._summary(f"{provider}/{model}", problems, listed=True)
            for provider, listing in listed.items()
            for model in listing
        )
        known = {one.name for one in named}
        models = (*named, *(one for one in others if one.name not in known))
        asked = {*listed, *problems}
        return ModelSurvey(
            models,
            tuple(
                self._provider_summary(
                    self._active[name], problems.get(name, ""), asked=name in asked
                )
                for name in sorted(self._active)
            ),
            await self._list_offers() if offers else (),
        )

    async def aclose(self) -> None:
        """Close all connections of all providers."""
        for provider in (*self._active.values(), *self._retired):
            await provider.aclose()

    def _activate(self, name: str, provider: Provider) -> None:
        self._active[name] = ActiveProvider(
            name, provider, self._environ, self.secret_names, self._pace, self.accounts
        )

    def _reconfigure(self) -> None:
        self.configure(self._configuration)

    def _is_taken(self, name: str) -> bool:
        provider = self._active.get(name)
        return provider is not None and provider.provider.account != name

    async def _first_model(self, account: str) -> str:
        return next(iter(await self._active[account].list_models()), "")

    async def _list_offers(self) -> tuple[ProviderOffer, ...]:
        accounts = (
            ProviderOffer(
                one.name, "openai_responses", self._active[one.name].base_url,
                (one.model.partition("/")[2],), account=one.name,
            )
            for one in self.accounts.summaries()
            if one.state == "signed_in" and one.model and not self._is_taken(one.name)
        )  # fmt: skip
        well_known = [await self._offer(one) for one in DEFAULT_PROVIDERS]
        servers = await list_local_servers()
        found = (
            ProviderOffer(one.name, "openai_chat", one.base_url, one.models) for one in servers
        )
        return (*accounts, *well_known, *found)

    async def _offer(self, default: DefaultProvider) -> ProviderOffer:
        """Offer a well-known provider; the user's gateway for it may have other models."""
        one = default.chosen_by(self._environ)
        models: tuple[str, ...] = (one.model,)
        active = self._active.get(one.provider)
        if one != default and active and active.base_url == one.base_url and not active.problem:
            with suppress(ModelError):
                listed = await self._catalog.listing(one.provider, one.base_url)
                models = models if one.model in listed else tuple(listed) or models
        return ProviderOffer(one.provider, one.api, one.base_url, models, one.variable)

    async def _list(self, provider_name: str) -> Listing:
        provider = self._active.get(provider_name)
        listing = await provider.list_models() if provider else {}
        # A server may put anything into its listing, even its own key.
        secrets = self.secret_values()
        return {redact(model, secrets): facts for model, facts in listing.items()}

    async def _survey(
        self, provider: ActiveProvider, listed: dict[str, Listing], problems: dict[str, str]
    ) -> None:
        """Add a provider's models to `listed`, or the reason why it can't be used to `problems`.

        A provider that can be used but lists nothing is added without models.
        """
        try:
            listed[provider.name] = await self._catalog.listing(provider.name, provider.base_url)
        except ModelError as error:
            if error.kind in NO_LISTING_KINDS:
                listed[provider.name] = {}
            else:
                problems[provider.name] = error.message

    def _facts(self, provider: ActiveProvider, model: str) -> Facts:
        """Return the configured facts about a model, completed from the catalog."""
        own = self._configuration.models.get(f"{provider.name}/{model}", Model())
        configured = Facts(own.context_window, own.max_output, own.price)
        if provider.provider.account:
            # The API's prices are not what a plan costs.
            known = self._catalog.facts(provider.name, ModelRef(provider.base_url, model))
            return configured.over(structs.replace(known, price=None))
        # The catalog may start a lookup, so it is used only if it could add a fact.
        if configured.context_window and (configured.price or not is_public(provider.base_url)):
            return configured
        if not provider.base_url:
            return configured
        return configured.over(
            self._catalog.facts(provider.name, ModelRef(provider.base_url, model))
        )

    def _named_models(self) -> dict[str, None]:
        """Return the names of all configured models and default models, the default one first."""
        configuration = self._configuration
        names = [
            self._default,
            *configuration.models,
            configuration.small_model,
            configuration.compaction_model,
            *(agent.model for agent in configuration.agents.values()),
            *(account.model for account in self.accounts.summaries()),
            *(f"{default.provider}/{default.model}" for default in self._default_providers),
        ]
        return dict.fromkeys(name for name in names if name)

    def _summary(
        self, name: str, problems: Mapping[str, str], *, listed: bool = False
    ) -> ModelSummary:
        provider_name, _, model = name.partition("/")
        provider = self._active.get(provider_name)
        if provider is None:
            return ModelSummary(
                name, "", default=name == self._default, problem=self._unknown_model(name)
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
            rate_limits=provider.rate_limits(model),
        )

    def _provider_summary(
        self, provider: ActiveProvider, unreachable: str, *, asked: bool
    ) -> ProviderSummary:
        return ProviderSummary(
            provider.name,
            provider.provider.api,
            provider.base_url,
            provider.key.source,
            default=(self._default or "").partition("/")[0] == provider.name,
            answers=not unreachable if asked else None,
            problem=provider.problem or unreachable,
        )

    def _unknown_model(self, name: str) -> str:
        there_are = ", ".join(sorted(self._active)) or "none"
        provider_model = name.rpartition("/")[2]
        known = set(self._configuration.models) - {name}
        if provider_model:
            known.update(f"{provider}/{provider_model}" for provider in self._active)
        return (
            f"There is no model {name!r}. A model's name has the form provider/model. The providers"
            f" in {self._config} are: {there_are}.{did_you_mean(name, known)}"
        )
