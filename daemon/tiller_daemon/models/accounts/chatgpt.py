"""What is particular to "Sign in with ChatGPT": addresses, scopes, errors, limits of requests.

The documents are below https://developers.openai.com/siwc/token-sharing-open-source, as read in
November 2026; each constant names its page. What the documents do not say is marked `observed`, and
was reported by other open-source programs.
"""

from typing import Final

from msgspec import Struct


class LoginService(Struct, frozen=True):
    """The addresses of a login. Those of a tested service differ from `CHATGPT`."""

    issuer: str
    """Who issues tokens. The addresses for keys and revocation are in its metadata, and must be on
    the same host. Pages: sign-in, profiles-and-sessions."""
    authorize: str
    """Where the user logs in. Page: sign-in."""
    token: str
    """Where a code or a refresh token is exchanged. Page: sign-in."""
    resource: str
    """The API for which tokens are valid; they are sent nowhere else. Page: sign-in."""


CHATGPT: Final = LoginService(
    issuer="https://auth.openai.com",
    authorize="https://auth.openai.com/api/accounts/authorize",
    token="https://auth.openai.com/api/accounts/oauth/token",  # noqa: S106 - an address
    resource="https://api.openai.com/v1",
)

METADATA_PATH: Final = "/.well-known/openid-configuration"
"""Below the issuer. Page: profiles-and-sessions."""

REGISTRATION_CLIENT: Final = "dynamic_agent_client"
"""The client id of a first login, in which the user registers tiller; the redirect brings the id
that is issued. It is never stored. Page: sign-in."""

AGENT_NAME: Final = "tiller"
"""The name that a first login proposes to the user. Page: sign-in (`agent_name_hint`)."""

HOST_ID_PREFIX: Final = "urn:uuid:"
"""How the id of this installation begins (`ext_agent_host_id`). Page: overview."""

PLAN_SCOPE: Final = "chatgpt.tokens.use.direct"
"""The permission to use the plan, which a user can refuse. Page: sign-in."""

SCOPES: Final = f"openid profile email offline_access resource.invoke {PLAN_SCOPE}"
"""Page: sign-in."""

ID_TOKEN_ALGORITHMS: Final = ("RS256",)
"""How ID tokens are signed (observed, and in the issuer's metadata)."""

ENDED: Final = frozenset(
    {
        "invalid_grant",
        "invalid_refresh_token",
        "refresh_token_expired",
        "refresh_token_invalidated",
        "refresh_token_reused",
        "token_expired",
    }
)
"""The errors of a refresh after which only a new login helps. Page: errors-and-recovery."""

EXPIRES_S_DEFAULT: Final = 3600
"""How long a token is valid if the answer does not say. Page: token-reference."""

RENEW_BEFORE_S: Final = 180.0
"""How long before its end a token is renewed. OpenAI allows a renewal six minutes before the end;
an earlier one spends the refresh token and fails (observed)."""

USAGE_PAGE: Final = "https://chatgpt.com/settings/usage"
"""Where users see and limit the use of their plan. Page: errors-and-recovery."""

DENIED: Final = (
    "OpenAI does not permit this for the account, its workspace or this place. Another login with "
    "the same account does not help."
)
"""What HTTP 403 means. Page: errors-and-recovery."""

LIMIT_REACHED: Final = (
    "The limit of your ChatGPT plan, or the limit that you have set for tiller there, is reached. "
    f"See {USAGE_PAGE}"
)
"""What `subscription_sharing_usage_limit_exceeded` means. Page: errors-and-recovery."""

REFUSED_FIELDS: Final = frozenset(
    {
        "background",
        "conversation",
        "max_output_tokens",
        "max_tool_calls",
        "metadata",
        "moderation",
        "multi_agent",
        "previous_response_id",
        "prompt",
        "prompt_cache_options",  # observed
        "prompt_cache_retention",
        "safety_identifier",
        "temperature",
        "top_logprobs",
        "top_p",
        "truncation",
        "user",
    }
)
"""The fields with which a request for a plan is refused. Page: preview-limitations."""

NAMESPACE: Final = "tiller"
"""The namespace of our tools: a plan takes no other function tools. Page: preview-limitations."""

NAMESPACE_DESCRIPTION: Final = "Tools that run on the user's machine."
