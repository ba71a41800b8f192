"""One attempt to log in: the address to open, and what the browser's redirect must bring. Pure."""

import hmac
import secrets
from base64 import urlsafe_b64encode
from hashlib import sha256
from typing import Final
from urllib.parse import parse_qsl, urlencode, urlsplit

from msgspec import Struct

from tiller_daemon.models.accounts.chatgpt import (
    AGENT_NAME,
    REGISTRATION_CLIENT,
    SCOPES,
    LoginService,
)
from tiller_daemon.models.accounts.store import Login
from tiller_protocol.catalog import REDIRECT_PATH

RANDOM_BYTES: Final = 32


class NotOurs(ValueError):
    """The pasted text is not the address of this attempt's redirect."""


class Redirect(Struct, frozen=True):
    """What a redirect has brought."""

    code: str
    client_id: str
    """The id that was issued for tiller."""
    error: str = ""
    """Why there is no code, such as `access_denied`."""


class LoginAttempt(Struct, frozen=True):
    """The secrets and the address of one attempt, for an account that may be `known`."""

    service: LoginService
    """Where the user logs in."""
    known: Login | None
    """The registration from an earlier login of this account."""
    redirect_uri: str
    """Where the browser is sent at the end."""
    state: str
    """Binds the redirect to this attempt."""
    nonce: str
    """Binds the ID token to this attempt."""
    verifier: str
    """Binds the code to this attempt (PKCE)."""

    def url(self, host_id: str) -> str:
        """Return the address that the user opens. Its only secrets are `state` and `nonce`."""
        challenge = urlsafe_b64encode(sha256(self.verifier.encode()).digest()).rstrip(b"=")
        query = {
            "response_type": "code",
            "client_id": self.known.client_id if self.known else REGISTRATION_CLIENT,
            "redirect_uri": self.redirect_uri,
            "scope": SCOPES,
            "resource": self.service.resource,
            "state": self.state,
            "nonce": self.nonce,
            "code_challenge": challenge.decode(),
            "code_challenge_method": "S256",
            "ext_agent_host_id": host_id,
        }
        return f"{self.service.authorize}?{urlencode({**query, **self._hints()})}"

    def read(self, address: str) -> Redirect:
        """Return what the redirect has brought. Raises `NotOurs`."""
        try:
            parts = urlsplit(address.strip())
            pairs = parse_qsl(parts.query, keep_blank_values=True)
        except ValueError:
            raise NotOurs from None
        found = dict(pairs)
        is_ours = hmac.compare_digest(found.get("state", "").encode(), self.state.encode())
        if not is_ours or len(found) != len(pairs) or parts.path != REDIRECT_PATH:
            raise NotOurs
        known = self.known.client_id if self.known else ""
        issued = found.get("client_id", known)
        if found.get("iss", self.service.issuer) != self.service.issuer:
            return Redirect("", "", "wrong_issuer")
        if error := found.get("error"):
            return Redirect("", "", error)
        if not issued or issued == REGISTRATION_CLIENT or (known and issued != known):
            return Redirect("", "", "wrong_client")
        return Redirect(found.get("code", ""), issued, "" if found.get("code") else "no_code")

    def _hints(self) -> dict[str, str]:
        """Return what helps the issuer to ask the user less, or for a missing permission."""
        if self.known is None:
            return {"agent_name_hint": AGENT_NAME}
        hints = {"login_hint": self.known.email} if self.known.email else {}
        # Without this, the issuer does not ask again for a permission that the user has refused.
        if self.known.subject and not self.known.may_use_plan:
            hints["prompt"] = "consent"
        return hints


def begin_attempt(service: LoginService, known: Login | None, port: int) -> LoginAttempt:
    """Return a new attempt, whose redirect goes to this port of the browser's machine."""
    state, nonce, verifier = (secrets.token_urlsafe(RANDOM_BYTES) for _ in range(3))
    redirect = f"http://127.0.0.1:{port}{REDIRECT_PATH}"
    return LoginAttempt(service, known, redirect, state, nonce, verifier)
