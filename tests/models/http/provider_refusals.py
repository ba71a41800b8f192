"""Failures as providers really say them, that the same request will meet again."""

from models.http.provider_failures import Row, anthropic, error, gemini

QUOTA = (
    Row(
        "OpenAI",
        429,
        error(
            "You exceeded your current quota, please check your plan and billing details.",
            type="insufficient_quota",
            code="insufficient_quota",
        ),
        "quota",
    ),
    Row(
        "OpenAI, not paid",
        429,
        error(
            "Your account is not active, please check your billing details.",
            code="billing_not_active",
        ),
        "quota",
    ),
    Row(
        "OpenAI, in a stream",
        None,
        error("You exceeded your current quota", code="insufficient_quota"),
        "quota",
    ),
    Row(
        "Anthropic",
        400,
        anthropic(
            "invalid_request_error",
            "Your credit balance is too low to access the Anthropic API. Please go to Plans & "
            "Billing to upgrade or purchase credits.",
        ),
        "quota",
    ),
    Row(
        "Anthropic, own limit",
        400,
        anthropic(
            "invalid_request_error",
            "You have reached your specified API usage limits. You will regain access on "
            "2026-12-01 at 00:00 UTC.",
        ),
        "quota",
    ),
    Row(
        "a ChatGPT plan",
        429,
        error("You've reached your limit.", code="subscription_sharing_usage_limit_exceeded"),
        "quota",
    ),
    Row(
        "a ChatGPT plan, in a stream",
        None,
        error("You've reached your limit.", code="subscription_sharing_usage_limit_exceeded"),
        "quota",
    ),
    Row("Anthropic, newer", 402, anthropic("billing_error", "x"), "quota"),
    Row("DeepSeek", 402, error("Insufficient Balance", type="unknown_error"), "quota"),
    Row(
        "OpenRouter",
        402,
        error(
            "This request requires more credits, or fewer max_tokens. You requested up to 65536 "
            "tokens, but can only afford 30104.",
            code=402,
        ),
        "quota",
    ),
    Row("OpenRouter, key", 403, error("Key limit exceeded (total limit).", code=403), "quota"),
    Row(
        "OpenRouter, free",
        429,
        error("Rate limit exceeded: free-models-per-day. Add 10 credits to unlock", code=429),
        "quota",
    ),
    Row(
        "Gemini, of a day",
        429,
        gemini(
            429,
            "RESOURCE_EXHAUSTED",
            "You exceeded your current quota, please check your plan and billing details.",
            {"violations": [{"quotaId": "GenerateRequestsPerDayPerProjectPerModel-FreeTier"}]},
            {"retryDelay": "18s"},
        ),
        "quota",
        18.0,
    ),
    Row(
        "Moonshot",
        429,
        error(
            "Your account is suspended due to insufficient balance, please recharge your account "
            "or check your plan and billing details",
            type="exceeded_current_quota_error",
        ),
        "quota",
    ),
    Row(
        "xAI",
        403,
        {
            "code": "The caller does not have permission to execute the specified operation",
            "error": "Your team has either used all available credits or reached its monthly "
            "spending limit.",
        },
        "quota",
    ),
    Row(
        "z.ai",
        429,
        error("Insufficient balance or no resource package. Please recharge.", code="1113"),
        "quota",
    ),
    Row("DashScope", 400, error("Access denied, account overdue", code="Arrearage"), "quota"),
    Row(
        "ChatGPT",
        429,
        error(
            "The usage limit has been reached", type="usage_limit_reached", resets_in_seconds=9000
        ),
        "quota",
        9000.0,
    ),
    Row("Zhipu", 429, error("余额不足或无可用资源包,请充值。", code="1113"), "quota"),
)

POLICY = (
    Row(
        "Azure",
        400,
        error(
            "The response was filtered due to the prompt triggering Azure OpenAI's content "
            "management policy. Please modify your prompt and retry.",
            code="content_filter",
            innererror={"code": "ResponsibleAIPolicyViolation"},
        ),
        "content_policy",
    ),
    Row(
        "OpenAI",
        400,
        error(
            "Invalid prompt: your prompt was flagged as potentially violating our usage policy.",
            code="invalid_prompt",
        ),
        "content_policy",
    ),
    Row(
        "Anthropic",
        400,
        anthropic("invalid_request_error", "Output blocked by content filtering policy"),
        "content_policy",
    ),
    Row(
        "OpenRouter",
        403,
        error("x requires moderation. Your input was flagged for 'violence'.", code=403),
        "content_policy",
    ),
    Row("DeepSeek", 400, error("Content Exists Risk"), "content_policy"),
    Row(
        "DashScope",
        400,
        error("Input data may contain inappropriate content.", code="data_inspection_failed"),
        "content_policy",
    ),
    Row(
        "Moonshot",
        400,
        error(
            "The request was rejected because it was considered high risk", type="content_filter"
        ),
        "content_policy",
    ),
    Row("in a stream", None, error("x", code="content_filter"), "content_policy"),
)

