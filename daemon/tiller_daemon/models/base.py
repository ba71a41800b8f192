"""The interface between the turn and a model: a request, a stream of events, and typed errors.

An adapter builds a provider's request from a `ModelRequest` and decodes the provider's frames to
`ModelEvent`s. Adapters do not retry failed requests: `turn.retry` does that for all adapters.
"""

from collections.abc import AsyncGenerator
from typing import Any, Literal, Protocol

from msgspec import Struct, structs

from tiller_daemon.models.history_cache import HistoryCache
from tiller_protocol.events import FinishReason
from tiller_protocol.items import Citation, Image, Item, Usage

ModelErrorKind = Literal[
    "rate_limit",
    "overloaded",
    "server",
    "network",
    "refused",
    "timeout",
    "broken_stream",
    "response_too_long",
    "context_overflow",
    "authentication",
    "quota",
    "content_policy",
    "not_found",
    "bad_request",
]

RETRYABLE: frozenset[ModelErrorKind] = frozenset(
    {"rate_limit", "overloaded", "server", "network", "refused", "timeout", "broken_stream"}
)


class ToolSpec(Struct, frozen=True):
    """A tool as offered to a model.

    `parameters` is a JSON Schema object. `chars` is the approximate length of the tool in a
    request, used to estimate tokens.
    """

    name: str
    description: str
    parameters: dict[str, Any]
    chars: int = 0


class ModelRequest(Struct, frozen=True, omit_defaults=True):
    """Everything a model gets for one step."""

    model: str
    """The provider's name for the model."""

    system: str
    """The system prompt; may be empty."""

    items: tuple[Item, ...]
    """The history in order, already repaired: every tool call has its result."""

    tools: tuple[ToolSpec, ...]
    """The tools that the model may call."""

    session_id: str
    """The session; providers get its id only as a key for their prompt cache."""

    ordinal: int
    """The number of this step in the session, from 0."""

    attempt: int = 0
    """The number of this attempt at the step, from 0."""

    purpose: Literal["turn", "title", "compaction"] = "turn"
    """What the response is for."""

    variant: str = ""
    """The reasoning effort; empty for the default. An adapter ignores names it does not support."""

    max_output_tokens: int | None = None
    """Maximum number of tokens in the response; None means the provider's default."""

    output_schema: dict[str, Any] | None = None
    """The JSON Schema that the answer must follow; None means free text."""

    hosted_tools: dict[str, dict[str, Any]] = {}
    """The tools that the provider runs itself: the fields of each in the request, by tool name."""

    options: dict[str, Any] = {}
    """Extra fields of the provider's request, merged from the configuration."""

    history_cache: HistoryCache | None = None
    """Work saved from earlier requests of the same history; None means that nothing is saved."""


class _Event(Struct, frozen=True, omit_defaults=True, tag_field="type"):
    """A part of a response. Its tag is its name in a recording."""


class TextDelta(_Event, frozen=True, tag="text"):
    """The next piece of the answer's text."""

    text: str


class ReasoningDelta(_Event, frozen=True, tag="reasoning"):
    """The next piece of thinking.

    `opaque` is data that the provider wants back unchanged in later requests, sealed by
    `models.dialects.opaque`. It covers all thinking since the last text, call or new hosted call.
    Therefore each value that is not empty replaces the previous value.
    """

    text: str
    opaque: str = ""


class ToolCallStarted(_Event, frozen=True, tag="call"):
    """The model begins call number `index` of this response. `name` is complete."""

    index: int
    call_id: str
    name: str


class ToolCallDelta(_Event, frozen=True, tag="arguments"):
    """The next piece of the JSON text of a call's arguments."""

    index: int
    arguments: str


class ToolCallDone(_Event, frozen=True, tag="call_done"):
    """The arguments of call `index` are complete."""

    index: int


class HostedCall(_Event, frozen=True, tag="hosted_call"):
    """The state of a call that the provider runs itself; replaces the last state of this call.

    Data about the call that the provider wants back is in the `opaque` of a `ReasoningDelta`.
    """

    call_id: str
    """The provider's id of the call."""

    name: str
    """The name of the tool."""

    state: Literal["running", "completed", "failed"]
    """The state of the call; `completed` and `failed` are final."""

    arguments: str = ""
    """The arguments as a JSON object, once they are known."""

    output: str = ""
    """The result as shown to people, of limited length."""

    images: tuple[Image, ...] = ()
    """Images in the result."""


class Cited(_Event, frozen=True, tag="cited"):
    """A source of the text so far."""

    citation: Citation


TOKENS_MAX = 2**40
"""Higher counts of tokens are a provider's mistake, and might overflow a session's 64-bit sum."""


class UsageReported(_Event, frozen=True, tag="usage"):
    """The tokens of this response as counted by the provider. Only the last report is valid.

    A count below 0 or above `TOKENS_MAX` becomes 0, which means that it is not known.
    """

    usage: Usage

    def __post_init__(self) -> None:
        counts = structs.astuple(self.usage)
        known = (count if 0 <= count <= TOKENS_MAX else 0 for count in counts)
        structs.force_setattr(self, "usage", Usage(*known))


class Finished(_Event, frozen=True, tag="finish"):
    """The response is complete. Always the last event of a successful stream."""

    reason: FinishReason


ModelEvent = (
    TextDelta
    | ReasoningDelta
    | ToolCallStarted
    | ToolCallDelta
    | ToolCallDone
    | HostedCall
    | Cited
    | UsageReported
    | Finished
)


class ModelError(Exception):
    """A failed model request. `message` is a sentence for the user.

    `status` is the HTTP status, if there is one. `retry_after_s` is the delay that the provider
    asked for, in seconds. `final` rules out a retry, even if the kind would allow one.
    """

    def __init__(
        self,
        kind: ModelErrorKind,
        message: str,
        *,
        status: int | None = None,
        retry_after_s: float | None = None,
        final: bool = False,
    ) -> None:
        super().__init__(message)
        self.kind: ModelErrorKind = kind
        self.message = message
        self.status = status
        self.retry_after_s = retry_after_s
        self.final = final

    def with_message(self, message: str) -> "ModelError":
        """Return the same error with another message."""
        return ModelError(
            self.kind,
            message,
            status=self.status,
            retry_after_s=self.retry_after_s,
            final=self.final,
        )

    @property
    def retryable(self) -> bool:
        """Whether the same request may succeed later."""
        return self.kind in RETRYABLE and not self.final


class ModelClient(Protocol):
    """One configured provider."""

    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        """Stream one response. The stream ends after `Finished`, or raises `ModelError`.

        The caller must close the generator (`contextlib.aclosing`); closing or cancelling it
        closes the connection. A stream that ends without the provider's terminal event raises
        `ModelError("broken_stream")`.
        """
        ...
