"""What a model is to the turn: a request, a stream of events, and typed errors.

An adapter builds a provider's request from `ModelRequest` and turns its frames into `ModelEvent`s.
It never retries: that is `retry`, once, around every adapter.
"""

from collections.abc import AsyncGenerator
from typing import Any, Literal, Protocol

from msgspec import Struct

from tiller_daemon.models.history_cache import HistoryCache
from tiller_protocol.events import FinishReason
from tiller_protocol.items import Item, Usage

ModelErrorKind = Literal[
    "rate_limit",
    "overloaded",
    "server",
    "network",
    "refused",
    "timeout",
    "broken_stream",
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
    """A tool as offered to a model; `parameters` is a JSON Schema object.

    `chars` is about how long it is in a request, for the count of tokens.
    """

    name: str
    description: str
    parameters: dict[str, Any]
    chars: int = 0


class ModelRequest(Struct, frozen=True, omit_defaults=True):
    """Everything a model is told for one step.

    `model` is the provider's own name for it. `items` is history in order, already repaired: every
    tool call in it has its result. `ordinal` counts the steps of the session from 0 and `attempt`
    the tries of this step from 0; both are for the scripted model and for logs. `options` are
    fields of the provider's own request, already merged; `variant` is one that they do not hold.
    `kept` is what adapters keep of a history from one request to the next; see
    `dialects.history_cache`.
    """

    model: str
    system: str
    items: tuple[Item, ...]
    tools: tuple[ToolSpec, ...]
    session_id: str
    ordinal: int
    attempt: int = 0
    purpose: Literal["turn", "title", "compaction"] = "turn"
    variant: str = ""
    max_output_tokens: int | None = None
    output_schema: dict[str, Any] | None = None
    options: dict[str, Any] = {}
    history_cache: HistoryCache | None = None


class TextDelta(Struct, frozen=True):
    """The next piece of the answer's text."""

    text: str


class ReasoningDelta(Struct, frozen=True):
    """The next piece of thinking.

    `opaque` is what the provider wants back of the thinking since the last text or call, sealed as
    `models.dialects.opaque` says; the last one that is not empty counts.
    """

    text: str
    opaque: str = ""


class ToolCallStarted(Struct, frozen=True):
    """The model begins call number `index` of this response; its name comes once, whole."""

    index: int
    call_id: str
    name: str


class ToolCallDelta(Struct, frozen=True):
    """The next piece of the JSON text of a call's arguments."""

    index: int
    arguments: str


class ToolCallDone(Struct, frozen=True):
    """The arguments of call `index` are complete."""

    index: int


class UsageReported(Struct, frozen=True):
    """Tokens of this response as the provider counted them; the last report counts."""

    usage: Usage


class Finished(Struct, frozen=True):
    """The provider said that the response is whole. Always the last event of a good stream."""

    reason: FinishReason


ModelEvent = (
    TextDelta
    | ReasoningDelta
    | ToolCallStarted
    | ToolCallDelta
    | ToolCallDone
    | UsageReported
    | Finished
)


class ModelError(Exception):
    """A model request that failed; `message` is a sentence for the user.

    `retry_after_s` is what the provider asked for, in seconds, if it did. With `final` it said that
    the same request will fail again, whatever the kind.
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

    @property
    def retryable(self) -> bool:
        """Whether the same request may succeed later."""
        return self.kind in RETRYABLE and not self.final


class ModelClient(Protocol):
    """One configured provider."""

    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        """Stream one response; ends after `Finished` or raises `ModelError`.

        An async generator: the caller closes it (`contextlib.aclosing`), which closes the
        connection. Cancellation closes it too. A stream that ends without the provider's terminal
        event raises `ModelError("broken_stream")`, never ends in silence.
        """
        ...
