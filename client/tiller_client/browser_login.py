"""A login at a model provider in a browser, which `tiller login` and `tiller acp` share.

The redirect goes to a port on this machine's loopback interface, which is open only for the login.
So it also works for a daemon on another machine. Tokens never get here, only a code that is valid
once, and only together with a secret of the daemon.
"""

import hmac
import os
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler
from queue import Empty, SimpleQueue
from socketserver import ThreadingTCPServer
from threading import Thread
from typing import Final, NamedTuple, Self
from urllib.parse import parse_qsl, urlsplit

from tiller_client.connecting.connection import DaemonConnection
from tiller_client.console import complain
from tiller_client.errors import RejectedError, TillerError
from tiller_protocol.catalog import LOGIN_S_MAX, REDIRECT_PATH, Accounts, AccountsResult

PORTS: Final = (1455, 0)
"""The port of OpenAI's documents, and any free port if another program has that one."""

POLL_S: Final = 0.2
REQUEST_S_MAX: Final = 10.0
"""How long one request may take: browsers also open connections on which they send nothing."""

ANSWER_S_MAX: Final = 60.0
"""How long the browser's page waits for the outcome of the login."""

UNKNOWN: Final = "This is not the address of a login in progress."
LOGGED_IN: Final = "You are logged in. You can close this page."

NOT_COMPLETED: Final = (
    "nobody has completed the login in the browser within {minutes:g} minutes, so nothing has "
    "changed; try again"
)

BROWSER_VARIABLES: Final = ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY")
"""The variables of which one is set where a browser can be opened, except on macOS."""

OPEN: Final = "import sys, webbrowser; sys.exit(not webbrowser.open(sys.argv[1]))"


class BrowserLogin:
    """A login in progress; a context manager, which stops listening for the redirect.

    For one thread. `begun` has the address to open in a browser.
    """

    def __init__(self, connection: DaemonConnection, account: str) -> None:
        """Raises the same errors as `DaemonConnection.submit`."""
        self._connection = connection
        self._account = account
        self._listener = RedirectListener.open()
        try:
            op = Accounts("begin", account, self._listener.port)
            self.begun = connection.ask(op, AccountsResult)
        except BaseException:
            self.close()
            raise
        self._listener.state = dict(parse_qsl(urlsplit(self.begun.url).query)).get("state", "")
        self._deadline = time.monotonic() + LOGIN_S_MAX

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop listening."""
        self._listener.close()

    def cancel(self) -> None:
        """Give up, so that the daemon accepts no redirect any more."""
        self._connection.ask(Accounts("cancel", self._account), AccountsResult)

    def paste(self, address: str) -> None:
        """Take the address of a redirect that the user has copied from the browser."""
        self._listener.arrivals.put(Arrival(address))

    def advance(self, wait_s: float) -> AccountsResult | None:
        """Return what the daemon says at the end; `None` if no redirect has arrived in time.

        Raises `RejectedError` if the login has failed, and `TillerError` if it took too long.
        """
        try:
            arrival = self._listener.arrivals.get(timeout=wait_s)
        except Empty:
            if time.monotonic() > self._deadline:
                raise TillerError(NOT_COMPLETED.format(minutes=LOGIN_S_MAX / 60)) from None
            return None
        try:
            op = Accounts("finish", self._account, redirect=arrival.address)
            result = self._connection.ask(op, AccountsResult)
        except RejectedError as error:
            arrival.show(str(error))
            # That was another address, so the login still waits.
            if error.code != "bad_message":
                raise
            complain(str(error))
            return None
        arrival.show(result.warning or LOGGED_IN)
        return result


def open_browser(url: str) -> "subprocess.Popen[bytes] | None":
    """Open a browser if there is one; return what opens it, whose status is 0 on success.

    It gets neither the terminal, which a text browser would take over, nor stdin and stdout.
    """
    if sys.platform != "darwin" and not any(map(os.environ.get, BROWSER_VARIABLES)):
        return None
    command = (sys.executable, "-I", "-c", OPEN, url)
    null = subprocess.DEVNULL
    return subprocess.Popen(command, stdin=null, stdout=null, stderr=null, start_new_session=True)


class Arrival(NamedTuple):
    """An address that has arrived, and, if a browser brought it, where its page's text goes."""

    address: str
    page: SimpleQueue[str] | None = None

    def show(self, text: str) -> None:
        """Show a text in the browser."""
        if self.page is not None:
            self.page.put(text)


class RedirectListener(ThreadingTCPServer):
    """Receives the redirect of the login whose `state` is known; other requests get a 404."""

    daemon_threads = True
    state = ""

    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", port), _Request)
        self.arrivals: SimpleQueue[Arrival] = SimpleQueue()

    @classmethod
    def open(cls) -> Self:
        """Listen on the first port of `PORTS` that is free."""
        first, other = PORTS
        try:
            listener = cls(first)
        except OSError:
            listener = cls(other)
        Thread(target=listener.serve_forever, args=(POLL_S,), daemon=True).start()
        return listener

    def close(self) -> None:
        """Stop listening."""
        self.shutdown()
        self.server_close()

    @property
    def port(self) -> int:
        """The port that was free."""
        return self.server_address[1]


class _Request(BaseHTTPRequestHandler):
    timeout = REQUEST_S_MAX  # of the standard library's class

    def do_GET(self) -> None:
        listener = self.server
        assert isinstance(listener, RedirectListener)
        parts = urlsplit(self.path)
        sent = dict(parse_qsl(parts.query)).get("state", "").encode()
        state = listener.state.encode()
        if parts.path != REDIRECT_PATH or not state or not hmac.compare_digest(sent, state):
            self._answer(404, UNKNOWN)
            return
        page = SimpleQueue[str]()
        address = f"http://127.0.0.1:{listener.port}{self.path}"
        listener.arrivals.put(Arrival(address, page))
        try:
            self._answer(200, page.get(timeout=ANSWER_S_MAX))
        except Empty:
            self._answer(504, "tiller does not answer. See its terminal.")

    def _answer(self, status: int, text: str) -> None:
        body = f"{text}\n".encode()
        self.send_response(status)
        for name, value in (
            ("content-type", "text/plain; charset=utf-8"),
            ("content-length", str(len(body))),
            ("cache-control", "no-store"),
        ):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Print nothing: the address contains the code."""
