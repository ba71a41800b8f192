"""Options that several verbs share, for what a turn may use. The standard library only."""

import argparse

APPROVE_HELP = "what to do where no permission rule decides"


def add_sandbox(parser: argparse.ArgumentParser) -> None:
    """Add the sandbox of commands."""
    modes = ("read_only", "workspace_write", "full_access")
    parser.add_argument("--sandbox", choices=modes, help="what commands may do on this machine")


def add_rules(parser: argparse.ArgumentParser) -> None:
    """Add what decides about calls: approval and sandbox."""
    parser.add_argument("--approve", choices=("ask", "always", "never"), help=APPROVE_HELP)
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
        "-v", "--verbose", action="store_true", help="show all that calls return, and whole diffs"
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


def positive(text: str) -> int:
    """A whole number from 1 on."""
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number


positive.__name__ = "positive number"
