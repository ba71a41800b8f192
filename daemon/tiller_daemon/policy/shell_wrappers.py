"""Commands that run other commands: what stands inside `env`, `sudo`, `xargs`, `sh -c`. Pure.

A wrapper that adds no power of its own is transparent: only what is inside needs a permission. One
that does (`sudo`, `find -exec`) needs its own as well. Options that are not listed are a doubt.
"""

import itertools
import os
from collections.abc import Sequence
from typing import NamedTuple

from tiller_daemon.policy.shell_words import HARMLESS_VARIABLES, SimpleCommand, Word, word_set


class Unwrapped(NamedTuple):
    """What a command runs besides itself.

    `inner` are commands, `script` is a text for a shell. With `replaces` the command itself needs
    no permission of its own. `doubt` says why something could not be told. The inner commands
    are run in `directory`, if one is named.
    """

    inner: tuple[SimpleCommand, ...] = ()
    script: str | None = None
    replaces: bool = False
    doubt: str = ""
    directory: str = ""


class Options(NamedTuple):
    """The options of a wrapper: alone, with a value after them, and words before the command."""

    alone: frozenset[str] = frozenset()
    valued: frozenset[str] = frozenset()
    positional: int = 0


def _options(alone: str = "", valued: str = "", positional: int = 0) -> Options:
    return Options(word_set(alone), word_set(valued), positional)


TRANSPARENT = {
    "time": _options("-p"),
    "nohup": _options(),
    "command": _options("-p"),
    "builtin": _options(),
    "exec": _options("-c -l", "-a"),
    "nice": _options("", "-n --adjustment"),
    "ionice": _options("-t", "-c -n --class --classdata"),
    "setsid": _options("-w -f --wait --fork"),
    "stdbuf": _options("", "-i -o -e --input --output --error"),
    "timeout": _options(
        "-v --verbose --foreground --preserve-status", "-k -s --kill-after --signal", 1
    ),
    "env": _options("-i - --ignore-environment", "-u --unset"),
    "xargs": _options(
        "-0 -r -t -x --null --no-run-if-empty --verbose --exit",
        "-n -P -I -L -d -s --max-args --max-procs --replace --max-lines --delimiter --max-chars",
    ),
}
POWERFUL = {
    "sudo": _options("-n -E -H -S -k -b", "-u -g -p"),
    "doas": _options("-n", "-u"),
}
SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh", "ash"})
_SHELL_FLAGS = frozenset("eluxcfv")
NEVER_CERTAIN = frozenset({"eval", "source", ".", "trap", "alias", "coproc"})
"""Builtins that run text, or change what a name runs."""

_GIT_HARMLESS = word_set(
    "--no-pager -P --no-optional-locks --literal-pathspecs --no-replace-objects"
)
_FIND_RUNS = word_set("-exec -execdir -ok -okdir")

OPAQUE = Word("", fixed=False, globs=True)
"""A word that only the run will tell, such as what `xargs` adds."""


def unwrap(command: SimpleCommand, place: str = "") -> Unwrapped:
    """What `command`, run in the directory `place`, runs besides itself; mostly nothing."""
    name = base_name(command)
    rest = command.words[1:]
    if name in NEVER_CERTAIN:
        return Unwrapped(doubt=f"it holds `{name}`")
    if name in SHELLS:
        return _shell(rest)
    if name == "find":
        return _find(rest)
    if name == "git":
        return _git(command.words[0], rest, place)
    if name == "command" and rest and rest[0].text in ("-v", "-V"):
        return Unwrapped()
    if name in TRANSPARENT:
        return _wrapper(name, rest, TRANSPARENT[name], replaces=True, fed=command.fed)
    if name in POWERFUL:
        return _wrapper(name, rest, POWERFUL[name], replaces=False)
    return Unwrapped()


def base_name(command: SimpleCommand) -> str:
    """The name of the program without its directory."""
    return command.words[0].text.rpartition("/")[2]


def _wrapper(
    name: str, words: Sequence[Word], options: Options, *, replaces: bool, fed: Word | None = None
) -> Unwrapped:
    index = 0
    doubt = ""
    while index < len(words) and (words[index].text.startswith("-") or not words[index].fixed):
        word = words[index]
        flag, equals, _ = word.text.partition("=")
        index += 1
        if word.text == "--":
            break
        if not word.fixed or not (_knows(flag, options) or _is_number_option(name, word.text)):
            doubt = f"it holds an option of `{name}` that is not known"
        elif flag in options.valued and not equals:
            index += 1
    index += options.positional
    while name == "env" and index < len(words) and "=" in words[index].text:
        variable = words[index].text.partition("=")[0]
        if not words[index].fixed or variable not in HARMLESS_VARIABLES:
            doubt = f"it sets `{variable}`"
        index += 1
    inner = tuple(words[index:])
    if not inner:
        return Unwrapped(doubt=doubt)
    if name == "xargs":
        inner, replaced = _filled_in(words[:index], inner, fed or OPAQUE)
        doubt = doubt or replaced
    return Unwrapped((SimpleCommand(inner),), replaces=replaces and not doubt, doubt=doubt)


