"""Makes the patterns that the answer `always` adds to the rules of a session. Pure.

A pattern keeps the words that name an action of a program, such as `npm test *`. For a program that
is not in the table, or that can run anything, the pattern is the exact command.
"""

import re
from typing import Final

from tiller_daemon.policy import globs
from tiller_daemon.policy.shell.command_line import SimpleCommand, parse
from tiller_daemon.policy.shell.network import is_known
from tiller_daemon.policy.shell.programs import find_program, word_set
from tiller_daemon.policy.shell.purposes import purpose_of

_RUNS_ANYTHING: Final = word_set(
    """python python3 node ruby perl php lua sh bash dash zsh ksh deno bun sudo doas env xargs eval
    run exec config rebase bisect filter-branch submodule"""
)
"""Programs and subcommands that may run anything; a pattern must not end in one of them."""

_INTERPRETERS: Final = word_set(
    "sh bash dash zsh ksh fish python python3 node ruby perl php lua deno bun pwsh tclsh"
)
"""Programs that run code from their standard input if no argument names a file."""

_LITERAL_WORD: Final = re.compile(r"[A-Za-z0-9_@:+./-]+\Z")


def always_patterns(line: str) -> tuple[str, ...]:
    """Return a pattern for each command that needs a rule before the line may run.

    If every command only reads, the patterns are the exact commands. There are no patterns if no
    rule could cover the line, or if a rule would allow any code piped into an interpreter.
    """
    parsed = parse(line)
    if not parsed.plain or parsed.changes or any(map(_runs_input, parsed.commands)):
        return ()
    purposes = [(command, purpose_of(command)) for command in parsed.commands]
    if all(purpose in ("reads", "passes_on") for _, purpose in purposes):
        return tuple(dict.fromkeys(globs.escape(command.text) for command, _ in purposes))
    # Rules have to cover every command of the line, except those that only pass on their input.
    needed = [command for command, purpose in purposes if purpose != "passes_on"]
    return tuple(dict.fromkeys(map(_pattern_of, needed)))


def always_network_patterns(line: str) -> tuple[str, ...]:
    """Return a pattern for each command that needs a rule before the line may use the network.

    There are no patterns if the line has a command that is not known to need the network, because
    a rule would open the network to that command on every other line. Nor are there any for a
    wrapper such as `xargs`, whose command gets its arguments from elsewhere.
    """
    commands = parse(line).commands
    known = all(is_known(each) or purpose_of(each) == "passes_on" for each in commands)
    return always_patterns(line) if known else ()


def _runs_input(command: SimpleCommand) -> bool:
    """Whether a command has an interpreter without a file, such as `sh`, `bash -s` or `node -`."""
    return any(
        one.name in _INTERPRETERS and all(word.text.startswith("-") for word in one.words[1:])
        for one in (command, *command.inner())
    )


def _pattern_of(command: SimpleCommand) -> str:
    words = [word.text if word.fixed else "" for word in command.words]
    # Rules compare words as they are written: `/tmp/git` is not the program `git`.
    program = find_program(words[0])
    keeps_three = set(words[1:2]) & set(program.always_three.split())
    count = 3 if keeps_three else program.always_words
    naming = words[:count]
    is_named = count and len(naming) == count and all(map(_LITERAL_WORD.match, naming))
    options = [word for word in naming if word.startswith("-") and word != "-m"]
    runs_anything = count > 1 and naming[-1] in _RUNS_ANYTHING
    if not is_named or options or command.assigns or runs_anything:
        return globs.escape(command.text)
    return globs.escape(" ".join(naming)) + " *"
