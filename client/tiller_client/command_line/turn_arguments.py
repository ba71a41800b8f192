"""Options that several verbs share, for what a turn may use. The standard library only."""

import argparse
import re

TIMEOUT_S_MAX = 31_536_000
"""A year, which every clock and timer can hold."""

SESSION_HELP = (
    "an id, a unique beginning or end of it (at least 4 characters), or: last (of this directory)"
)


def add_session(parser: argparse.ArgumentParser, default: str | None = None) -> None:
    """Add the session that a verb is about; with `default`, it may be left out."""
    if default is None:
        parser.add_argument("session", metavar="SESSION", help=SESSION_HELP)
    else:
        text = f"{SESSION_HELP}; default: {default or 'all'}"
        parser.add_argument("session", metavar="SESSION", nargs="?", default=default, help=text)


def add_sandbox(parser: argparse.ArgumentParser) -> None:
    """Add the sandbox of commands."""
    modes = ("read_only", "workspace_write", "full_access")
    parser.add_argument("--sandbox", choices=modes, help="what commands may do on this machine")


def add_rules(parser: argparse.ArgumentParser) -> None:
    """Add what decides about calls: approval and sandbox."""
    text = "what to do where no permission rule decides"
    parser.add_argument("--approve", choices=("ask", "always", "never"), help=text)
    add_sandbox(parser)


def add_choices(parser: argparse.ArgumentParser) -> None:
    """Add model, agent, variant, limits and tools; `choices` reads them."""
    parser.add_argument("-m", "--model", help="provider/model")
    parser.add_argument("--agent", help="the agent to use")
    parser.add_argument("--variant", help="such as high; for those of a model: tiller models")
    parser.add_argument(
        "--max-steps", type=positive, metavar="N", help="at most N model requests in a turn"
    )
    parser.add_argument(
        "--budget", metavar="B", help="for a turn: dollars, or tokens=N,time_s=S,cost=D,steps=N"
    )
    parser.add_argument("--tools", metavar="NAMES", help="only these tools, separated by commas")


def add_amount(parser: argparse.ArgumentParser, *, quiet: bool = True) -> None:
    """Add how much of a turn is shown; without `quiet`, only whether it is all."""
    amount = parser.add_mutually_exclusive_group()
    amount.add_argument(
        "-v",
        "--verbose",
        action="store_true",
        help="show the whole output of calls, and whole diffs",
    )
    if quiet:
        amount.add_argument(
            "--quiet", action="store_true", help="show only the answer, errors and requests"
        )


def add_attachments(parser: argparse.ArgumentParser) -> None:
    """Add what comes with an input besides its text."""
    for name, metavar, text in (
        ("image", "FILE", "attach an image; may be repeated"),
        ("file", "PATH", "mention a file to the model; may be repeated"),
    ):
        parser.add_argument(f"--{name}", metavar=metavar, action="append", default=[], help=text)


def add_prompt(parser: argparse.ArgumentParser) -> None:
    """Add the task of `exec`, and what to do with it if a turn is running already."""
    busy = parser.add_mutually_exclusive_group()
    busy.add_argument(
        "--queue", action="store_true", help="if a turn is running, queue the prompt behind it"
    )
    busy.add_argument("--wait", action="store_true", help="if a turn is running, wait for its end")
    parser.add_argument(
        "prompt",
        metavar="PROMPT",
        nargs="?",
        help="the task; if it is missing or -, stdin is the task, otherwise stdin is context",
    )


def add_ending(parser: argparse.ArgumentParser) -> None:
    """Add what ends a turn, or this program, before the turn is over."""
    parser.add_argument(
        "--timeout", type=duration, metavar="T", help="interrupt it after 90, 90s, 10m or 1h30m"
    )
    parser.add_argument(
        "--no-wait", action="store_true", help="end it if something is asked and nobody can answer"
    )
    parser.add_argument(
        "--detach", action="store_true", help="Ctrl-C, SIGTERM and SIGHUP leave it running"
    )


def duration(text: str) -> float:
    """A time in seconds: a number, or numbers with the units h, m and s."""
    problem = argparse.ArgumentTypeError(
        f"{text!r} is not a time; give seconds, such as 90, or units, such as 90s, 10m, 2h or 1h30m"
    )
    parts = re.fullmatch(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s?)?", text)
    if parts is None:
        raise problem
    hours, minutes, seconds = (float(part or 0) for part in parts.groups())
    total = (hours * 60 + minutes) * 60 + seconds
    if not 0 < total <= TIMEOUT_S_MAX:
        raise problem
    return total


def add_opening(parser: argparse.ArgumentParser) -> None:
    """Add which session a chat opens, and how it is shown."""
    parser.add_argument("-C", dest="directory", metavar="DIR", default=".", help="workspace")
    parser.add_argument(
        "-c", "--continue", dest="goes_on", action="store_true", help="go on with the last one here"
    )
    parser.add_argument("--plain", action="store_true", help="line by line; for screen readers")


def add_span(parser: argparse.ArgumentParser) -> None:
    """Add at which event to start."""
    span = parser.add_mutually_exclusive_group()
    span.add_argument(
        "--after", type=event_number, default=0, metavar="N", help="start after event N"
    )
    span.add_argument(
        "--tail",
        type=positive,
        metavar="N",
        help="start with the last N items; with --json, events",
    )


def event_number(text: str) -> int:
    """A `seq`: 0 or more."""
    number = int(text)
    if not 0 <= number < 1 << 62:
        raise ValueError(text)
    return number


event_number.__name__ = "event number"
"""argparse uses it in its message: `invalid event number value: …`."""


def positive(text: str) -> int:
    """A whole number from 1 on."""
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number


positive.__name__ = "positive number"
