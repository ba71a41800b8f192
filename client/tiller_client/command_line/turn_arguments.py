"""Options that several verbs share. Imports the standard library only."""

import argparse
import re

from tiller_client.command_line.parser import Parser
from tiller_client.command_line.values import path

TIMEOUT_S_MAX = 31_536_000
"""A year, which every clock and timer can hold."""

NUMBER_MAX = (1 << 62) - 1
"""The largest number of a command line, which every encoding can hold."""

SESSION_HELP = (
    "a session's id, a unique beginning or end of the id (at least 4 characters), or the word "
    "last (the most recently active session in this directory); box:ID is on the host box"
)


def add_session(parser: Parser, default: str | None = None, meaning: str = "") -> None:
    """Add the operand SESSION; it is optional with a `default`, whose `meaning` help shows."""
    if default is None:
        parser.add_argument("session", metavar="SESSION", help=SESSION_HELP)
    else:
        text = f"{SESSION_HELP}; default: {meaning or default}"
        parser.add_argument("session", metavar="SESSION", nargs="?", default=default, help=text)


def add_old_or_named(parser: Parser) -> None:
    """Add the operands SESSION, and the option that chooses old sessions instead."""
    parser.add_argument("session", metavar="SESSION", nargs="*", help=SESSION_HELP)
    text = "all sessions without activity for this time, such as 30d (days), archived ones too"
    parser.option("--older-than", "AGE", text, days)
    parser.intermixed = True


def add_directory(parser: Parser, default: str | None = ".", text: str = "workspace") -> None:
    """Add the option for the workspace."""
    parser.add_argument(
        "-C", dest="directory", metavar="DIR", type=path, default=default, help=text
    )


def add_limit(parser: Parser) -> None:
    """Add the option for how many sessions to list."""
    text = "list at most this many; default: 20"
    parser.add_argument("-n", dest="limit", type=positive, default=20, help=text)


def add_hosts(parser: Parser, text: str) -> None:
    """Add the options for all hosts; `text` says what they do in this verb."""
    parser.flag("--all", f"{text}; for hosts, see docs/remote.md")
    text = "with --all, wait at most this long for a host; default: 5s"
    parser.option("--within", "T", text, duration)


def add_states(parser: Parser) -> None:
    """Add the options that choose sessions by what they do; `states` has the chosen words."""
    for state, text in (
        ("waiting", "only sessions that wait for an answer"),
        ("working", "only sessions with a turn that is running"),
        ("failed", "only sessions whose last turn failed"),
    ):
        parser.add_argument(
            f"--{state}", dest="states", action="append_const", const=state, help=text
        )


def add_sandbox(parser: Parser) -> None:
    """Add the option for the sandbox of commands."""
    modes = ("read_only", "workspace_write", "full_access")
    parser.add_argument("--sandbox", choices=modes, help="what commands are allowed to do")


def add_rules(parser: Parser) -> None:
    """Add the options for approval and for the sandbox."""
    text = "what to do with a call that needs your approval"
    parser.add_argument("--approve", choices=("ask", "always", "never"), help=text)
    add_sandbox(parser)


def add_choices(parser: Parser) -> None:
    """Add the options for model, agent, limits and tools; `choices` reads them."""
    parser.add_argument("-m", "--model", help="the model to use, as provider/model")
    parser.add_argument("--agent", help="the agent to use")
    parser.add_argument("--variant", help="the model's variant, such as high; see: tiller models")
    parser.option("--max-steps", "N", "at most N model requests in a turn", steps)
    parser.option("--budget", "B", "limit a turn: dollars, or tokens=N,time_s=S,cost=D,steps=N")
    parser.option("--tools", "NAMES", "allow only these tools: NAME,NAME,…")


def add_amount(parser: Parser, *, quiet: bool = True) -> None:
    """Add the options for how much of a turn is shown; `quiet` adds `--quiet`."""
    amount = parser.add_mutually_exclusive_group()
    amount.add_argument(
        "-v",
        "--verbose",
        action="store_true",
        help="show the whole output of calls, and whole diffs",
    )
    if quiet:
        amount.add_argument(
            "--quiet", action="store_true", help="show only the answer, errors and questions to you"
        )


