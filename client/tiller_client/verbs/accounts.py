"""`login`, `logout` and `accounts`: logins at model providers, to use a plan instead of a key.

A login shows an address, and takes the redirect, from the browser (`browser_login.py`) or pasted.
"""

import select
import sys
from argparse import Namespace
from typing import Final

from tiller_client.browser_login import POLL_S, BrowserLogin, open_browser
from tiller_client.connecting.connection import DaemonConnection, connect
from tiller_client.console import complain, flush, print_json, say
from tiller_client.rendering.text import one_line
from tiller_protocol.catalog import Accounts, AccountsResult, AccountSummary

USAGE_PAGE: Final = "https://chatgpt.com/settings/usage"

STATES: Final = {
    "signed_in": "logged in",
    "signed_out": "logged out",
    "ended": "ended by OpenAI; log in again",
    "not_permitted": "may not use the plan; log in again and allow it",
}


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

    Raises `RejectedError` if the login fails, and `TillerError` if it takes too long. The address
    is printed for people, or, without `shows`, as JSON.
    """
    with BrowserLogin(connection, account) as login:
        if shows:
            say(f"To continue with ChatGPT, open this address:\n\n{one_line(login.begun.url)}\n")
            say(
                "If the browser is on another machine, the last page of the login will not load. "
                "Paste the address of that page here."
            )
        else:
            print_json(login.begun)
        flush()
        if not no_browser:
            open_browser(login.begun.url)
        try:
            return _wait(login)
        except KeyboardInterrupt:
            login.cancel()
            raise


def typed_line(seconds_max: float) -> str | None:
    """Return a line from standard input; `None` if no line has come in time, "" at its end."""
    ready, _, _ = select.select([sys.stdin], [], [], seconds_max)
    return sys.stdin.readline() if ready else None


def _wait(login: BrowserLogin) -> AccountsResult:
    reads = True
    while True:
        if reads:
            line = typed_line(POLL_S)
            # At the end of stdin, the browser alone can finish the login.
            reads = line != ""
            if line and line.strip():
                login.paste(line.strip())
        if result := login.advance(0.001 if reads else POLL_S):
            return result


def _named(account: AccountSummary) -> str:
    email = f" ({one_line(account.email)})" if account.email else ""
    return f"{account.name}{email}"
