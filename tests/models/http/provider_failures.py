"""How providers really say that a request is too long. How they say other things is beside this."""

import json
from typing import Any, NamedTuple

from tiller_daemon.models.base import ModelErrorKind


class Row(NamedTuple):
    """Who says it, with which HTTP status (None: in a stream) and body, and what it means.

    `asked_s` are the seconds that the body asks to wait.
    """

    who: str
    status: int | None
    body: Any
    kind: ModelErrorKind
    asked_s: float | None = None

    @property
    def data(self) -> bytes:
        return self.body.encode() if isinstance(self.body, str) else json.dumps(self.body).encode()


def error(message: str, **fields: Any) -> dict[str, Any]:
    return {"error": {"message": message, **fields}}


def gemini(code: int, status: str, message: str, *details: dict[str, Any]) -> dict[str, Any]:
    return error(message, code=code, status=status, details=list(details))


def anthropic(kind: str, message: str) -> dict[str, Any]:
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"}


def openrouter(code: int, raw: str, message: str = "Provider returned error") -> dict[str, Any]:
    return error(message, code=code, metadata={"raw": raw, "provider_name": "P"})


OVERFLOW = (
    Row(
        "OpenAI Chat",
        400,
        error(
            "This model's maximum context length is 128000 tokens. However, your messages resulted "
            "in 130034 tokens. Please reduce the length of the messages.",
            type="invalid_request_error",
            param="messages",
            code="context_length_exceeded",
        ),
        "context_overflow",
    ),
    Row(
        "OpenAI Responses",
        None,
        error(
            "Your input exceeds the context window of this model. Please adjust your input and try "
            "again.",
            type="invalid_request_error",
            code="context_length_exceeded",
        ),
        "context_overflow",
    ),
    Row(
        "OpenAI, one request above the limit of a minute",
        429,
        error(
            "Request too large for gpt-4o in organization org-1 on tokens per min (TPM): Limit "
            "30000, Requested 41245. The input or output tokens must be reduced in order to run "
            "successfully.",
            type="tokens",
            code="rate_limit_exceeded",
        ),
        "context_overflow",
    ),
    Row(
        "Azure",
        400,
        error(
            "Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in "
            "307312 tokens. Please reduce the length of the messages.",
            code="context_length_exceeded",
            status=400,
        ),
        "context_overflow",
    ),
    Row(
        "Anthropic",
        400,
        anthropic("invalid_request_error", "prompt is too long: 213462 tokens > 200000 maximum"),
        "context_overflow",
    ),
    Row(
        "Anthropic, with its output",
        400,
        anthropic(
            "invalid_request_error",
            "input length and `max_tokens` exceed context limit: 198157 + 21333 > 200000, decrease "
            "input length or `max_tokens` and try again",
        ),
        "context_overflow",
    ),
    Row(
        "Anthropic, too many bytes",
        413,
        anthropic("request_too_large", "Request exceeds the maximum size"),
        "context_overflow",
    ),
    Row("nginx", 413, "<html><h1>413 Request Entity Too Large</h1></html>", "context_overflow"),
    Row(
        "Gemini",
        400,
        [
            gemini(
                400,
                "INVALID_ARGUMENT",
                "The input token count (1196265) exceeds the maximum number of tokens allowed "
                "(1048575).",
            )
        ],
        "context_overflow",
    ),
    Row(
        "Gemini, as an inner error",
        500,
        gemini(
            500,
            "INTERNAL",
            "An internal error has occurred. Your input context is too long. Please retry.",
        ),
        "context_overflow",
    ),
    Row(
        "Bedrock",
        400,
        {"message": "Input is too long for requested model.", "__type": "ValidationException"},
        "context_overflow",
    ),
    Row(
        "SGLang",
        400,
        {
            "object": "error",
            "message": "The input (140000 tokens) is longer than the model's context length "
            "(131072 tokens).",
            "type": "BadRequestError",
            "code": 400,
        },
        "context_overflow",
    ),
    Row("llama.cpp, full", 500, error("context shift is disabled", code=500), "context_overflow"),
    Row(
        "ik_llama.cpp",
        500,
        error("the request is greater than this context size", code=500),
        "context_overflow",
    ),
    Row("koboldcpp", 400, {"detail": "Prompt longer than the maximum context"}, "context_overflow"),
    Row(
        "Bedrock Titan",
        400,
        {
            "message": "400 Bad Request: Too many input tokens. Max input tokens: 8192, request "
            "input token count: 9279"
        },
        "context_overflow",
    ),
    Row(
        "xAI",
        400,
        {
            "code": "Client specified an invalid argument",
            "error": "This model's maximum prompt length is 131072 but the request contains 537812 "
            "tokens.",
        },
        "context_overflow",
    ),
    Row(
        "Groq",
        400,
        error(
            "Please reduce the length of the messages or completion.",
            type="invalid_request_error",
            param="messages",
            code="context_length_exceeded",
        ),
        "context_overflow",
    ),
    Row(
        "Groq, one request above the limit of a minute",
        413,
        error(
            "Request too large for model `llama-3.3-70b` in organization `org_1` service tier "
            "`on_demand` on tokens per minute (TPM): Limit 12000, Requested 14200, please reduce "
            "your message size and try again.",
            type="tokens",
            code="rate_limit_exceeded",
        ),
        "context_overflow",
    ),
    Row(
        "OpenRouter",
        400,
        error(
            "This endpoint's maximum context length is 163840 tokens. However, you requested about "
            "180000 tokens (178000 of text input, 2000 in the output).",
            code=400,
        ),
        "context_overflow",
    ),
    Row(
        "OpenRouter, on behalf of another",
        400,
        openrouter(
            400,
            json.dumps(error("prompt is too long: 201266 tokens > 200000 maximum", type="x")),
        ),
        "context_overflow",
    ),
    Row(
        "vLLM",
        400,
        {
            "object": "error",
            "message": "This model's maximum context length is 16384 tokens. However, you "
            "requested 17000 tokens (16900 in the messages, 100 in the completion). Please "
            "reduce the length of the messages or completion.",
            "type": "BadRequestError",
            "code": 400,
        },
        "context_overflow",
    ),
    Row(
        "vLLM, newer",
        400,
        error(
            "The decoder prompt (length 25938) is longer than the maximum model length of 4096.",
            type="BadRequestError",
            code=400,
        ),
        "context_overflow",
    ),
    Row(
        "llama.cpp",
        400,
        error(
            "request (124315 tokens) exceeds the available context size (123904 tokens), try "
            "increasing it",
            code=400,
            type="exceed_context_size_error",
            n_prompt_tokens=124315,
            n_ctx=123904,
        ),
        "context_overflow",
    ),
    Row(
        "llama.cpp, in the middle",
        None,
        error("Context size has been exceeded.", code=500, type="server_error"),
        "context_overflow",
    ),
    Row(
        "LM Studio",
        400,
        error(
            "The number of tokens to keep from the initial prompt is greater than the context "
            "length. Try to load the model with a larger context length."
        ),
        "context_overflow",
    ),
    Row(
        "LM Studio, older",
        400,
        {"error": "Trying to keep the first 15857 tokens when context the overflows."},
        "context_overflow",
    ),
    Row(
        "Ollama",
        400,
        {"error": "prompt too long; exceeded max context length by 812 tokens"},
        "context_overflow",
    ),
    Row(
        "Mistral",
        400,
        {
            "object": "error",
            "message": "Prompt contains 65673 tokens and 0 draft tokens, too large for model with "
            "32768 maximum context length",
            "type": "invalid_request_invalid_args",
            "code": "3051",
        },
        "context_overflow",
    ),
    Row(
        "DeepSeek",
        400,
        error(
            "This model's maximum context length is 131072 tokens. However, you requested 134142 "
            "tokens (130046 in the messages, 4096 in the completion).",
            type="invalid_request_error",
            code="invalid_request_error",
        ),
        "context_overflow",
    ),
    Row(
        "Moonshot",
        400,
        error(
            "Invalid request: Your request exceeded model token limit: 262144 (requested: 291351)",
            type="invalid_request_error",
        ),
        "context_overflow",
    ),
    Row(
        "DashScope",
        400,
        error(
            "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 98304]",
            type="invalid_request_error",
            code="invalid_parameter_error",
        ),
        "context_overflow",
    ),
    Row("z.ai", 400, error("Prompt exceeds max length", code="1261"), "context_overflow"),
    Row(
        "MiniMax",
        400,
        error("invalid params, context window exceeds limit (2013)", type="bad_request_error"),
        "context_overflow",
    ),
    Row(
        "Copilot",
        400,
        error(
            "prompt token count of 51808 exceeds the limit of 12288",
            code="model_max_prompt_tokens_exceeded",
        ),
        "context_overflow",
    ),
)
