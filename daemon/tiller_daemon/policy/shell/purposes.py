"""Finds the purpose of one command, by its program, subcommand and tasks in the table. Pure."""

import re
from collections.abc import Iterator, Sequence
from typing import Final, Literal

from tiller_daemon.policy.shell.command_line import SHELLS, SimpleCommand, Word
from tiller_daemon.policy.shell.programs import Program, find_program, word_set

Purpose = Literal["passes_on", "reads", "builds", "unknown"]
"""The purpose of a command. A command that `passes_on` its input reads no file, and can't be made
to write or run anything."""

_SUBCOMMAND_WORDS_MAX: Final = 2

_TASK: Final = re.compile(
    r"(?!.*(?:fix|write|update|deploy|publish|release|clean|install|format|push|migrate|drop))"
    r"(?:(?:unit|type|e2e|integration|ci)[:_-]?)?(?:test|tests|check|checks|build|lint|all|compile"
    r"|typecheck|type-check|types|tsc|unit|spec|verify|assemble|coverage)(?:[:_-][\w:-]+)?\Z"
)
"""Usual names of tasks that build or test, unless a part of the name suggests other changes."""

_OPTIONS_WITH_VALUE: Final = word_set(
    """-C -c --prefix --cwd --dir --directory --filter -F --workspace --git-dir --work-tree -f
    --file"""
)
"""Options with a value that may stand before a subcommand or a task."""

_ASKS_ABOUT_ITSELF: Final = word_set("--version -version -V --help -h version help")

_IS_GIVEN_SCRIPT: Final = re.compile(r"-[a-z]*c\Z|-n\Z")
"""Options with which a shell runs the script in its arguments, or only checks a script."""

_CHANGES_SOURCES: Final = re.compile(r"--(?:fix|write|update|in-place|add-noqa|allow-dirty)|-u\Z")
"""Options with which a check changes files."""


def purpose_of(command: SimpleCommand, functions: frozenset[str] = frozenset()) -> Purpose:
    """Return a command's purpose; `functions` are the functions that the line itself defines."""
    name = command.name
    if not name:
        return "unknown"
    if name in functions:
        return "reads"  # The commands in a function's body are judged where it is defined.
    program = find_program(name)
    if program.use == "runs_command" and [word.text for word in command.words[1:2]] != ["-v"]:
        inner = command.wrapped()
        return purpose_of(inner, functions) if inner else "reads"
    if name == "command":
        return "reads"  # `command -v` looks a program up.
    arguments = [word.text for word in command.words[1:]]
    if arguments[:1] and (arguments[0] in _ASKS_ABOUT_ITSELF or arguments == ["-v"]):
        return "reads"
    if name in SHELLS and arguments and _IS_GIVEN_SCRIPT.match(arguments[0]):
        return "reads"  # The commands in the script are judged on their own.
    if _passes_on(program, command):
        return "passes_on"
    return _purpose_by_subcommand(command)


def _passes_on(program: Program, command: SimpleCommand) -> bool:
    if program.use == "passes_on":
        return True
    if program.filter_options is None or command.fed:
        return False
    options = command.text.removeprefix(command.name)
    return re.fullmatch(program.filter_options, options) is not None


def _purpose_by_subcommand(command: SimpleCommand) -> Purpose:
    is_python = command.name.startswith(("python", "pypy"))
    program = find_program("python" if is_python else command.name)
    for subcommand, rest in subcommands(command.words[1:]):
        uses = program.uses_of(subcommand)
        if "runs_task" in uses and _are_tasks(program, rest):
            return "builds"
        if "runs_tool" in uses and (tool := _tool(rest)):
            return purpose_of(tool)
        if "builds" in uses:
            changes = any(_CHANGES_SOURCES.match(word.text) for word in rest)
            return "unknown" if changes else "builds"
        if "reads" in uses or (subcommand in program.lists_alone and not rest):
            return "reads"
    return "unknown"


def subcommands(arguments: Sequence[Word]) -> Iterator[tuple[str, Sequence[Word]]]:
    """Yield every possible subcommand, the longest first, with the words after it.

    Options are skipped at first, and then tried as subcommands themselves (`node --test`). The last
    subcommand is empty, which stands for the program alone.
    """
    found: list[tuple[str, Sequence[Word]]] = []
    options: list[tuple[str, Sequence[Word]]] = []
    skip = False
    for index, word in enumerate(arguments):
        rest = arguments[index + 1 :]
        if skip or not word.fixed:
            skip = False
            continue
        if word.text.startswith("-"):
            if not found:
                options.append((word.text, rest))
            skip = word.text in _OPTIONS_WITH_VALUE
            continue
        found.append((f"{found[-1][0]}.{word.text}" if found else word.text, rest))
        if len(found) == _SUBCOMMAND_WORDS_MAX:
            break
    yield from reversed(found)
    yield from options
    yield "", arguments


def _tool(words: Sequence[Word]) -> SimpleCommand | None:
    """Return the command of a tool after `npx`, `uv run` or `python -m`; None if there is none."""
    for index, word in enumerate(words):
        if not word.text.startswith("-"):
            return SimpleCommand(tuple(words[index:]))
        if word.text == "-m":
            return SimpleCommand((Word("python"), *words[index:]))
    return None


def _are_tasks(program: Program, words: Sequence[Word]) -> bool:
    """Whether all operands name tasks that build or test."""
    operands: list[str] = []
    skip = False
    for word in words:
        if word.text == "--":
            break
        if skip or word.text.startswith("-") or "=" in word.text:
            skip = word.text in _OPTIONS_WITH_VALUE and not skip
        elif not word.text.isdecimal():
            operands.append(word.text)
    if not operands:
        return program.default_task
    changes = any(_CHANGES_SOURCES.match(word.text) for word in words)
    return not changes and all(_TASK.match(one.rpartition(":")[2] or one) for one in operands)
