"""Failures as providers really say them, that time may heal."""

from models.http.provider_failures import Row, anthropic, error, gemini, openrouter

RATE = (
    Row(
        "OpenAI",
        429,
        error(
            "Rate limit reached for gpt-5 in organization org-1 on tokens per min (TPM): Limit "
            "30000, Used 28000, Requested 4000. Please try again in 4.2s.",
            type="tokens",
            code="rate_limit_exceeded",
        ),
        "rate_limit",
        4.2,
    ),
    Row(
        "OpenAI, of milliseconds",
        429,
        error("Rate limit reached on requests per min. Please try again in 120ms. Visit x."),
        "rate_limit",
        0.12,
    ),
    Row(
        "Azure",
        429,
        error(
            "Requests to the ChatCompletions Operation have exceeded token rate limit of your "
            "current pricing tier. Please retry after 36 seconds.",
            code="429",
        ),
        "rate_limit",
        36.0,
    ),
    Row(
        "Anthropic",
        429,
        anthropic(
            "rate_limit_error",
            "This request would exceed your organization's rate limit of 40,000 input tokens per "
            "minute.",
        ),
        "rate_limit",
    ),
    Row(
        "Gemini, of a minute, in words of billing",
        429,
        gemini(
            429,
            "RESOURCE_EXHAUSTED",
            "You exceeded your current quota, please check your plan and billing details. * Quota "
            "exceeded for metric: generativelanguage.googleapis.com/generate_content_requests, "
            "limit: 10\nPlease retry in 22.8s.",
            {"violations": [{"quotaId": "GenerateRequestsPerMinutePerProjectPerModel-FreeTier"}]},
            {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "22s"},
        ),
        "rate_limit",
        22.0,
    ),
    Row(
        "Groq, of a day that begins anew all the time",
        429,
        error(
            "Rate limit reached for model `llama-3.3-70b` on tokens per day (TPD): Limit 100000, "
            "Used 99000, Requested 1525. Please try again in 7m33.6s.",
            type="tokens",
            code="rate_limit_exceeded",
        ),
        "rate_limit",
        453.6,
    ),
    Row(
        "OpenRouter",
        429,
        openrouter(429, "z-ai/glm is temporarily rate-limited upstream. Please retry shortly."),
        "rate_limit",
    ),
    Row("Mistral", 429, {"message": "Requests rate limit exceeded"}, "rate_limit"),
    Row(
        "Bedrock",
        429,
        {"message": "Too many tokens, please wait before trying again."},
        "rate_limit",
    ),
    Row(
        "Bedrock, as a bad request",
        400,
        {"__type": "ThrottlingException", "message": "Too many tokens, please wait"},
        "rate_limit",
    ),
    Row(
        "Moonshot",
        429,
        error(
            "Your account org-1 request reached organization max RPM: 3, please try again after 1 "
            "seconds",
            type="rate_limit_reached_error",
        ),
        "rate_limit",
        1.0,
    ),
    Row("z.ai", 429, error("Rate limit reached for requests", code="1302"), "rate_limit"),
    Row("in a stream", None, error("slow", code="rate_limit_exceeded"), "rate_limit"),
    Row(
        "Anthropic, in a stream",
        None,
        anthropic("rate_limit_error", "Number of requests has exceeded your rate limit"),
        "rate_limit",
    ),
    Row("OpenRouter, in a stream", None, error("x", code=429), "rate_limit"),
    Row("nobody", 429, "", "rate_limit"),
    Row("a lock", 409, "", "rate_limit"),
)

OVERLOAD = (
    Row("Anthropic", 529, anthropic("overloaded_error", "Overloaded"), "overloaded"),
    Row("Anthropic, in a stream", None, anthropic("overloaded_error", "Overloaded"), "overloaded"),
    Row("Gemini", 503, gemini(503, "UNAVAILABLE", "The model is overloaded."), "overloaded"),
    Row(
        "OpenAI, in a stream",
        None,
        error("Our servers are currently overloaded.", code="server_is_overloaded"),
        "overloaded",
    ),
    Row("Groq, flex", 498, error("Flex tier capacity exceeded"), "overloaded"),
    Row("DeepSeek", 503, error("Server overloaded"), "overloaded"),
    Row("an old gateway", 500, error("The engine is currently overloaded"), "overloaded"),
    Row("llama.cpp, at its start", 503, error("Loading model", code=503), "overloaded"),
    Row("Bedrock", 503, {"message": "x", "__type": "ServiceUnavailableException"}, "overloaded"),
)

SERVER = (
    Row("OpenAI", 500, error("The server had an error", type="server_error"), "server"),
    Row(
        "OpenAI, in a stream", None, error("x", type="server_error", code="server_error"), "server"
    ),
    Row("Anthropic, in a stream", None, anthropic("api_error", "Internal server error"), "server"),
    Row("Cloudflare", 520, "<html>520</html>", "server"),
    Row("a gateway", 502, "Bad Gateway", "server"),
    Row("a mystery in a stream", None, error("boom"), "server"),
    Row("a word in a stream", None, {"error": "boom"}, "server"),
    Row("a slow gateway", 504, "", "server"),
    Row("a slow server", 408, "", "timeout"),
    Row("Anthropic, in a stream", None, anthropic("timeout_error", "Request timed out"), "timeout"),
)

LIMITS = (*RATE, *OVERLOAD, *SERVER)
