"""The options of verbs about the fleet. Imports the standard library only."""

import re
from argparse import ArgumentTypeError
from collections.abc import Callable

from tiller_client.command_line.parser import Parser
from tiller_client.command_line.turn_arguments import positive

TASK_HELP = "a task's id, or its end"

UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def duration(word: str) -> float:
    """Read a duration such as `90s`, `10m`, `2h` or `1d`; return seconds."""
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([smhd])", word)
    if not found:
        raise ArgumentTypeError(f"{word!r} is no duration such as 90s, 10m, 2h or 1d")
    return float(found[1]) * UNITS_S[found[2]]


def dollars(word: str) -> float:
    """Read a positive amount of US dollars."""
    try:
        amount = float(word.removeprefix("$"))
    except ValueError:
        amount = 0.0
    if not amount > 0:
        raise ArgumentTypeError(f"{word!r} is no amount of US dollars such as 2.50")
    return amount


def task_id(word: str) -> str:
    """Read an id that is given for a new task."""
    if not re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,63}", word):
        raise ArgumentTypeError(
            f"{word!r} is no id for a task; use up to 64 of a-z, 0-9, - and _, "
            "beginning with a letter or a digit"
        )
    return word


def add_fleet_actions(parser: Parser, verb: Callable[..., Parser]) -> None:
    """Add the actions of `tiller fleet`; `verb` makes the parser of each."""
    add = parser.add_subparsers(
        title="actions", metavar="ACTION", dest="action", prog=parser.prog, required=True
    ).add_parser
    one = verb(add, "run", "let any host of the fleet work on a task")
    one.option("--repo", "URL[@REF]", "the repository, and a branch, tag or commit; required")
    one.option("--dir", "DIR", "work in this directory of the repository")
    one.add_argument(
        *("--label", "-l"), action="append", default=[], help="only on hosts with this label"
    )
    number = one.add_mutually_exclusive_group()
    number.add_argument("--n", metavar="N", type=positive, help="submit the task N times")
    number.add_argument(
        "--id",
        metavar="ID",
        type=task_id,
        help="the task's id; submitted again, the same task is only printed",
    )
    one.option("--budget", "USD", "stop after spending so many US dollars", dollars)
    one.option("--model", "MODEL", "the model")
    one.option("--agent", "AGENT", "the agent")
    one.add_argument(
        "--approve",
        choices=("never", "ask", "always"),
        default="never",
        help="if a call needs approval; default: never, with commands only in the sandbox",
    )
    one.flag("--push", "push the branch to the repository; default: keep it for `fleet fetch`")
    one.option("--retry", "N", "if its host is lost, run it again up to N times", positive)
    one.flag("--wait", "wait for the end")
    one.add_argument("prompt", metavar="PROMPT", help="what to do, or - to read it from stdin")
    verb(add, "ls", "list hosts and open tasks").flag("--all", "include tasks that have ended")
    verb(add, "status", "show a task").add_argument("task", metavar="TASK", help=TASK_HELP)
    one = verb(add, "logs", "print what a session has published, also if its host is away")
    one.flag("--follow", "go on with new events")
    one.add_argument("task", metavar="TASK|SESSION@HOST", help="a task or a session")
    one = verb(add, "fetch", "get a task's branch into this repository")
    one.add_argument("task", metavar="TASK", help=TASK_HELP)
    one = verb(add, "cancel", "stop tasks")
    one.add_argument("tasks", metavar="TASK", nargs="+", help=TASK_HELP)
    one = verb(add, "drain", "let a host take no more tasks")
    one.flag("--undo", "let it take tasks again")
    one.add_argument("name", metavar="HOST", help="its name in the fleet")
    one = verb(add, "send", "send a message to a session on another host")
    one.option("--wait", "TIME", "if the host is away, let the broker keep it so long", duration)
    one.add_argument("target", metavar="SESSION@HOST")
    one.add_argument("text", metavar="TEXT", help="the message, or - to read it from stdin")
    one = verb(add, "key", "make a key for the team, which encrypts all content")
    one.add_argument("file", metavar="FILE", help="a new file")
