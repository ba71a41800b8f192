"""Turns a failed connection into a `ModelError`: what happened, and what the user can do."""

import ssl
from typing import cast

from tiller_daemon.config.http_proxy import Proxy
from tiller_daemon.http.failures import (
    ConnectFailed,
    ConnectTimedOut,
    HttpFailure,
    InvalidAddress,
    ProxyFailed,
    WriteTimedOut,
)
from tiller_daemon.models.base import ModelError
from tiller_daemon.models.http.failure import Endpoint
from tiller_daemon.redaction.text import redact

PROXY_REJECTS_CREDENTIALS = (
    "the proxy rejects the user name and password. Check both in the proxy's address (set by "
    "`proxy`, or by the variable HTTPS_PROXY or HTTP_PROXY)"
)


def connection_error(
    endpoint: Endpoint, error: HttpFailure, proxy: Proxy | None, connect_s: float
) -> ModelError:
    """Return the error for a connection that could not be opened or that broke."""
    causes = _causes(error)
    reason = (str(causes[-1]) or type(causes[-1]).__name__).rstrip(".")
    reason = redact(reason, proxy.secrets) if proxy else reason
    match error:
        case ConnectTimedOut():
            kind, what = "timeout", f"could not be reached within {connect_s:g} seconds"
        case WriteTimedOut():
            kind, what = "timeout", "did not accept the request in time"
        case ProxyFailed(rejects_credentials=True) if proxy:
            return proxy_error(endpoint, proxy, PROXY_REJECTS_CREDENTIALS, final=True)
        case ProxyFailed() if proxy:
            return proxy_error(endpoint, proxy, reason, final=False)
        case _ if _has_cause(causes, ssl.SSLCertVerificationError):
            kind, what = "bad_request", f"has a certificate that is not trusted ({reason})"
            what += ". If the server is yours, set `ca_file` to your CA's certificate"
        case _ if any(isinstance(one, ssl.SSLError) and _is_plaintext(one) for one in causes):
            kind, what = "bad_request", "does not use TLS. Try http:// in its `base_url`"
        case ConnectFailed() if proxy:
            why = f"the proxy can't be reached: {reason}"
            return proxy_error(endpoint, proxy, why, final=False)
        case _ if _has_cause(causes, ConnectionRefusedError):
            kind = "refused"
            what = "refuses connections. Start the server, or correct `base_url`"
        case ConnectFailed():
            kind, what = "network", f"can't be reached ({reason}). Check the network"
        case InvalidAddress():
            kind, what = "bad_request", f"can't be used ({reason}). Check `base_url`"
        case _:
            kind, what = "network", f"broke the connection ({reason})"
    return ModelError(kind, endpoint.quote(f"{endpoint} {what}."))


def proxy_error(endpoint: Endpoint, proxy: Proxy, why: str, *, final: bool) -> ModelError:
    """Return the error for a proxy that fails. `final` means that a retry would not help."""
    what = f"can't be reached through the proxy {proxy}: {why}"
    return ModelError("bad_request" if final else "network", endpoint.quote(f"{endpoint} {what}."))


def _is_plaintext(error: ssl.SSLError) -> bool:
    return error.reason in ("WRONG_VERSION_NUMBER", "UNKNOWN_PROTOCOL", "HTTP_REQUEST")


def _causes(error: BaseException) -> list[BaseException]:
    """Return the error and its causes, also inside exception groups. The original cause is last."""
    causes = [error]
    for known in causes:  # the list grows while it is walked
        if isinstance(known, BaseExceptionGroup):
            causes.extend(cast("BaseExceptionGroup[BaseException]", known).exceptions)
        elif (cause := known.__cause__ or known.__context__) is not None:
            causes.append(cause)
    return causes


def _has_cause(causes: list[BaseException], kind: type[BaseException]) -> bool:
    return any(isinstance(cause, kind) for cause in causes)
