"""What an HTTP answer that is no good stream means: a `ModelError` with a sentence. Pure.

Shared by the adapters to HTTP providers. Sentences say whose fault it is and what to do; they
quote the server, cut short and with every secret taken out.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tiller_daemon.models.base import ModelError, ModelErrorKind
from tiller_daemon.models.http.error_body import ErrorDetails, parse_error_body
from tiller_daemon.models.http.failure_kind import kind_of_event, kind_of_response
from tiller_daemon.models.http.retry_after import retry_after_s
from tiller_daemon.models.keys import Key, NoKey
from tiller_daemon.redaction.text import redact

QUOTED_CHARS_MAX = 400
"""How much of a server's own words goes into a sentence."""

SECRET_CHARS_MIN = 6
"""A shorter value is not taken out of a server's words: it would be found in ordinary text."""


@dataclass(frozen=True)
class Endpoint:
    """A provider as it is named to people, and what must never be said: its key, its headers."""

    name: str
    base_url: str
    key: Key = field(default_factory=NoKey, repr=False)
    headers: tuple[str, ...] = field(default=(), repr=False)

    def __str__(self) -> str:
        return f"Provider {self.name} ({self.base_url})"

    def quote(self, text: str) -> str:
        """A server's own words: one line, cut, without secrets; empty for an HTML page."""
        if text.lstrip()[:1] == "<":
            return ""
        secrets = (*self.key.secrets, *self.headers)
        text = redact(text, (one for one in secrets if len(one) >= SECRET_CHARS_MIN))
        line = " ".join(text.split())
        return line if len(line) <= QUOTED_CHARS_MAX else line[: QUOTED_CHARS_MAX - 1] + "…"


def error_from_response(
    endpoint: Endpoint, status: int, headers: Mapping[str, str], body: bytes, now: float
) -> ModelError:
    """The error that an HTTP answer other than a stream stands for.

    `headers` have lower-case names, `body` may be cut, `now` is Unix seconds.
    """
    said = parse_error_body(body)
    asked_s = retry_after_s(headers, now, said)
    kind = kind_of_response(status, said, asked_s)
    return ModelError(
        kind,
        _sentence(endpoint, kind, status, said),
        status=status,
        retry_after_s=asked_s,
        final=headers.get("x-should-retry", "").lower() == "false",
    )


def error_from_event(endpoint: Endpoint, body: bytes) -> ModelError:
    """The error object that a server sent in the middle of a good stream."""
    said = parse_error_body(body)
    kind = kind_of_event(said)
    asked_s = retry_after_s({}, 0.0, said)
    return ModelError(kind, _sentence(endpoint, kind, None, said), retry_after_s=asked_s)


def _sentence(
    endpoint: Endpoint, kind: ModelErrorKind, status: int | None, said: ErrorDetails
) -> str:
    match kind:
        case "authentication":
            what = f"did not accept the key. {endpoint.key.advice}"
        case "quota":
            what = "says that the quota is used up. Look at your plan and billing there."
        case "not_found":
            what = "knows no such model or path. Check the model's name and `base_url`."
        case "rate_limit":
            what = "limits the rate of requests."
        case "overloaded":
            what = "is overloaded."
        case "context_overflow":
            what = "says that the request is longer than the model's context."
        case "content_policy":
            what = "refused the request by its content policy."
        case "server" | "timeout":
            what = "failed to answer."
        case _:
            what = "refused the request. Check the model's name, `base_url` and `api`."
    code = "" if status is None else f" (HTTP {status})"
    words = endpoint.quote(said.words)
    return f"{endpoint} {what}{code}" + (f" It said: {words}" if words else "")
