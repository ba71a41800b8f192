"""What went wrong with a connection: whose fault it is, whether waiting helps, what to do."""

from __future__ import annotations

import ssl
from functools import cache
from typing import cast

from tiller_daemon.config.http_proxy import Proxy
from tiller_daemon.models.base import ModelError
from tiller_daemon.models.http.failure import Endpoint
from tiller_daemon.redaction.text import redact

PROXY_REJECTS_CREDENTIALS = (
    "it wants another name and password than it was shown; they stand in its address in the "
    "variable HTTPS_PROXY or HTTP_PROXY"
)

_WANTS_NAME = ("407", "username", "auth")
"""What is in the words of `httpx2` when a proxy does not let us in."""


@cache
def connection_failures() -> tuple[type[Exception], ...]:
    """What `httpx2` raises; a function, as the library is imported at the first request only."""
    import httpx2

    return (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, ssl.SSLError)


def connection_error(
    endpoint: Endpoint, error: BaseException, proxy: Proxy | None, connect_s: float
) -> ModelError:
    """The error of a connection that could not be made, or broke."""
    import httpx2

    causes = _causes_of(error)
    reason = (str(causes[-1]) or type(causes[-1]).__name__).rstrip(".")
    reason = redact(reason, proxy.secrets) if proxy else reason
    match error:
        case httpx2.ConnectTimeout():
            kind, what = "timeout", f"can't be reached within {connect_s:g} seconds"
        case httpx2.TimeoutException():
            kind, what = "timeout", "did not take the request in time"
        case httpx2.ProxyError() if proxy and any(one in reason.lower() for one in _WANTS_NAME):
            return proxy_error(endpoint, proxy, PROXY_REJECTS_CREDENTIALS, final=True)
        case httpx2.ProxyError() if proxy:
            return proxy_error(endpoint, proxy, reason, final=False)
        case _ if _holds(causes, ssl.SSLCertVerificationError):
            kind, what = "bad_request", f"shows a certificate that is not trusted ({reason})"
            what += ". A certificate of your own is named by `ca_file`"
        case _ if any(isinstance(one, ssl.SSLError) and _is_no_tls(one) for one in causes):
            kind, what = "bad_request", "does not speak TLS. Its `base_url` may begin with http://"
        case httpx2.ConnectError() if proxy:
            return proxy_error(endpoint, proxy, f"it can't be reached: {reason}", final=False)
        case _ if _holds(causes, ConnectionRefusedError):
            kind = "refused"
            what = "refuses connections. Start that server, or correct `base_url`"
        case httpx2.ConnectError():
            kind, what = "network", f"can't be reached ({reason}). Check the network"
        case httpx2.UnsupportedProtocol() | httpx2.LocalProtocolError() | httpx2.InvalidURL():
            kind, what = "bad_request", f"can't be asked ({reason}). Check `base_url`"
        case _:
            kind, what = "network", f"broke the connection ({reason})"
    return ModelError(kind, endpoint.quote(f"{endpoint} {what}."))


def proxy_error(endpoint: Endpoint, proxy: Proxy, why: str, *, final: bool) -> ModelError:
    """The error of a proxy that does not lead on; waiting does not help if `final`."""
    what = f"can't be reached by the proxy {proxy}: {why}"
    return ModelError("bad_request" if final else "network", endpoint.quote(f"{endpoint} {what}."))


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
