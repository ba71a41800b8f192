"""The actions of `tiller daemon`, and their options. Imports the standard library only."""

from collections.abc import Callable

from tiller_client.command_line.parser import Parser
from tiller_client.command_line.turn_arguments import positive
from tiller_client.command_line.values import path

AddVerb = Callable[[str, str, str], Parser]
"""Adds the parser of an action, from its family, its name and its help."""


def add_actions(add: AddVerb) -> None:
    """Add the actions of `tiller daemon`."""
    run = add("machine.daemon", "run", "run the daemon here, in the foreground")
    run.option("--config", "F", "configuration file", path)
    run.add_argument("--log-format", choices=("json", "console"), help="format of the log")
    _link(add("machine.daemon", "start", "start the daemon in the background"))
    stop = add("machine.daemon", "stop", "stop the daemon")
    restart = add("machine.daemon", "restart", "stop the daemon and start it again")
    for parser in (stop, restart):
        _drain(parser)
        parser.flag("--yes", "interrupt running turns without asking")
    text = "show whether the daemon is running, and its statistics"
    _link(add("machine.daemon", "status", text))
    backup = add("machine.daemon", "backup", "copy all sessions into a new file")
    backup.add_argument("file", metavar="FILE", type=path, help="the file to create")
    logs = add("machine.daemon", "logs", "show the end of the daemon's log")
    logs.add_argument(
        "-n", dest="lines", type=positive, default=50, help="number of lines; default: 50"
    )
    logs.add_argument("-f", dest="follow", action="store_true", help="follow the log")
    text = "let systemd or launchd start the daemon and keep it running"
    install = add("machine.service", "install", text)
    install.flag("--print", "only print what would be installed")
    _drain(add("machine.service", "uninstall", "stop the service and remove it"))


def _link(parser: Parser) -> None:
    parser.flag("--link", "include what --host needs to connect, such as the token; with --json")


def _drain(parser: Parser) -> None:
    parser.flag("--drain", "let running turns finish first")
