"""The command line: every verb with its options, for argparse. What a verb does is in `verbs`.

Standard library only, as it is read by every start, `--help` included. `family` is the module of
`verbs` that has the verb.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

_AddParser = Callable[..., argparse.ArgumentParser]
"""`add_parser` of what `add_subparsers` returns; argparse has no public name for its class."""

SESSION_HELP = "id, unique begin or end of one (4 characters or more), or: last"

MISUSE = 2
"""The exit status of argparse's own complaints."""

DESCRIPTION = "Talk to tillerd, the daemon that owns your coding-agent sessions."
EPILOG = """\
first steps: tiller demo · tiller exec "what is in this directory?" · tiller doctor
exit status: 0 done, 1 failed, 2 usage; exec: 3 blocked, 4 limit reached, 130 interrupted"""


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The verb and its options; prints and raises `SystemExit` for help and for misuse (2)."""
    parser = _parser()
    parsed = parser.parse_args(arguments)
    if parsed.verb is None:
        parser.print_help(sys.stderr)
        parser.exit(MISUSE)
    return parsed


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="tiller",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("-V", "--version", action=_Version, help="print the version and end")
    add = parser.add_subparsers(title="verbs", metavar="VERB", dest="verb").add_parser
    _add_turns(add)
    _add_sessions(add)
    _add_inputs(add)
    _add_requests(add)
    _add_history(add)
    _add_catalog(add)
    _add_daemon(add)
    _add_rest(add)
    return parser


def _verb(add: _AddParser, family: str, name: str, text: str) -> argparse.ArgumentParser:
    parser = add(name, help=text, description=text[0].upper() + text[1:] + ".")
    parser.add_argument("--json", action="store_true", help="one JSON object a line on stdout")
    parser.set_defaults(family=family, verb=name)
    return parser


def _add_turns(add: _AddParser) -> None:
    parser = _verb(add, "turns", "exec", "run one turn and stream it")
    parser.add_argument("-C", dest="directory", metavar="DIR", default=".", help="workspace")
    parser.add_argument("-m", "--model", help="provider/model")
    parser.add_argument("--agent", help="agent to be")
    parser.add_argument(
        "--approve",
        choices=("ask", "always", "never"),
        help="what becomes of a question that no rule answers",
    )
    _sandbox(parser)
    parser.add_argument("--session", metavar="SESSION", help=SESSION_HELP + "; default: a new one")
    parser.add_argument("--output-schema", metavar="F", help="JSON Schema of the final message")
    _attachments(parser)
    parser.add_argument("prompt", metavar="PROMPT", help="what to do, or - to read it from stdin")

    parser = _verb(add, "follow", "attach", "show a session from its first event, and go on")
    parser.add_argument("--after", type=_seq, default=0, metavar="N", help="begin after event N")
    parser.add_argument("--until-idle", action="store_true", help="end when no turn runs")
    _session(parser, default="last")
    parser = _verb(add, "follow", "log", "show the events of a session so far")
    parser.add_argument("--after", type=_seq, default=0, metavar="N", help="begin after event N")
    _session(parser, default="last")


def _add_sessions(add: _AddParser) -> None:
    parser = _verb(add, "sessions", "new", "make a session without a turn")
    parser.add_argument("-C", dest="directory", metavar="DIR", default=".", help="workspace")
    parser.add_argument("-m", "--model", help="provider/model")
    parser.add_argument("--agent", help="agent to be")
    parser.add_argument("--approve", choices=("ask", "always", "never"))
    _sandbox(parser)
    parser = _verb(add, "sessions", "ls", "list sessions, newest activity first")
    parser.add_argument("-C", dest="directory", metavar="DIR", help="of this workspace only")
    parser.add_argument("--archived", action="store_true", help="those put away instead")
    parser.add_argument("--of", metavar="SESSION", help="the sub-agents of this session instead")
    parser.add_argument("-n", dest="limit", type=_positive, default=20, help="at most; default 20")
    parser.add_argument("--all", action="store_true", help="without a limit")
    parser = _verb(add, "sessions", "show", "show a session as it is now")
    parser.add_argument(
        "--prompt", metavar="TURN", help="what the model was told in a turn; its id, or: last"
    )
    _session(parser, default="last")
    parser = _verb(add, "sessions", "archive", "put a session away")
    parser.add_argument("--undo", action="store_true", help="take it back")
    _session(parser)
    parser = _verb(add, "sessions", "rm", "remove a session and its files for good")
    _session(parser)
    parser = _verb(add, "sessions", "fork", "make a session that shares this one's past")
    parser.add_argument("--at", type=_seq, metavar="N", help="up to event N; default: now")
    _session(parser)


def _add_inputs(add: _AddParser) -> None:
    parser = _verb(add, "inputs", "send", "start a turn, or steer the one that runs")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--queue", action="store_true", help="wait until the turn would rest")
    how.add_argument("--no-reply", action="store_true", help="only let the model know, later")
    _attachments(parser)
    _session(parser)
    parser.add_argument("text", metavar="TEXT", help="what to say, or - to read it from stdin")
    parser = _verb(add, "inputs", "steer", "tell the running turn something")
    parser.add_argument("--turn", metavar="ID", help="only if it is this turn")
    _attachments(parser)
    _session(parser)
    parser.add_argument("text", metavar="TEXT", help="what to say, or - to read it from stdin")
    parser = _verb(add, "inputs", "interrupt", "end the running turn at once")
    parser.add_argument("--turn", metavar="ID", help="only if it is this turn")
    parser.add_argument("--background", metavar="ID", help="end this background command instead")
    _session(parser)
    parser = _verb(add, "inputs", "queue", "show or change what is queued")
    _session(parser)
    change = parser.add_mutually_exclusive_group()
    change.add_argument("--remove", metavar="INPUT", help="take it out")
    change.add_argument("--promote", metavar="INPUT", help="steer with it now")
    change.add_argument("--edit", nargs=2, metavar=("INPUT", "TEXT"), help="say this instead")
    change.add_argument("--move", nargs=2, metavar=("INPUT", "POSITION"), help="0 is next")


def _add_requests(add: _AddParser) -> None:
    parser = _verb(add, "requests", "requests", "list what waits for an answer")
    _session(parser, default="")
    parser = _verb(add, "requests", "answer", "answer a request")
    parser.add_argument("request", metavar="REQUEST", help="its id, or the end of it")
    parser.add_argument("decision", choices=("once", "always", "reject", "answer"))
    parser.add_argument(
        "text", metavar="TEXT", nargs="?", default="", help="reason of a reject, or the answer"
    )


def _add_history(add: _AddParser) -> None:
    parser = _verb(add, "history", "compact", "summarise a session's history now")
    _session(parser)
    parser = _verb(add, "history", "revert", "put history and files back to before a turn")
    parser.add_argument("--step", type=_positive, metavar="N", help="to before step N of it")
    _session(parser)
    parser.add_argument("turn", metavar="TURN", nargs="?", default="last", help="its id, or: last")
    parser = _verb(add, "history", "unrevert", "undo the last revert")
    _session(parser)
    parser = _verb(add, "history", "diff", "show what a session changed in files")
    parser.add_argument("--step", type=_positive, metavar="N", help="in step N of the turn")
    _session(parser, default="last")
    parser.add_argument(
        "turn", metavar="TURN", nargs="?", help="only in this one; its id, or: last"
    )
    parser = _verb(add, "history", "shell", "run your own command in the workspace")
    _session(parser)
    parser.add_argument("command", metavar="COMMAND")


def _add_catalog(add: _AddParser) -> None:
    for name, text in (
        ("models", "list the models, and ask their providers what is wrong or what else there is"),
        ("agents", "list the agents"),
        ("tools", "list the tools that a model is offered"),
        ("commands", "list the custom commands, typed as /NAME"),
    ):
        parser = _verb(add, "catalog", name, text)
        parser.add_argument("-C", dest="directory", metavar="DIR", default=".", help="workspace")
        if name == "models":
            parser.add_argument("--all", action="store_true", help="all that providers list")
    parser = _verb(add, "config", "config", "show where the configuration is, or check it")
    parser.add_argument(
        "action", nargs="?", choices=("path", "show", "check"), default="show", help="default: show"
    )
    for name, text in (
        ("trust", "let what a project's .tiller brings count, as it is now"),
        ("untrust", "let it count no more"),
    ):
        parser = _verb(add, "trust", name, text)
        parser.add_argument("-C", dest="directory", metavar="DIR", default=".", help="workspace")
        if name == "trust":
            parser.add_argument("--yes", action="store_true", help="without being asked")
    _verb(add, "doctor", "doctor", "look for what is wrong")
    text = "run a command in the sandbox of a model's commands, or say what would hold it"
    parser = _verb(add, "sandbox", "sandbox", text)
    parser.add_argument("-C", dest="directory", metavar="DIR", default=".", help="workspace")
    _sandbox(parser)
    parser.add_argument("command", metavar="CMD", nargs="*", help="after --, with its arguments")


def _add_daemon(add: _AddParser) -> None:
    parser = add("daemon", help="run, start, stop or look at the daemon")
    action = parser.add_subparsers(metavar="ACTION", dest="action", required=True).add_parser
    run = _verb(action, "daemon", "run", "run the daemon here, in the foreground")
    run.add_argument("--config", metavar="F", help="configuration file")
    run.add_argument("--log-format", choices=("json", "console"), help="of what it prints")
    _verb(action, "daemon", "start", "start the daemon in the background")
    for name, text in (("stop", "stop the daemon"), ("restart", "stop the daemon and start it")):
        stop = _verb(action, "daemon", name, text)
        stop.add_argument("--drain", action="store_true", help="let running turns finish first")
    _verb(action, "daemon", "status", "say whether the daemon runs, and how it is")
    logs = _verb(action, "daemon", "logs", "show the end of what the daemon printed")
    logs.add_argument("-n", dest="lines", type=_positive, default=50, help="lines; default 50")
    logs.add_argument("-f", dest="follow", action="store_true", help="go on showing it")


def _add_rest(add: _AddParser) -> None:
    _verb(add, "schema", "schema", "print the protocol as JSON Schema")
    parser = _verb(add, "demo", "demo", "see it work: no key, no network, real tools")
    parser.add_argument("--remove", action="store_true", help="leave nothing of the demo behind")


def _sandbox(parser: argparse.ArgumentParser) -> None:
    modes = ("read_only", "workspace_write", "full_access")
    parser.add_argument("--sandbox", choices=modes, help="what commands may do to this machine")


def _attachments(parser: argparse.ArgumentParser) -> None:
    for name, metavar, text in (
        ("image", "FILE", "show the model this image; may be repeated"),
        ("file", "PATH", "point the model to this file; may be repeated"),
    ):
        parser.add_argument(f"--{name}", metavar=metavar, action="append", default=[], help=text)


def _session(parser: argparse.ArgumentParser, default: str | None = None) -> None:
    if default is None:
        parser.add_argument("session", metavar="SESSION", help=SESSION_HELP)
    else:
        text = f"{SESSION_HELP}; default: {default or 'all'}"
        parser.add_argument("session", metavar="SESSION", nargs="?", default=default, help=text)


def _seq(text: str) -> int:
    """A `seq`: 0 or more."""
    number = int(text)
    if not 0 <= number < 1 << 62:
        raise ValueError(text)
    return number


_seq.__name__ = "number of an event"
"""argparse puts this into its message: `invalid number of an event value: …`."""


def _positive(text: str) -> int:
    """A whole number from 1 on."""
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number


_positive.__name__ = "positive number"


class _Parser(argparse.ArgumentParser):
    """A parser that repeats words of the command line harmlessly."""

    def error(self, message: str) -> NoReturn:
        """Print the usage and what is wrong, and end."""
        from tiller_client.text import sanitized

        super().error(sanitized(message))


class _Version(argparse.Action):
    """Looks the version up when it is asked for; the look-up costs more than all the rest."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str) -> None:  # noqa: A002
        super().__init__(option_strings, dest, nargs=0, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *_rest: object) -> None:
        """Print the version of this installation and end."""
        from importlib.metadata import version

        sys.stdout.write(f"tiller {version('tillerd')}\n")
        parser.exit()
