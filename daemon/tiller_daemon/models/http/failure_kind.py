"""Classifies error responses by status, error codes and the wording of their messages. Pure.

One list serves all providers, because gateways pass on each other's messages. Patterns are in lower
case; comments name the providers that use them. Real bodies are in `tests/models/http/provider_*`.
"""

import re

from tiller_daemon.models.base import ModelErrorKind
from tiller_daemon.models.http.error_body import ErrorDetails


def _any_of(*wordings: str) -> re.Pattern[str]:
    return re.compile("|".join(wordings))


_OVERFLOW = _any_of(
    r"context[ _]length[ _]exceeded|context_window_exceeded",  # OpenAI, Azure, Groq, DeepSeek …
    r"maximum context length",  # OpenAI, vLLM, Mistral, OpenRouter, DeepSeek, Together
    r"exceeds? the context window|context window exceeds|exceeds? (the |this |your )?context",
    r"prompt (is )?too long|input (is |length is |context is )?too long",  # Anthropic, Bedrock
    r"exceeds? context limit|context limit exceeded",  # Anthropic, with its `max_tokens`
    r"too long to fit into the model|maximum model length|context length is only",  # vLLM
    r"is too long and exceeds limit",  # vLLM
    r"available context size|exceed_context_size|context size has been exceeded",  # llama.cpp
    r"context shift is disabled",  # llama.cpp
    r"(greater|longer) than (the|this|your)( model'?s?)? (maximum )?context",  # LM Studio, SGLang
    r"when context the overflows",  # LM Studio
    r"input token count .*exceeds|exceeds the maximum number of tokens",  # Gemini
    r"too many (input )?tokens|expected maxlength",  # Bedrock
    r"maximum prompt length",  # xAI
    r"reduce the length of (the|your) (messages|prompt|input)",  # Groq, vLLM
    r"token count of \d+ exceeds|model_max_prompt_tokens_exceeded",  # Copilot
    r"tokens in request more than max tokens",
    r"too large for model with",  # Mistral
    r"exceeded model token limit|input token length too long",  # Moonshot
    r"range of input length should be",  # DashScope
    r"prompt exceeds max|input tokens exceed",  # z.ai, Azure
    r"request_too_large|request too large|request entity too large|payload size exceeds",
    r"输入长度超过|上下文长度|超出上下文",
)

_RATE = _any_of(
    r"rate[ _-]?limit|too[ _]many[ _]requests|throttl|slow[ _]down|requests per|tokens per",
    r"per[ _]minute|per[ _]day|\btpm\b|\brpm\b|concurrency|resource_exhausted|please wait",
)
"""Wordings for rate limits. Some mention tokens and must not be mistaken for an overflow."""

_QUOTA = _any_of(
    r"insufficient[ _](user_)?quota|insufficient[ _](account )?balance|insufficient[ _]credits?",
    r"exceeded_current_quota_error",  # Moonshot
    r"credit balance|billing_error|billing_not_active|billing_hard_limit|account is not active",
    r"spend(ing)?[ _]limit|usage_limit_(reached|exceeded)|usage_not_included|api usage limits",
    r"out of credits|requires more credits|add (more )?credits|any credits|available credits",
    r"payment[ _]required|key limit exceeded|credit limit exceeded|arrearage|recharge",
    r"per day \((rpd|tpd)\)",  # Groq
    r"余额不足|欠费",
)
"""The words "quota" and "billing" alone don't count: they also stand for temporary limits."""

_LASTING = _any_of(r"perday|free-models-per-day", r"subscription_sharing_usage_limit")
"""Limits at Gemini and OpenRouter that last until the next day, despite any requested delay, and
the limit of a ChatGPT plan, at which OpenAI demands a pause."""

_POLICY = _any_of(
    r"content[ _-]?filter|content_policy|content policy|responsibleaipolicyviolation",
    r"content management policy|usage polic(y|ies)|safety (policy|system)",
    r"cyber_policy|bio_policy|policy_violation",  # OpenAI
    r"prohibited_content|moderation|flagged|data_inspection_failed",
    r"content exists risk|considered high risk|blocked by guardrail|敏感内容",
)

_KEY = _any_of(
    r"api[ _]key[ _](not valid|invalid|expired)|invalid[ _](api[ _]key|x-api-key|authentication)",
    r"incorrect api key|authentication_error|unrecognizedclient|unauthori[sz]ed",
    r"security token included in the request",
)

