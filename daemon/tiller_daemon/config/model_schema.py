"""The schema of providers, models, families and retries in the configuration."""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from tiller_daemon.config.constraints import (
    AccountName,
    FieldError,
    ProxyUrl,
    Url,
    VariableName,
    check_exclusive,
    check_options,
)
from tiller_protocol import catalog

Api = Literal["openai_responses", "openai_chat", "anthropic_messages", "scripted"]
EditTool = Literal["edit", "apply_patch", "both"]

Seconds = Annotated[float, Meta(gt=0, le=86_400)]
Command = Annotated[tuple[str, ...], Meta(min_length=1)]
Tokens = Annotated[int, Meta(ge=1, le=2**31)]


class KeyPlaces(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The place of a key; at most one of these fields is set."""

    api_key_env: VariableName | None = None
    """The variable that holds the key."""
    api_key_command: Command | None = None
    """A command that prints the key on its first line."""
    api_key_file: str | None = None
    """A file with the key on its first line."""
    api_key_keyring: str | None = None
    """The keyring entry that holds the key."""

    def __post_init__(self) -> None:
        check_exclusive(self, KEY_FIELDS)


KEY_FIELDS = KeyPlaces.__struct_fields__
"""The fields for the place of a key."""


class Timeouts(Struct, frozen=True, forbid_unknown_fields=True):
    """How long a provider may be silent."""

    connect_s: Seconds = 10.0
    """The time limit for connecting, including the proxy and TLS."""
    first_byte_s: Seconds = 600.0
    """The time limit before a response. By default this is as long as OpenAI's and Anthropic's own
    libraries wait for a response with reasoning."""
    idle_s: Seconds = 300.0
    """The time limit within a response."""


class Provider(KeyPlaces, frozen=True, forbid_unknown_fields=True):
    """A service that offers models; paths are absolute."""

    api: Api
    """The API dialect that the provider speaks."""
    base_url: Url | None = None
    """The address; absent means the address of the API's vendor."""
    account: AccountName | None = None
    """The account whose plan is used, with the login's token instead of a key."""
    api_key_header: str | None = None
    """The header that carries the key; absent means the API's usual header."""
    headers: dict[str, str] = {}
    """Extra headers that are sent with each request."""
    query: dict[str, str] = {}
    """Query parameters of each request."""
    timeouts: Timeouts = Timeouts()
    """How long the provider may be silent."""
    proxy: ProxyUrl | None = None
    """The proxy; absent means the environment's proxy, and "" means no proxy."""
    ca_file: str | None = None
    """Certificates to trust in addition to the system's."""
    scripts: str | None = None
    """The directory with the scripts of a `scripted` provider."""
    record: str | None = None
    """A file to which a `scripted` provider appends each request as a line of JSON."""
    options: dict[str, Any] = {}
    """Extra fields of requests to all models."""
    prompt_header: str | None = None
    """Text with which the system prompt of each request begins."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_options(self.options, "options")
        if self.account:
            check_exclusive(self, ("account", "base_url", *KEY_FIELDS))
            if self.api != "openai_responses":
                raise FieldError('an account needs `api = "openai_responses"`', "api")
        if self.api == "scripted" and self.scripts is None:
            raise FieldError("a scripted provider needs `scripts`, the directory of its scripts")


class PriceTier(catalog.PriceTier, frozen=True, forbid_unknown_fields=True):
    """A configured price, which rejects unknown keys."""


class Price(catalog.Price, frozen=True, forbid_unknown_fields=True):
    """A configured price, which rejects unknown keys."""

    tiers: tuple[PriceTier, ...] = ()


class Model(Struct, frozen=True, forbid_unknown_fields=True):
    """The configuration of one model, which overrides the daemon's data about the model."""

    context_window: Tokens | None = None
    """The size in tokens; absent means the daemon's data about the model."""
    max_output: Tokens | None = None
    """The longest answer in tokens; absent means the daemon's data about the model."""
    price: Price | None = None
    """The price; absent means the daemon's data about the model."""
    images: bool = True
    """Whether the model accepts images."""
    documents: bool | None = None
    """Whether the model accepts PDF documents; absent means that its provider's API decides."""
    options: dict[str, Any] = {}
    """Extra fields of requests."""
    variants: dict[str, dict[str, Any]] = {}
    """Named sets of further options, of which a user chooses one."""
    hosted_tools: dict[str, dict[str, Any]] = {}
    """The fields in requests of the tools that the provider runs itself, by tool name."""

    def __post_init__(self) -> None:
        check_options(self.options, "options")
        for name, options in self.variants.items():
            check_options(options, "variants", name)


class Family(Struct, frozen=True, forbid_unknown_fields=True):
    """Models that work best with the same base prompt and the same tool for edits.

    Absent fields are taken from the built-in family with the same name, if there is one.
    """

    models: tuple[str, ...] = ()
    """Patterns for the models' names at their provider; case does not matter."""
    prompt_file: str | None = None
    """The file of the prompt; excludes `prompt`."""
    prompt: str | None = None
    """The prompt for agents without their own; after loading also the text of `prompt_file`."""
    edit_tool: EditTool | None = None
    """The tool that agents without a list of tools get for edits."""


class Retry(Struct, frozen=True, forbid_unknown_fields=True):
    """How often and how long failed requests to models are repeated. Times are in seconds."""

    attempts: Annotated[int, Meta(ge=1, le=100)] = 8
    """The most attempts of a request, not counting attempts during an outage. With the
    delays below, the default spans a minute and a half, which is longer than the one-minute windows
    in which providers count requests and tokens."""
    delay_s: Seconds = 30.0
    """The longest delay between two attempts if the provider asks for no delay."""
    retry_after_s: Seconds = 600.0
    """The longest delay that a provider may ask for; a longer delay ends the turn. A user who comes
    back within ten minutes would have sent the message again anyway."""
    outage_s: Seconds = 900.0
    """How long to wait for a server that refuses connections, or reports that it can't serve for
    the moment. The default outlives an outage of ten minutes, in spite of the growing delays. The
    reason for the first wait reveals a wrong `base_url`."""
    total_s: Seconds = 1_800.0
    """The maximum sum of all delays of one request. The default is enough for three of the longest
    delays that a provider may ask for."""
