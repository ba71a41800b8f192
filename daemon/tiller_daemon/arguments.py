"""The command line of `tillerd`. Imports the standard library only, as a man page is made of it."""

import argparse
from pathlib import Path

from tiller_daemon import DAEMON_VERSION


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="tillerd",
        description="The daemon that owns coding-agent sessions.",
        epilog="tillerd VERB … does the same as tiller VERB …",
    )
    parser.add_argument(
        "--config", type=_absolute, metavar="FILE", help="read this configuration file"
    )
    parser.add_argument(
        "--state", type=Path, metavar="DIR", help="keep the sessions' log in this directory"
    )
    parser.add_argument(
        "--runtime", type=Path, metavar="DIR", help="make the sockets in this directory"
    )
    parser.add_argument(
        "--after-crash",
        metavar="STAMP",
        default="",
        help="for frontends, after a crash: start only if the token file still has this stamp "
        "(inode-mtime), which means that no other daemon has been started since",
    )
    parser.add_argument(
        "--log-format",
        choices=("json", "console"),
        default=None,
        help="the format of lines on stderr (default: console on a terminal, else json)",
    )
    parser.add_argument(
        "-c",
        dest="override",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="set a key of the configuration",
    )
    parser.add_argument(
        "--check-config", action="store_true", help="check the configuration and exit"
    )
    parser.add_argument("--check-log", action="store_true", help="check the sessions' log and exit")
    parser.add_argument(
        "--sandboxed",
        nargs=argparse.REMAINDER,
        metavar="CMD",
        help="run a command in the sandbox for models' commands (without CMD: describe the "
        "sandbox) and exit",
    )
    parser.add_argument("--version", action="version", version=f"tillerd {DAEMON_VERSION}")
    return parser


def _absolute(path: str) -> Path:
    return Path(path).absolute()
