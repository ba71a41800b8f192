"""What an HTTP answer that is no good stream means: a `ModelError` with a sentence. Pure.

Shared by the adapters to HTTP providers. Sentences say whose fault it is and what to do; they
quote the server, cut short and with every secret taken out.
"""

import math
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple, cast

import msgspec

from tiller_daemon.models.base import ModelError, ModelErrorKind
from tiller_daemon.models.http_body import BrokenBody
from tiller_daemon.models.http_proxy import Proxy, ProxyError
from tiller_daemon.models.keys import Key, NoKey

QUOTED_CHARS_MAX = 400
"""How much of a server's own words goes into a sentence."""

SECRET_CHARS_MIN = 6
"""A shorter value is not taken out of a server's words: it would be found in ordinary text."""

_OVERFLOW_WORDS = (
    "context_length_exceeded",
    "context length",
    "context window",
    "context size",
    "context_window",
    "exceed context limit",
    "exceed_context_size",
    "prompt is too long",
    "prompt too long",
    "input is too long",
    "too many input tokens",
    "input token count",
    "reduce the length of the messages",
)
_QUOTA_WORDS = (
    "insufficient_quota",
    "insufficient balance",
    "credit balance",
    "billing_hard_limit",
    "spend_limit",
    "api usage limits",
)
"""Not "billing" or "quota" alone: providers use both words in answers that a wait does heal."""

_POLICY_WORDS = (
    "content_filter",
    "content_policy",
    "content policy",
    "content filtering policy",
    "safety policy",
    "bio_policy",
    "policy_violation",
)

_STATUS_OF_TYPE = {
    "server_error": 500,
    "server_is_overloaded": 529,
    "slow_down": 503,
    "vector_store_timeout": 504,
    "insufficient_quota": 429,
    "invalid_prompt": 400,
    "data_residency_mismatch": 400,
    "bio_policy": 400,
    "misalignment_policy_violation": 400,
    "image_content_policy_violation": 400,
    "invalid_image": 400,
    "invalid_image_format": 400,
    "invalid_base64_image": 400,
    "invalid_image_url": 400,
    "invalid_image_mode": 400,
    "image_too_large": 400,
    "image_too_small": 400,
    "image_parse_error": 400,
    "image_file_too_large": 400,
    "image_file_not_found": 400,
    "unsupported_image_media_type": 400,
    "empty_image_file": 400,
    "failed_to_download_image": 400,
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}
"""What the types and codes of errors stand for (https://platform.claude.com/docs/en/api/errors and
https://platform.openai.com/docs/api-reference/responses/object, `error.code`)."""

_WAIT = re.compile(r"try again in ((?:[\d.]+(?:ms|s|m|h) ?)+)", re.IGNORECASE)
_WAIT_PART = re.compile(r"([\d.]+)(ms|s|m|h)", re.IGNORECASE)
_UNIT_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
"""A wait as OpenAI's servers say it in words: `try again in 11.054s`, `in 6m0s`, `in 20ms`."""


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
        for secret in (*self.key.secrets, *self.headers):
            if len(secret) >= SECRET_CHARS_MIN:
                text = text.replace(secret, "[secret]")
        line = " ".join(text.split())
        return line if len(line) <= QUOTED_CHARS_MAX else line[: QUOTED_CHARS_MAX - 1] + "…"


def error_of_answer(
    endpoint: Endpoint, status: int, headers: Mapping[str, str], body: bytes, now: float
) -> ModelError:
    """The error that an HTTP answer other than a stream stands for.

    `headers` has lower-case names or ignores case, `body` may be cut, `now` is Unix seconds.
    """
    said = _said(body)
    kind = _kind_of(status, said)
    asked_s = retry_after_s(headers, now)
    return ModelError(
        kind,
        _sentence(endpoint, kind, status, said),
        status=status,
        retry_after_s=_wait_s(said.words) if asked_s is None else asked_s,
    )


def error_in_stream(endpoint: Endpoint, body: bytes) -> ModelError:
    """The error object that a server sent in the middle of a good stream."""
    said = _said(body)
    kind = _kind_of(_status_of(said), said)
    sentence = _sentence(endpoint, kind, None, said)
    return ModelError(kind, sentence, retry_after_s=_wait_s(said.words))


