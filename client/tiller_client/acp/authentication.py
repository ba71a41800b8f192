"""The ways to authenticate that a client is offered, and the login that it has begun.

The login is that of `tiller login`. It stores its tokens at the daemon, so a client never gets one,
and every session of every frontend can use the plan from then on.
"""

import contextlib
import math
from subprocess import Popen
from typing import NamedTuple

from tiller_client.acp.rpc import (
    AUTH_REQUIRED,
    INVALID_PARAMS,
    REQUEST_CANCELLED,
    Peer,
    RequestId,
    RpcError,
    RpcFailure,
)
from tiller_client.browser_login import POLL_S, BrowserLogin, open_browser
from tiller_client.connecting.connection import DaemonConnection
from tiller_client.errors import RejectedError, TillerError
from tiller_client.program_name import program
from tiller_protocol.catalog import ACCOUNT_DEFAULT, Accounts, AccountsResult

CHATGPT = {
    "id": ACCOUNT_DEFAULT,
    "name": "Continue with ChatGPT",
    "description": "Uses your Plus or Pro plan: logs in in the browser, as tiller login does",
}

SETUP = {
    "id": "init",
    "name": "Set up tiller",
    "description": "Finds a model and writes a configuration, in a terminal (tiller init)",
    "type": "terminal",
    "args": ["init"],
}
"""Clients run `tiller acp init`, or by the registry's rules `tiller init`."""

NO_MODEL = "Authentication required: {problem}"

NO_BROWSER = "no browser can be opened here; log in in a terminal instead: {program} login"
REPLACED = "another login has begun in its place"
CANCELLED = "the login was cancelled, so nothing has changed"


class _Running(NamedTuple):
    request_id: RequestId
    login: BrowserLogin
    opening: Popen[bytes]


class Authentication:
    """At most one login in progress, as the daemon has at most one for each account."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._running: _Running | None = None

    @property
    def wait_s_max(self) -> float:
        """The longest time until the next `advance`."""
        return POLL_S if self._running else math.inf

    def begin(self, connection: DaemonConnection, method_id: str, request_id: RequestId) -> bool:
        """Open a login in the browser; return false if the user is logged in already.

        It replaces a login in progress, of which the user may have closed the page. `advance`
        answers the request. Raises `RpcFailure`, or the same errors as `DaemonConnection.submit`.
        """
        if method_id != CHATGPT["id"]:
            raise RpcFailure(INVALID_PARAMS, f"{method_id!r} is no login that an agent runs itself")
        accounts = connection.ask(Accounts(), AccountsResult).accounts
        # Some clients authenticate at every start.
        if any((one.name, one.state) == (ACCOUNT_DEFAULT, "signed_in") for one in accounts):
            return False
        self._cancel(RpcError(REQUEST_CANCELLED, REPLACED))
        login = BrowserLogin(connection, ACCOUNT_DEFAULT)
        if opening := open_browser(login.begun.url):
            self._running = _Running(request_id, login, opening)
            return True
        login.close()
        raise RpcFailure(AUTH_REQUIRED, NO_BROWSER.format(program=program()))

    def cancel(self, request_id: RequestId) -> bool:
        """Cancel the login that this request has begun; return false if there is none."""
        if self._running is None or self._running.request_id != request_id:
            return False
        self._cancel(RpcError(REQUEST_CANCELLED, CANCELLED))
        return True

    def advance(self) -> None:
        """Answer the request if its login has ended."""
        if self._running is None:
            return
        try:
            result = self._running.login.advance(wait_s=0)
        except RejectedError as error:
            self._end(RpcError(AUTH_REQUIRED, str(error), {"code": error.code}))
        except TillerError as error:
            self._end(RpcError(AUTH_REQUIRED, str(error)))
        else:
            if result:
                self._end(RpcError(AUTH_REQUIRED, result.warning) if result.warning else None)
            elif self._running.opening.poll():
                self._cancel(RpcError(AUTH_REQUIRED, NO_BROWSER.format(program=program())))

    def close(self) -> None:
        """Cancel the login in progress without an answer, as the client has left."""
        if self._running:
            self._running.login.cancel()
            self._running.login.close()

    def _cancel(self, error: RpcError) -> None:
        if self._running:
            with contextlib.suppress(TillerError):  # a daemon that is gone has forgotten it
                self._running.login.cancel()
            self._end(error)

    def _end(self, error: RpcError | None) -> None:
        assert self._running
        request_id, login, _ = self._running
        self._running = None
        login.close()
        if error:
            self._peer.fail(request_id, error)
        else:
            self._peer.respond(request_id, {})
