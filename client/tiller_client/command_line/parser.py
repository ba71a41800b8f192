"""An argument parser that suggests corrections, checks values, and prints messages safely.

Imports the standard library only, as every start needs this module.
"""

import argparse
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn

from tiller_client.command_line.values import (
    MAY_BE_BYTES,
    MAY_BE_EMPTY,
    NEEDS_UTF8,
    as_utf8,
    shown_bytes,
)
from tiller_client.streams import put

DESCRIPTION = "Talk to tillerd, the daemon that owns your coding-agent sessions."
EPILOG = """\
first steps: tiller demo · tiller init · tiller exec "what is in this directory?" · tiller doctor
exit status: 0 done, 1 failed, 2 wrong usage; exec: 3 blocked, 4 limit reached, 124 timed out,
130 interrupted"""

RPC_EPILOG = """\
stdin:  {"submit": {"op": {"type": "user_input", …}, "id": ID}, "tag": 1}
        {"follow": SESSION, "after": N}   {"unfollow": SESSION}   {"follow": "daemon"}
stdout: {"state": "connected", …}   {"answer": {…}, "tag": 1}   {"event": {…}}
        {"caught_up": …}   {"unfollowed": …}   {"notification": …}   {"error": …}
each line is a JSON object, described by tiller schema; rpc ends when stdin does; see docs/cli.md"""

ID_ON_HOST = re.compile(r"([A-Za-z0-9][A-Za-z0-9_.-]*):([A-Za-z0-9_-]+)")
"""An id on another host, such as `box:8K2Q`. A prompt that stands in place of an id is none."""

ID_ARGUMENTS = ("session", "request", "of")
"""The names of arguments that hold ids of sessions and requests."""

VERB_SIMILARITY_MIN = 0.65
"""Just so low that two letters of a verb with three letters may be exchanged."""


class Parser(argparse.ArgumentParser):
    """A parser whose error messages are safe to print on a terminal."""

    intermixed = False
    """Whether options may stand between operands, some of which are optional."""

    def flag(self, name: str, text: str) -> None:
        """Add an option without a value; help shows `text`."""
        self.add_argument(name, action="store_true", help=text)

    def option(
        self, name: str, metavar: str, text: str, kind: Callable[[str], object] = str
    ) -> None:
        """Add an option with a value, which `kind` reads; help shows `text`."""
        self.add_argument(name, metavar=metavar, type=kind, help=text)

    def parse_known_args(  # type: ignore[override] - a subset of the original's types
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse the known arguments; exit with a suggestion if an option is misspelt."""
        namespace = namespace or argparse.Namespace()
        if self.intermixed:
            # The method below parses twice with this parser: the options, then the operands.
            self.intermixed = False
            return self.parse_known_intermixed_args(args, namespace)
        parsed, unknown = super().parse_known_args(args, namespace)
        for word in unknown:
            option = word.partition("=")[0]
            if option.startswith("--") and (
                suggestion := similar(option, list(self._option_string_actions))
            ):
                self.error(f"there is no option {option}; did you mean {suggestion}?")
        return parsed, unknown

    def _get_values(self, action: argparse.Action, arg_strings: list[str]) -> object:
        """Convert the words of one option or operand; exit if a word is empty or not UTF-8."""
        if action.nargs not in (argparse.PARSER, argparse.REMAINDER):
            arg_strings = [self._checked(action, word) for word in arg_strings]
        return super()._get_values(action, arg_strings)  # type: ignore[misc] - not in the stubs

    def _checked(self, action: argparse.Action, word: str) -> str:
        name = "/".join(action.option_strings) or str(action.metavar or action.dest)
        if not word and action.type not in MAY_BE_EMPTY:
            self.error(
                f"the value of {name} is empty; if it comes from a shell variable, check that the "
                "variable is set"
            )
        if action.type in MAY_BE_BYTES:
            return word
        try:
            return as_utf8(word)
        except UnicodeDecodeError:
            self.error(f"the value of {name}, {shown_bytes(word)}, {NEEDS_UTF8}")

    def _print_message(self, message: str, file: object = None) -> None:
        """Write help or an error; argparse would ignore a failure to write."""
        if message:
            put(sys.stdout if file is sys.stdout else sys.stderr, message)

    def error(self, message: str) -> NoReturn:
        """Print the usage and the error, then exit."""
        from tiller_client.rendering.text import sanitized

        super().error(sanitized(message))


def take_host(words: list[str]) -> str | None:
    """Remove the option `--host` before the verb; returns its value, "" if the value is missing."""
    option, equals, value = words[0].partition("=") if words else ("", "", "")
    if option != "--host":
        return None
    del words[0]
    if equals:
        return value
    return words.pop(0) if words else ""


def set_host(parser: argparse.ArgumentParser, parsed: argparse.Namespace, host: str) -> None:
    """Set `host` to the value of `--host`, or to the label that ids such as `box:8K2Q` begin with.

    Removes the label from the ids, and sets `has_label`. Exits if there are several hosts.
    """
    labels = {host} if host else set[str]()

    def bare(word: str) -> str:
        label, identifier = found.groups() if (found := ID_ON_HOST.fullmatch(word)) else ("", word)
        if label or not host:
            labels.add(label)
        return identifier

    for name in ID_ARGUMENTS:
        value: str | list[str] | None = getattr(parsed, name, None)
        if value:
            bared = list(map(bare, value)) if isinstance(value, list) else bare(value)
            setattr(parsed, name, bared)
    if len(labels) > 1:
        parser.error("these ids are on several hosts; a verb uses one host at a time")
    parsed.host = next(iter(labels), "")
    parsed.has_label = bool(parsed.host) and not host


def similar(word: str, known: Sequence[str], similarity_min: float = 0.6) -> str:
    """Return the known word that is most similar to `word`; empty if none is similar."""
    from difflib import SequenceMatcher, get_close_matches

    def closeness(one: str) -> tuple[float, int]:
        # `lgo` is as similar to `logout` as to `log`.
        return SequenceMatcher(None, one, word).ratio(), -abs(len(one) - len(word))

    return max(get_close_matches(word, known, 3, similarity_min), key=closeness, default="")


def require_verb(
    parser: argparse.ArgumentParser,
    words: Sequence[str],
    verbs: Sequence[str],
    helps: Callable[[], Mapping[str, str]],
) -> None:
    """Exit with a suggestion if the first word is not a verb; `helps` returns each verb's help."""
    word = next(iter(words), "-")
    if word in verbs or word.startswith("-"):
        return
    if meant := _meant_verb(word, helps()):
        hint = f"did you mean: tiller {meant}?"
    else:
        hint = "see: tiller --help"
    parser.error(f"there is no verb {word!r}; {hint}")


def _meant_verb(word: str, helps: Mapping[str, str]) -> str:
    """Return the verb that is spelled like a word, or the only one whose help has the word."""
    has = [verb for verb, text in helps.items() if word in text.replace(",", " ").split()]
    return similar(word, list(helps), VERB_SIMILARITY_MIN) or (has[0] if len(has) == 1 else "")