def error_of_connection(endpoint: Endpoint, error: Exception, proxy: Proxy | None) -> ModelError:
    """The error of a connection that could not be made, or broke."""
    causes = _causes_of(error)
    reason = (str(causes[-1]) or type(causes[-1]).__name__).rstrip(".")
    match error:
        case ProxyError():
            kind = "bad_request" if error.final else "network"
            why = reason if causes[-1] is error else f"{error}: {reason}"
            what = f"can't be reached by the proxy {proxy}: {why}"
        case BrokenBody():
            kind, what = "network", f"broke the connection (it {error})"
        case _ if _holds(causes, ssl.SSLCertVerificationError):
            kind, what = "bad_request", f"shows a certificate that is not trusted ({reason})"
            what += ". A certificate of your own is named by `ca_file`"
        case _ if any(isinstance(one, ssl.SSLError) and _is_no_tls(one) for one in causes):
            kind, what = "bad_request", "does not speak TLS. Its `base_url` may begin with http://"
        case _ if _holds(causes, ConnectionRefusedError):
            kind = "refused"
            what = "refuses connections. Start that server, or correct `base_url`"
        case OSError():
            kind, what = "network", f"can't be reached ({reason}). Check the network"
        case _:
            kind, what = "network", f"broke the connection ({reason})"
    return ModelError(kind, endpoint.quote(f"{endpoint} {what}."))


def retry_after_s(headers: Mapping[str, str], now: float) -> float | None:
    """Seconds to wait by `retry-after-ms`, else `retry-after` (seconds or HTTP date); >= 0."""
    milliseconds = _seconds(headers.get("retry-after-ms", ""))
    if milliseconds is not None:
        return milliseconds / 1000
    text = headers.get("retry-after", "")
    seconds = _seconds(text)
    if seconds is not None or not text:
        return seconds
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - now)
    except (ValueError, OverflowError):
        return None


def _wait_s(words: str) -> float | None:
    """The wait that a server asks for in words."""
    if not (asked := _WAIT.search(words)):
        return None
    parts = [(_seconds(count), unit.lower()) for count, unit in _WAIT_PART.findall(asked[1])]
    return sum(_UNIT_S[unit] * (count or 0.0) for count, unit in parts)


def _is_no_tls(error: ssl.SSLError) -> bool:
    return error.reason in ("WRONG_VERSION_NUMBER", "UNKNOWN_PROTOCOL", "HTTP_REQUEST")


def _causes_of(error: BaseException) -> list[BaseException]:
    """The error and everything behind it, through causes and groups; the first one last."""
    found = [error]
    for known in found:
        if isinstance(known, BaseExceptionGroup):
            found.extend(cast("BaseExceptionGroup[BaseException]", known).exceptions)
        elif (behind := known.__cause__ or known.__context__) is not None:
            found.append(behind)
    return found


def _holds(causes: list[BaseException], kind: type[BaseException]) -> bool:
    return any(isinstance(cause, kind) for cause in causes)


def _seconds(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) and number >= 0 else None


class _Said(NamedTuple):
    """What an error body says: its sentence, and its codes and types in lower case."""

    words: str
    codes: tuple[str, ...] = ()

    def holds(self, *needles: str) -> bool:
        text = " ".join((*self.codes, self.words)).lower()
        return any(needle in text for needle in needles)


def _said(body: bytes) -> _Said:
    try:
        told = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _Said(body.decode(errors="replace"))
    if isinstance(told, list) and told:
        told = cast("list[Any]", told)[0]
    if isinstance(told, dict):
        outer = cast("dict[str, Any]", told)
        told = outer.get("error") or outer
    if not isinstance(told, dict):
        return _Said(str(cast("object", told)))
    error = cast("dict[str, Any]", told)
    words = error.get("message") or error.get("detail") or ""
    codes = (error.get(key) for key in ("code", "type", "status"))
    return _Said(str(words), tuple(str(code).lower() for code in codes if code))


def _status_of(said: _Said) -> int:
    """The HTTP status that an error in a stream would have had."""
    for code in said.codes:
        if code.isdecimal() and len(code) == 3:
            return int(code)
    if said.holds("rate_limit", "rate limit"):
        return 429
    for code in said.codes:
        if code in _STATUS_OF_TYPE:
            return _STATUS_OF_TYPE[code]
    return 529 if said.holds("overloaded") else 500


def _kind_of(status: int, said: _Said) -> ModelErrorKind:
    match status:
        case 402:
            return "quota"
        case 400 | 403 | 409 | 429 if said.holds(*_QUOTA_WORDS):
            return "quota"
        case 401 | 403:
            return "authentication"
        case 404:
            return "not_found"
        case 408:
            return "timeout"
        case 409 | 429:
            return "rate_limit"
        case 503 | 529:
            return "overloaded"
        case 413:
            return "context_overflow"
        case _ if said.holds(*_OVERFLOW_WORDS):
            return "context_overflow"
        case _ if status >= 500:
            return "server"
        case _:
            return "content_policy" if said.holds(*_POLICY_WORDS) else "bad_request"


def _sentence(endpoint: Endpoint, kind: ModelErrorKind, status: int | None, said: _Said) -> str:
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
