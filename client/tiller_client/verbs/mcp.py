"""`mcp`: lists the MCP servers; logs in to a server or out of it."""

import time
from argparse import Namespace
from typing import Final

from tiller_client.browser_login import open_browser
from tiller_client.connecting.connection import DaemonConnection, connect
from tiller_client.console import complain, flush, print_json, say, stdout_theme
from tiller_client.errors import RejectedError, UsageError
from tiller_client.program_name import program
from tiller_client.rendering.text import one_line
from tiller_client.verbs.accounts import typed_line
from tiller_client.verbs.catalog import server_line
from tiller_protocol.answers import CatalogResult, McpLoginResult
from tiller_protocol.ops import Catalog, McpLogin

POLL_S: Final = 0.5
"""Seconds between two checks whether the login in the browser is complete."""


def run(arguments: Namespace) -> int:
    """List the servers, or log in to a server or out of it."""
    if arguments.action != "list" and not arguments.server:
        raise UsageError(f"name the server: {program()} mcp {arguments.action} NAME")
    with connect("tiller mcp") as connection:
        match arguments.action:
            case "login":
                _log_in(connection, arguments)
            case "logout":
                op = McpLogin(arguments.server, "logout")
                _show(connection.ask(op, McpLoginResult), arguments)
            case _:
                _list(connection, arguments)
    return 0


def _list(connection: DaemonConnection, arguments: Namespace) -> None:
    catalog = connection.ask(Catalog(start_servers=True), CatalogResult)
    theme = stdout_theme()
    for server in catalog.servers:
        if arguments.json:
            print_json(server)
        else:
            say(server_line(server, theme))
    if not catalog.servers and not arguments.json:
        say("no MCP servers are configured; to see where to add one: tiller config path")


def _log_in(connection: DaemonConnection, arguments: Namespace) -> None:
    name = arguments.server
    result = connection.ask(McpLogin(name), McpLoginResult)
    _show(result, arguments)
    if not arguments.no_browser:
        open_browser(result.url)
    reads = True
    try:
        while result.state == "waiting":
            typed = typed_line(POLL_S) if reads else None
            # At the end of stdin, the browser alone can finish the login.
            reads = reads and typed != ""
            text = (typed or "").strip()
            op = McpLogin(name, "finish", text) if text else McpLogin(name, "check")
            try:
                result = connection.ask(op, McpLoginResult)
            except RejectedError as error:
                # The user pasted something else, so the login still waits.
                if error.code != "bad_message":
                    raise
                complain(str(error))
                continue
            if not reads:
                time.sleep(POLL_S)
    except KeyboardInterrupt:
        connection.ask(McpLogin(name, "cancel"), McpLoginResult)
        raise
    _show(result, arguments)


def _show(result: McpLoginResult, arguments: Namespace) -> None:
    name = one_line(arguments.server)
    if arguments.json:
        print_json(result)
    elif result.state == "waiting":
        say(f"To log in to {name}, open this address in a browser:\n\n{one_line(result.url)}\n")
        say(
            "If the browser is on another machine, the last page of the login will not load. Paste "
            "the address of that page here."
        )
    elif result.state == "done":
        say(f"Logged in to {name}.")
    else:
        say(f"Logged out of {name}.")
    flush()