_MODEL = _any_of(
    r"model_not_found|not_found_error|deploymentnotfound|resource_not_found",
    r"model .*(does not exist|not found|is not supported|is not available)",
    r"not a valid model|invalid model|unknown model|access to (the )?model",
)

_OVERLOAD = _any_of(
    r"overloaded|server_is_overloaded|slow_down|over capacity|capacity exceeded|high demand",
    r"no[ _]capacity|modelnotready|serviceunavailable|unavailable|currently loading|loading model",
)

_TIMEOUT = _any_of(r"timeout_error|deadline_exceeded|timed out")

_STATUS_OF_CODE = {
    "api_error": 500,
    "bad_request": 400,
    "data_residency_mismatch": 400,
    "internal": 500,
    "invalid_prompt": 400,
    "invalid_argument": 400,
    "invalid_request_error": 400,
    "permission_denied": 403,
    "permission_error": 403,
    "server_error": 500,
    "subscription_sharing_invalid_user": 401,
    "subscription_sharing_route_not_supported": 403,
    "subscription_sharing_unsupported_capability": 400,
    "subscription_sharing_user_not_eligible": 403,
    "validationexception": 400,
}

QUOTA_WAIT_S_MAX = 3_600.0
"""A shorter requested delay means a rate limit, whatever the code, because Azure uses quota codes
for rate limits. An exhausted quota comes with no delay or a long one."""


def kind_of_response(
    status: int, details: ErrorDetails, retry_after_s: float | None = None
) -> ModelErrorKind:
    """Classify a response by its HTTP status, details and requested delay, `retry_after_s`."""
    text = details.text
    # Check wordings first, because providers use many different statuses for these three kinds.
    if status in (400, 403, 404, 413, 422, 429, 500) and _overflows(status, text):
        return "context_overflow"
    if status == 402 or (status < 500 and _is_out_of_money(text, retry_after_s)):
        return "quota"
    if status in (400, 403, 422) and _POLICY.search(text):
        return "content_policy"
    # llama.cpp: a request with images can't succeed later.
    if "image input is not supported" in text:
        return "bad_request"
    match status:
        case 401:
            return "authentication"
        case 400 | 422 if _KEY.search(text):
            return "authentication"
        case 400 | 403 | 422 if _MODEL.search(text):
            return "not_found"
        case 400 if _RATE.search(" ".join(details.codes)):
            return "rate_limit"
        case 403:
            return "authentication"
        case 404:
            return "not_found"
        case 408:
            return "timeout"
        case 413:
            return "context_overflow"
        case 409 | 425 | 429:
            return "rate_limit"
        case 498 | 503 | 529:
            return "overloaded"
        case _ if status >= 500:
            return "overloaded" if _OVERLOAD.search(text) else "server"
        case _:
            return "bad_request"


def kind_of_event(details: ErrorDetails, unknown: ModelErrorKind = "server") -> ModelErrorKind:
    """Classify an error without a status, by its codes and its text.

    Within a stream, an `unknown` error counts as `server` and is retried, because the server had
    accepted the request.
    """
    for code in details.codes:
        if code.isdecimal() and 400 <= int(code) <= 599:
            return kind_of_response(int(code), details)
    text = details.text
    if _overflows(400, text):
        return "context_overflow"
    if _is_out_of_money(text, None):
        return "quota"
    kinds: tuple[tuple[re.Pattern[str], ModelErrorKind], ...] = (
        (_POLICY, "content_policy"),
        (_KEY, "authentication"),
        (_RATE, "rate_limit"),
        (_OVERLOAD, "overloaded"),
        (_TIMEOUT, "timeout"),
        (_MODEL, "not_found"),
    )
    for wordings, kind in kinds:
        if wordings.search(text):
            return kind
    for code in details.codes:
        # OpenAI's codes for unusable images: `invalid_image`, `empty_image_file` and others.
        status = 400 if "image" in code else _STATUS_OF_CODE.get(code)
        if status:
            return kind_of_response(status, details)
    return unknown


def _overflows(status: int, text: str) -> bool:
    """Whether a request is too long for the model or for the server's limit on one request."""
    if "request too large" in text:
        return True
    return bool(_OVERFLOW.search(text)) and status != 429 and not _RATE.search(text)


def _is_out_of_money(text: str, retry_after_s: float | None) -> bool:
    """Whether the error lasts until the user pays, or until the next day."""
    if _LASTING.search(text):
        return True
    waits = retry_after_s is not None and retry_after_s <= QUOTA_WAIT_S_MAX
    return bool(_QUOTA.search(text)) and not waits
