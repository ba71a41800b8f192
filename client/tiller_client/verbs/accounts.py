"""`login`, `logout` and `accounts`: logins at model providers, to use a plan instead of a key.

A login shows an address, and takes the redirect, from the browser or pasted. The redirect goes to a
port on this machine's loopback interface, which is open only for the login. So it also works for a
daemon on another machine. Tokens never get here, only a code that is valid once, and only together
with a secret of the daemon.
"""

import hmac
import os
import select
import sys
from argparse import Namespace
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from queue import Empty, SimpleQueue
from socketserver import ThreadingTCPServer
from threading import Thread
from typing import Final, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from tiller_client.connecting.connection import DaemonConnection, connect
from tiller_client.console import complain, flush, print_json, say
from tiller_client.errors import RejectedError
from tiller_client.rendering.text import one_line
from tiller_protocol.catalog import REDIRECT_PATH, Accounts, AccountsResult, AccountSummary

USAGE_PAGE: Final = "https://chatgpt.com/settings/usage"

STATES: Final = {
    "signed_in": "logged in",
    "signed_out": "logged out",
    "ended": "ended by OpenAI; log in again",
    "not_permitted": "may not use the plan; log in again and allow it",
}

PORTS: Final = (1455, 0)
"""The port of OpenAI's documents, and any free port if another program has that one."""

POLL_S: Final = 0.2
REQUEST_S_MAX: Final = 10.0
"""How long one request may take: browsers also open connections on which they send nothing."""

ANSWER_S_MAX: Final = 60.0
"""How long the browser's page waits for the outcome of the login."""

UNKNOWN: Final = "This is not the address of a login in progress."


class Arrival(NamedTuple):
    """An address that has arrived, and, if a browser brought it, where its page's text goes."""

    address: str
    page: SimpleQueue[str] | None = None


class RedirectListener(ThreadingTCPServer):
    """Receives the redirect of the login whose `state` is known; other requests get a 404."""

    daemon_threads = True
    state = ""

    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", port), _Request)
        self.arrivals: SimpleQueue[Arrival] = SimpleQueue()

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


def run(arguments: Namespace) -> int:
    """Log in, log out, or list the accounts; 1 if a login does not permit the use of the plan."""
    with connect(f"tiller {arguments.verb}") as connection:
        match arguments.verb:
            case "login":
                shows, no_browser = not arguments.json, arguments.no_browser
                result = log_in(connection, arguments.account, no_browser=no_browser, shows=shows)
            case "logout":
                result = connection.ask(Accounts("logout", arguments.account), AccountsResult)
            case _:
                result = connection.ask(Accounts(), AccountsResult)
    if arguments.json:
        for account in result.accounts:
            print_json(account)
    else:
        show(result, arguments.verb)
    if result.warning:
        complain(one_line(result.warning))
    return 1 if arguments.verb == "login" and result.warning else 0


def show(result: AccountsResult, verb: str) -> None:
    """Print the accounts, or what a login or logout has changed."""
    for account in result.accounts:
        match verb:
            case "login" if account.state == "signed_in":
                say_logged_in(account)
            case "logout":
                say(f"Logged out of {_named(account)}.")
            case "accounts":
                model = f"  {one_line(account.model)}" if account.model else ""
                say(f"{_named(account)}: {STATES[account.state]}{model}")
            case _:
                pass
    if verb == "accounts" and not result.accounts:
        say("no accounts; to use a ChatGPT plan: tiller login")


def say_logged_in(account: AccountSummary) -> None:
    """Say that the plan is in use from now on, as OpenAI's guidelines ask."""
    say(f"Logged in to {_named(account)}.")
    say("You're using your ChatGPT plan. Eligible usage in tiller uses your ChatGPT plan.")
    say(f"To see and limit it: {USAGE_PAGE}")
    if account.model:
        say(f"Try: tiller exec -m {one_line(account.model)} hello, and see: tiller models --all")


def log_in(
    connection: DaemonConnection, account: str, *, no_browser: bool, shows: bool = True
) -> AccountsResult:
    """Log in to an account, and return what the daemon says at the end.

    Raises `RejectedError` if the login fails. The address is printed for people, or, without
    `shows`, as JSON.
    """
    with _listening() as listener:
        begun = connection.ask(Accounts("begin", account, listener.port), AccountsResult)
        listener.state = dict(parse_qsl(urlsplit(begun.url).query)).get("state", "")
        if shows:
            say(f"To continue with ChatGPT, open this address:\n\n{one_line(begun.url)}\n")
            say(
                "If the browser is on another machine, the last page of the login will not load. "
                "Paste the address of that page here."
            )
        else:
            print_json(begun)
        flush()
        if not no_browser:
            open_browser(begun.url)
        try:
            return _wait(connection, account, listener)
        except KeyboardInterrupt:
            connection.ask(Accounts("cancel", account), AccountsResult)
            raise


def open_browser(url: str) -> None:
    """Open a browser if there is a desktop; a text browser would take over the terminal."""
    if sys.platform == "darwin" or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY"))):
        import webbrowser

        webbrowser.open(url)


def typed_line(seconds_max: float) -> str | None:
    """Return a line from standard input; `None` if no line has come in time, "" at its end."""
    ready, _, _ = select.select([sys.stdin], [], [], seconds_max)
    return sys.stdin.readline() if ready else None


@contextmanager
def _listening() -> Generator[RedirectListener]:
    listener = _open_listener()
    thread = Thread(target=listener.serve_forever, args=(POLL_S,), daemon=True)
    thread.start()
    try:
        yield listener
    finally:
        listener.shutdown()
        listener.server_close()


def _open_listener() -> RedirectListener:
    first, other = PORTS
    try:
        return RedirectListener(first)
    except OSError:
        return RedirectListener(other)


def _wait(connection: DaemonConnection, account: str, listener: RedirectListener) -> AccountsResult:
    reads = True
    while True:
        arrival = None
        if reads:
            line = typed_line(POLL_S)
            # At the end of stdin, the browser alone can finish the login.
            reads = line != ""
            arrival = Arrival(line.strip()) if line and line.strip() else None
        try:
            arrival = arrival or listener.arrivals.get(timeout=0.001 if reads else POLL_S)
        except Empty:
            continue
        try:
            op = Accounts("finish", account, redirect=arrival.address)
            result = connection.ask(op, AccountsResult)
        except RejectedError as error:
            _show(arrival, str(error))
            # The user pasted something else, so the login still waits.
            if error.code != "bad_message":
                raise
            complain(str(error))
            continue
        _show(arrival, result.warning or "You are logged in. You can close this page.")
        return result


def _show(arrival: Arrival, text: str) -> None:
    if arrival.page is not None:
        arrival.page.put(text)


def _named(account: AccountSummary) -> str:
    email = f" ({one_line(account.email)})" if account.email else ""
    return f"{account.name}{email}"