def add_attachments(parser: Parser) -> None:
    """Add the options for images and files that accompany an input."""
    for name, metavar, text in (
        ("image", "FILE", "attach an image; may be repeated"),
        ("file", "PATH", "mention a file to the model; may be repeated"),
    ):
        parser.add_argument(
            f"--{name}", metavar=metavar, type=path, action="append", default=[], help=text
        )


def add_prompt(parser: Parser) -> None:
    """Add the task of `exec`, and the option for a session that is busy."""
    parser.flag("--queue", "if a turn is running, it takes the prompt when its other work is done")
    parser.add_argument(
        "prompt",
        metavar="PROMPT",
        nargs="?",
        help="the task, with stdin as context; if PROMPT is missing or -, stdin is the task",
    )


def add_ending(parser: Parser) -> None:
    """Add the options that end a turn early, or keep it running."""
    parser.option(
        "--timeout",
        "T",
        "interrupt the turn after this time, such as 90 (seconds), 10m or 1h30m",
        duration,
    )
    patience = parser.add_mutually_exclusive_group()
    text = "wait for others: for answers, and in a busy session for the end of its turn"
    patience.add_argument("--wait", action="store_true", help=text)
    text = "end the turn if it needs an answer that nobody here can give, even if others watch"
    patience.add_argument("--no-wait", action="store_true", help=text)
    parser.flag("--detach", "on Ctrl-C, SIGTERM or SIGHUP, leave the turn running")


def duration(text: str) -> float:
    """Parse a time and return seconds; the text is a number, or numbers with units (h, m, s)."""
    problem = argparse.ArgumentTypeError(
        f"{text!r} is not a time limit; give seconds, such as 90, or units, such as 90s, 10m, 2h "
        f"or 1h30m; the limit must be more than 0 s and at most {TIMEOUT_S_MAX // 3600}h"
    )
    parts = re.fullmatch(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s?)?", text)
    if parts is None:
        raise problem
    hours, minutes, seconds = (float(part or 0) for part in parts.groups())
    total = (hours * 60 + minutes) * 60 + seconds
    if not 0 < total <= TIMEOUT_S_MAX:
        raise problem
    return total


def add_opening(parser: Parser) -> None:
    """Add the options for which session a chat opens, and how the session is shown."""
    add_directory(parser)
    parser.add_argument(
        "-c",
        "--continue",
        dest="goes_on",
        action="store_true",
        help="continue the most recently active session in this directory",
    )
    parser.flag("--plain", "print line by line, for screen readers and simple terminals")


def add_span(parser: Parser) -> None:
    """Add the options for the event to start at."""
    span = parser.add_mutually_exclusive_group()
    span.add_argument(
        "--after", type=event_number, default=0, metavar="N", help="start after event N"
    )
    span.add_argument(
        "--tail",
        type=positive,
        metavar="N",
        help="start with the last N items (with --json: the last N events)",
    )


def days(text: str) -> float:
    """Parse an age in days, such as `30d`, and return seconds."""
    if re.fullmatch(r"[1-9]\d{0,4}d", text) is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no age; give a number of days, such as 30d")
    return int(text[:-1]) * 24 * 3600.0


def event_number(text: str) -> int:
    """Parse a `seq`, the number of an event: 0 or more."""
    return _whole_number(text, 0, NUMBER_MAX)


def positive(text: str) -> int:
    """Parse a whole number, 1 or more."""
    return _whole_number(text, 1, NUMBER_MAX)


def steps(text: str) -> int:
    """Parse a limit of a turn's steps."""
    from tiller_protocol.settings import MAX_STEPS_LIMIT  # this loads msgspec, for few starts

    return _whole_number(text, 1, MAX_STEPS_LIMIT)


def _whole_number(text: str, least: int, most: int) -> int:
    try:
        number = int(text)
    except ValueError:
        number = least - 1
    if not least <= number <= most:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not valid; give a whole number from {least} to {most:,}"
        )
    return number
