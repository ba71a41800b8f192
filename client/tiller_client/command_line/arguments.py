"""The command line: finds the verb and reads its options. What a verb does is in `verbs`.

Imports the standard library only, as every start needs this module, even `--help`.
"""

import argparse
import os
import sys
from collections.abc import Sequence

from tiller_client.command_line.parser import (
    DESCRIPTION,
    EPILOG,
    Parser,
    require_verb,
    set_host,
    take_host,
)
from tiller_client.command_line.verb_arguments import VERBS
from tiller_protocol import VERSION

ABOUT_TILLER = ("-h", "--help", "-V", "--version")
"""Options that work without a verb. Any other option without a verb belongs to `chat`."""
MISUSE = 2
"""The exit status that argparse uses."""


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the verb and its options; raises `SystemExit` after help (0) or misuse (2)."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if "_ARGCOMPLETE" in os.environ:
        from tiller_client.command_line.completion import complete

        complete(all_verbs())
    if words[:1] == ["help"]:
        words = [*words[1:], "--help"]
    host = take_host(words)
    _move_directory(words)
    has_no_verb = bool(words) and _is_for_chat(words[0])
    if has_no_verb:
        words.insert(0, "chat")
    parser = _parser(words[0] if words else "")
    if host == "" or (host or "").startswith("-"):
        parser.error("--host needs the name of a machine, as for ssh: tiller --host USER@BOX VERB")
    known = _verbs()
    require_verb(parser, words, known, _helps)
    parsed, unknown = parser.parse_known_args(words)
    if has_no_verb and parsed.session in known:
        unknown = [parsed.session]
    if unknown:
        order = "; give the verb before its options" if has_no_verb else ""
        parser.error(f"unknown: {' '.join(unknown)}{order}; see: {parsed.program} --help")
    if parsed.verb is None and _is_terminal():
        parsed = parser.parse_args(["chat"])
    if parsed.verb is None:
        parser.print_help(sys.stderr)
        parser.exit(MISUSE)
    parsed.words = words
    set_host(parser, parsed, host or "")
    return parsed


def _move_directory(words: list[str]) -> None:
    """Put `-C DIR` behind the verb that follows it, where it belongs."""
    if words[:1] == ["-C"] and words[2:3] and words[2] in _verbs():
        words[:3] = [words[2], *words[:2]]


def _is_for_chat(word: str) -> bool:
    """Whether a command line that begins with this word opens a chat: an option, or a prompt."""
    return (word.startswith("-") and word not in ABOUT_TILLER) or len(word.split()) > 1


def _is_terminal() -> bool:
    """Whether stdin and stdout are a terminal, so that a person can chat."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout))


def _parser(verb: str) -> argparse.ArgumentParser:
    """Return the parser of all verbs; if `verb` is one, only that verb's group, to save 8 ms."""
    parser = Parser(
        prog="tiller",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "-V",
        "--version",
        action="version",
        version=f"tiller {VERSION}",
        help="print the version and exit",
    )
    parser.option("--host", "USER@BOX", "use the daemon on that machine, over ssh")
    # Without `prog`, argparse would format a usage to find it, and need the terminal's width.
    add = parser.add_subparsers(
        title="verbs", metavar="VERB", dest="verb", prog="tiller"
    ).add_parser
    builders = [builder for builder, verbs in VERBS.items() if verb in verbs]
    for builder in builders or VERBS:
        builder(add)
    return parser


def all_verbs() -> argparse.ArgumentParser:
    """Return the parser of all verbs, for completion and for the man page."""
    return _parser("")


def _verbs() -> list[str]:
    return [verb for verbs in VERBS.values() for verb in verbs]


def _helps() -> dict[str, str]:
    """Return the help of each verb."""
    helps: dict[str, str] = {}

    def add(name: str, *, help: str, **_more: str) -> Parser:  # noqa: A002 - argparse's own name
        helps[name] = help
        return Parser()

    for builder in VERBS:
        builder(add)
    return helps