def _filled_in(
    options: Sequence[Word], inner: tuple[Word, ...], filling: Word
) -> tuple[tuple[Word, ...], str]:
    """The command of `xargs` with the places that it fills, and a doubt about an odd place."""
    texts = [word.text for word in options]
    if not any(text.startswith(("-I", "--replace")) for text in texts):
        return (*inner, filling), ""
    plain = "-I{}" in texts or ("-I", "{}") in itertools.pairwise(texts)
    filled = tuple(
        (filling if word.text == "{}" else OPAQUE) if "{}" in word.text else word for word in inner
    )
    return filled, "" if plain else "it holds a placeholder of `xargs` that is not `{}`"


def _knows(flag: str, options: Options) -> bool:
    """Whether an option is listed, also as `-n1` with its value joined, or as a group `-0r`."""
    if flag in options.alone or flag in options.valued or flag == "--":
        return True
    if flag.startswith("--") or flag == "-":
        return False
    return flag[:2] in options.valued or all(f"-{one}" in options.alone for one in flag[1:])


def _is_number_option(name: str, text: str) -> bool:
    return name == "nice" and text[1:].isdecimal()


def _shell(words: Sequence[Word]) -> Unwrapped:
    """`sh -c 'text'`; a shell with anything else is an ordinary command that runs a file."""
    if (words[:1] == (Word("-n"),) and len(words) == 2) or words == (Word("--version"),):
        return Unwrapped()
    index = 0
    script_follows = False
    while index < len(words) and words[index].text.startswith("-"):
        flag = words[index].text
        if flag == "-o" and index + 1 < len(words) and words[index + 1].text == "pipefail":
            index += 2
            continue
        if not words[index].fixed or not flag[1:] or not _SHELL_FLAGS.issuperset(flag[1:]):
            return Unwrapped(doubt="it holds an option of a shell that is not known")
        script_follows |= "c" in flag
        index += 1
    if not script_follows:
        return Unwrapped()
    if index >= len(words) or not words[index].fixed:
        return Unwrapped(doubt="it runs a text that is not known")
    return Unwrapped(script=words[index].text, replaces=True)


def _find(words: Sequence[Word]) -> Unwrapped:
    if not all(word.fixed for word in words):
        return Unwrapped(doubt="it holds words of `find` that are not known")
    inner: list[SimpleCommand] = []
    index = 0
    while index < len(words):
        if words[index].text in _FIND_RUNS:
            end = index + 1
            while end < len(words) and not _ends_run(words, end):
                end += 1
            run = tuple(_found(word) for word in words[index + 1 : end])
            if run:
                inner.append(SimpleCommand(run))
            index = end
        index += 1
    return Unwrapped(tuple(inner))


def _found(word: Word) -> Word:
    """A file that was found is a path and no option; within another text it may be anything."""
    return OPAQUE if "{}" in word.text and word.text != "{}" else word


def _ends_run(words: Sequence[Word], index: int) -> bool:
    text = words[index].text
    return text == ";" or (text == "+" and words[index - 1].text == "{}")


def _git(name: Word, words: Sequence[Word], place: str) -> Unwrapped:
    """The options before the subcommand: some can make any subcommand run anything."""
    index = 0
    doubt = directory = ""
    while index < len(words) and words[index].text.startswith("-"):
        flag = words[index].text
        if flag == "-C" and index + 1 < len(words) and _is_below(words[index + 1], place):
            index += 1
            directory = os.path.join(directory, words[index].text)  # noqa: PTH118 - pure
        elif flag in ("--version", "--help", "-v", "-h"):
            return Unwrapped()
        elif flag not in _GIT_HARMLESS or not words[index].fixed:
            doubt = "it holds an option of `git` that may run something"
            index += flag in ("-c", "-C", "--config-env", "--git-dir", "--work-tree", "--namespace")
        index += 1
    if index < len(words) and not words[index].fixed:
        doubt = "it holds a subcommand of `git` that is not known"
    if index == 0:
        return Unwrapped(doubt=doubt)
    inner = (SimpleCommand((name, *words[index:])),) if index < len(words) else ()
    return Unwrapped(inner, replaces=not doubt, doubt=doubt, directory=directory)


def _is_below(word: Word, place: str) -> bool:
    """Whether a directory is the current one, or a plain one below it."""
    return (bool(place) and word == Word(place)) or (
        word.fixed
        and not word.globs
        and not word.text.startswith(("/", "~", "-"))
        and ".." not in word.text
    )
