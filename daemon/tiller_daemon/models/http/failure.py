"""Turns an error response, or an error within a stream, into a `ModelError`. Pure.

The error's message says what happened and what to do. It quotes the server's message, shortened and
without secrets.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from tiller_daemon.models.base import ModelError, ModelErrorKind
from tiller_daemon.models.http.error_body import ErrorDetails, parse_error_body
from tiller_daemon.models.http.failure_kind import kind_of_event, kind_of_response
from tiller_daemon.models.http.retry_after import retry_after_s
from tiller_daemon.models.keys import Key, NoKey
from tiller_daemon.redaction.text import redact

QUOTED_CHARS_MAX = 400
"""How much of a server's own message is quoted."""

SECRET_CHARS_MIN = 6
"""Shorter values are not redacted from quotes, because they would match ordinary text."""


@dataclass(frozen=True)
class Endpoint:
    """A provider's name and URL for messages, and its secrets: the key and configured headers."""

    name: str
    base_url: str
    key: Key = field(default_factory=NoKey, repr=False)
    headers: tuple[str, ...] = field(default=(), repr=False)

    def __str__(self) -> str:
        return f"Provider {self.name} ({self.base_url})"

    @property
    def advice(self) -> str:
        """Sentences that say what to do if the server rejects the key or demands a key."""
        advice = self.key.advice
        return f"{advice} If the key is in `headers`, check it there." if self.headers else advice

    def quote(self, text: str) -> str:
        """Return a server's message redacted, in one short line; empty for an HTML page."""
        if text.lstrip()[:1] == "<":
            return ""
        secrets = (*self.key.secrets, *self.headers)
        text = redact(text, (one for one in secrets if len(one) >= SECRET_CHARS_MIN))
        line = " ".join(text.split())
        return line if len(line) <= QUOTED_CHARS_MAX else line[: QUOTED_CHARS_MAX - 1] + "…"


def error_from_response(
    endpoint: Endpoint, status: int, headers: Mapping[str, str], body: bytes, now: float
) -> ModelError:
    """Return the error for an HTTP response that is not a stream.

    Header names must be in lower case. `body` may be incomplete. `now` is Unix time in seconds.
    """
    details = parse_error_body(body)
    asked_s = retry_after_s(headers, now, details)
    kind = kind_of_response(status, details, asked_s)
    return ModelError(
        kind,
        _sentence(endpoint, kind, status, details, None if asked_s is None else now + asked_s),
        status=status,
        retry_after_s=asked_s,
        final=headers.get("x-should-retry", "").lower() == "false",
    )


def error_from_event(
    endpoint: Endpoint, body: bytes, unknown: ModelErrorKind = "server"
) -> ModelError:
    """Return the error for an error object without a status; see `kind_of_event`."""
    details = parse_error_body(body)
    kind = kind_of_event(details, unknown)
    asked_s = retry_after_s({}, 0.0, details)
    sentence = _sentence(endpoint, kind, None, details, None)
    return ModelError(kind, sentence, retry_after_s=asked_s)


def _sentence(
    endpoint: Endpoint,
    kind: ModelErrorKind,
    status: int | None,
    details: ErrorDetails,
    until: float | None,
) -> str:
    """Return what happened and what to do. `until`, in Unix seconds, is when to try again."""
    match kind:
        case "authentication" if status == 403 and endpoint.key.forbidden_advice:
            what = f"refused the request. {endpoint.key.forbidden_advice}"
        case "authentication":
            what = f"requires a valid {endpoint.key.noun}. {endpoint.advice}"
        case "quota":
            what = f"reports that the quota is used up. {endpoint.key.quota_advice}"
            until = until or details.resets_at
            what += f" It ends at {_local_time(until)}." if until else ""
        case "not_found":
            what = "does not have this model or path. Check the model's name, `base_url` and `api`."
        case "rate_limit":
            what = "is limiting the rate of requests."
        case "overloaded":
            what = "is overloaded."
        case "context_overflow":
            what = "reports that the request is longer than the model's context window."
        case "content_policy":
            what = "refused the request because of its content policy."
        case "server" | "timeout":
            what = "failed to answer."
        case _:
            what = "refused the request. Check the model's name, `base_url` and `api`."
    code = "" if status is None else f" (HTTP {status})"
    summary = endpoint.quote(details.summary)
    return f"{endpoint} {what}{code}" + (f" It said: {summary}" if summary else "")


def _local_time(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds).astimezone():%Y-%m-%d %H:%M %Z}"
