"""Checks an ID token: who has logged in, and that this login asked for it. Imports PyJWT.

PyJWT and cryptography come with the MCP package anyway, and are maintained.
"""

import hmac
from typing import Any

import jwt
from jwt import PyJWKSet

from tiller_daemon.models.accounts.chatgpt import ID_TOKEN_ALGORITHMS

LEEWAY_S = 60.0
"""How far the issuer's clock may differ from ours."""


class InvalidIdToken(Exception):
    """The token is not what this login asked for. The message is a clause without secrets."""


def verify_id_token(
    token: str, keys: dict[str, list[dict[str, Any]]], *, issuer: str, client_id: str, nonce: str
) -> dict[str, Any]:
    """Return the token's claims. `keys` is the issuer's JSON Web Key Set.

    Checks the signature, issuer, audience, expiry and nonce. Raises `InvalidIdToken`.
    """
    try:
        wanted = jwt.get_unverified_header(token).get("kid")
        found = [key for key in PyJWKSet.from_dict(keys).keys if key.key_id == wanted]
        if len(found) != 1:
            raise InvalidIdToken("its key is not among those that the issuer has published")
        claims: dict[str, Any] = jwt.decode(
            token,
            found[0],
            algorithms=list(ID_TOKEN_ALGORITHMS),
            audience=client_id,
            issuer=issuer,
            leeway=LEEWAY_S,
            options={"require": ["aud", "exp", "iat", "iss", "nonce", "sub"]},
        )
    except jwt.PyJWTError as error:
        raise InvalidIdToken(_clause(error)) from None
    if claims.get("azp", client_id) != client_id:
        raise InvalidIdToken("it was issued to another program")
    if not hmac.compare_digest(str(claims["nonce"]).encode(), nonce.encode()):
        raise InvalidIdToken("it belongs to another login (wrong nonce)")
    return claims


def _clause(error: jwt.PyJWTError) -> str:
    match error:
        case jwt.ExpiredSignatureError():
            return "it has expired"
        case jwt.InvalidAudienceError():
            return "it is for another program (wrong audience)"
        case jwt.InvalidIssuerError():
            return "it is from another issuer"
        case jwt.InvalidSignatureError():
            return "its signature is invalid"
        case _:
            return f"it is invalid ({type(error).__name__})"
