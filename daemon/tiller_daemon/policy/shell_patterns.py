"""What `always` would allow for a command: how many words name it. Pure.

A command that is not in the table, or that runs whatever it is given, is allowed by its exact text
only.
"""

import re

from tiller_daemon.policy import globs
from tiller_daemon.policy.shell_words import SimpleCommand, word_set

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


def pattern_of(command: SimpleCommand, text: str) -> str:
    """The pattern for one command; `text` is how rules see it."""
    words = [word.text if word.fixed and not word.globs else "" for word in command.words]
    count = max(
        (_WORDS_THAT_NAME.get(tuple(words[:length]), 0) for length in (1, 2)),
        default=0,
    )
    naming = words[:count]
    known = count and len(naming) == count and all(_PLAIN.match(word) for word in naming)
    options = [word for word in naming if word.startswith("-") and word != "-m"]
    if not known or options or (count > 1 and naming[-1] in _RUNS_ANYTHING):
        return globs.escape(text)
    return globs.escape(" ".join(naming)) + " *"
