"""The patterns that the answer `always` would allow. Pure.

A pattern keeps the words that name what a program does, such as `npm test *`. A command that is not
in the table, or that runs whatever it is given, is allowed by its exact text only.
"""

import re

from tiller_daemon.policy import globs
from tiller_daemon.policy.shell.command_line import SimpleCommand, parse, word_set
from tiller_daemon.policy.shell.programs import purpose_of

_NAMED_BY = {
    1: """pytest ruff mypy pyright basedpyright tsc eslint prettier black isort flake8 pylint jest
    vitest ctest tox nox mkdir touch ls cat head tail wc grep rg find tree diff lint-imports""",
    2: """git npm pnpm yarn bun npx cargo go make pip pip3 uv poetry dotnet gradle ./gradlew mvn gh
    brew bundle rake mix terraform docker kubectl just deno composer swift flutter hatch""",
    3: """npm.run pnpm.run yarn.run bun.run uv.run uv.pip poetry.run docker.compose bundle.exec
    gh.pr gh.issue gh.run python.-m python3.-m hatch.run deno.task npm.exec git.stash git.worktree
    git.remote""",
}
_WORDS_THAT_NAME = {
    tuple(name.split(".") if not name.startswith(".") else [name]): count
    for count, names in _NAMED_BY.items()
    for name in names.split()
}

_RUNS_ANYTHING = word_set(
    """python python3 node ruby perl php lua sh bash dash zsh ksh deno bun sudo doas env xargs eval
    run exec config rebase bisect filter-branch submodule git.config"""
)
"""Words that make what follows them a program of its own, as the last of the naming words."""

_PLAIN = re.compile(r"[A-Za-z0-9_@:+./-]+\Z")


def always_patterns(line: str) -> tuple[str, ...]:
    """A pattern for each command of a line that needs a rule to run.

    If all of it only reads, the exact commands; none if a rule could not cover the line.
    """
    parsed = parse(line)
    if not parsed.plain or parsed.changes:
        return ()
    purposes = [(command, purpose_of(command)) for command in parsed.commands]
    acting = [command for command, purpose in purposes if purpose not in ("reads", "passes_on")]
    if not acting:
        return tuple(dict.fromkeys(globs.escape(command.text) for command, _ in purposes))
    # A rule has to cover the whole line, but for what only passes something on.
    needed = [command for command, purpose in purposes if purpose != "passes_on"]
    return tuple(dict.fromkeys(_pattern_of(command) for command in needed))


def _pattern_of(command: SimpleCommand) -> str:
    """The pattern for one command."""
    words = [word.text if word.fixed else "" for word in command.words]
    count = max(
        (_WORDS_THAT_NAME.get(tuple(words[:length]), 0) for length in (1, 2)),
        default=0,
    )
    naming = words[:count]
    known = count and len(naming) == count and all(_PLAIN.match(word) for word in naming)
    options = [word for word in naming if word.startswith("-") and word != "-m"]
    if not known or options or command.assigns or (count > 1 and naming[-1] in _RUNS_ANYTHING):
        return globs.escape(command.text)
    return globs.escape(" ".join(naming)) + " *"