AUTHENTICATION = (
    Row(
        "OpenAI",
        401,
        error("Incorrect API key provided: sk-***.", code="invalid_api_key"),
        "authentication",
    ),
    Row("Anthropic", 401, anthropic("authentication_error", "invalid x-api-key"), "authentication"),
    Row(
        "Anthropic, another organisation",
        403,
        anthropic("permission_error", "Your API key does not have permission"),
        "authentication",
    ),
    Row(
        "Gemini",
        400,
        [
            gemini(
                400,
                "INVALID_ARGUMENT",
                "API key not valid. Please pass a valid API key.",
                {"reason": "API_KEY_INVALID"},
            )
        ],
        "authentication",
    ),
    Row("xAI", 400, {"code": "x", "error": "Incorrect API key provided: xa***."}, "authentication"),
    Row(
        "Bedrock",
        403,
        {"message": "The security token included in the request is invalid."},
        "authentication",
    ),
    Row("Mistral", 401, {"detail": "Unauthorized"}, "authentication"),
    Row("in a stream", None, anthropic("authentication_error", "x"), "authentication"),
    Row(
        "OpenAI, from a country it does not serve",
        403,
        error("Country not supported", code="unsupported_country_region_territory"),
        "authentication",
    ),
)

NOT_FOUND = (
    Row(
        "OpenAI",
        404,
        error(
            "The model `gpt-9` does not exist or you do not have access to it.",
            code="model_not_found",
        ),
        "not_found",
    ),
    Row(
        "OpenAI, not for this project",
        403,
        error("Project `p` does not have access to model `m`", code="model_not_found"),
        "not_found",
    ),
    Row(
        "Azure",
        404,
        error("The API deployment does not exist", code="DeploymentNotFound"),
        "not_found",
    ),
    Row("OpenRouter", 400, error("qwen/x is not a valid model ID", code=400), "not_found"),
    Row(
        "Mistral",
        400,
        {"message": "Invalid model: mistral-x", "type": "invalid_model"},
        "not_found",
    ),
    Row("DeepSeek", 400, error("Model Not Exist", code="invalid_request_error"), "bad_request"),
    Row("Ollama", 404, {"error": "model 'm' not found"}, "not_found"),
    Row(
        "vLLM",
        404,
        error("The model `m` does not exist.", type="NotFoundError", code=404),
        "not_found",
    ),
    Row("a path", 404, {"detail": "Not Found"}, "not_found"),
    Row("in a stream", None, anthropic("not_found_error", "model: claude-x"), "not_found"),
)

BAD = (
    Row("OpenAI", 400, error("Unknown parameter: 'x'.", code="unknown_parameter"), "bad_request"),
    Row(
        "OpenAI, too much to say",
        400,
        error(
            "max_tokens is too large: 100000. This model supports at most 16384 completion tokens.",
            code="invalid_value",
        ),
        "bad_request",
    ),
    Row("OpenAI, in a stream", None, error("bad", type="invalid_request_error"), "bad_request"),
    Row(
        "a ChatGPT plan, in a stream",
        None,
        error("no such tool", code="subscription_sharing_unsupported_capability"),
        "bad_request",
    ),
    Row(
        "Anthropic",
        400,
        anthropic("invalid_request_error", "messages: roles must alternate"),
        "bad_request",
    ),
    Row(
        "FastAPI",
        422,
        {"detail": [{"loc": ["body", "model"], "msg": "Field required", "type": "missing"}]},
        "bad_request",
    ),
    Row("Ollama", 400, {"error": "registry/m does not support tools"}, "bad_request"),
    Row("Gemini", 400, gemini(400, "INVALID_ARGUMENT", "Unable to submit request"), "bad_request"),
    Row("a teapot", 418, "I am a teapot", "bad_request"),
    Row("a gateway", 405, "<html>Method Not Allowed</html>", "bad_request"),
)

REFUSALS = (*QUOTA, *POLICY, *AUTHENTICATION, *NOT_FOUND, *BAD)
