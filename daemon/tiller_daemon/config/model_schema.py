"""What can be configured about providers and models."""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from tiller_protocol.prices import Price

Api = Literal["openai_responses", "openai_chat", "anthropic_messages", "scripted"]
EditTool = Literal["edit", "apply_patch", "both"]

CONNECT_S = 10.0
FIRST_BYTE_S = 600.0
"""As long as the libraries of OpenAI and Anthropic wait for a response with reasoning."""

IDLE_S = 300.0

Seconds = Annotated[float, Meta(gt=0, le=86_400)]
Command = Annotated[tuple[str, ...], Meta(min_length=1)]
Tokens = Annotated[int, Meta(ge=1, le=2**31)]


class KeyPlaces(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a key is; at most one of these is set."""

    api_key_env: str | None = None
    """The variable that holds the key."""
    api_key_command: Command | None = None
    """A command that prints the key on its first line."""
    api_key_file: str | None = None
    """A file with the key on its first line."""
    api_key_keyring: str | None = None
    """The entry of the keyring that holds the key."""


class Timeouts(Struct, frozen=True, forbid_unknown_fields=True):
    """How long a provider may be silent: to connect, before a response, and within it."""

    connect_s: Seconds = CONNECT_S  # proxy and TLS included
    first_byte_s: Seconds = FIRST_BYTE_S
    idle_s: Seconds = IDLE_S


class Provider(KeyPlaces, frozen=True, forbid_unknown_fields=True):
    """A service that offers models; paths are absolute."""

    api: Api
    """The API dialect that it speaks."""
    base_url: str | None = None
    """Absent means the address of the API's vendor."""
    api_key_header: str | None = None
    """The header that carries the key; absent means that of the API."""
    headers: dict[str, str] = {}
    """Sent with each request."""
    query: dict[str, str] = {}
    """Query parameters of each request."""
    timeouts: Timeouts = Timeouts()
    """How long it may be silent."""
    proxy: str | None = None
    """Absent means the proxy of the environment, "" none."""
    ca_file: str | None = None
    """Certificates to trust in addition to the system's."""
    scripts: str | None = None
    """The directory of the scripts of a `scripted` provider."""
    record: str | None = None
    """A file to which a `scripted` provider appends each request as a line of JSON."""
    options: dict[str, Any] = {}
    """Extra fields of requests, for all models."""
    prompt_header: str | None = None
    """Text with which the system prompt of each request begins."""


class Model(Struct, frozen=True, forbid_unknown_fields=True):
    """What is configured for one model; it overrides what the daemon knows about it."""

    context_window: Tokens | None = None
    """In tokens; absent means what is known of the model."""
    max_output: Tokens | None = None
    """In tokens; absent means what is known of the model."""
    price: Price | None = None
    """Absent means what is known of the model."""
    images: bool = True
    """Whether the model accepts images."""
    documents: bool | None = None
    """Whether the model accepts PDF documents; absent means if the API of its provider does."""
    options: dict[str, Any] = {}
    """Extra fields of requests."""
    variants: dict[str, dict[str, Any]] = {}
    """Named sets of further options, of which a user chooses one."""
    hosted_tools: dict[str, dict[str, Any]] = {}
    """The tools that the provider runs itself: their fields in requests, by their names."""


class Family(Struct, frozen=True, forbid_unknown_fields=True):
    """Models that work best with the same base prompt and the same tool for edits.

    Absent fields are those of the built-in family of the same name, if there is one.
    """

    models: tuple[str, ...] = ()
    """Patterns for the provider's names of the models; case does not matter."""
    prompt_file: str | None = None
    """The file of the prompt; excludes `prompt`."""
    prompt: str | None = None
    """For agents without a prompt of their own; after loading also the text of `prompt_file`."""
    edit_tool: EditTool | None = None
    """The tool that agents without a list of tools get for edits."""
