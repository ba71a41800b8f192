"""What programs are for: reading, or building and testing. Pure.

A command that only seems to read runs unasked where nothing can be written; one that builds or
tests runs unasked in the workspace without a network. So these tables prove nothing and name no
options: a wrong entry costs a failed command or a question.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final, Literal

from tiller_daemon.policy.shell.command_line import SHELLS, SimpleCommand, Word, word_set

Purpose = Literal["passes_on", "reads", "builds", "unknown"]
"""`passes_on` is a command that reads no file, and that can't be made to write or run anything."""

_PASSES_ON: Final = word_set(": cd echo false pwd true")

_FILTERS: Final = re.compile(
    r"(?:cat|wc)(?: -[A-Za-z]+)*\Z|(?:head|tail)(?: -[cn] ?[+-]?\d+| -\d+)*\Z", re.ASCII
)
"""What passes on as long as it is given no file."""

_READS: Final = word_set(
    """[ [[ ack actionlint ag alias apropos arch arp ast-grep awk b2sum base32 base64 basename bat
    batcat bc black break bzcat cal cat cksum clang-format clang-tidy cloc cmp codespell
    column comm continue csplit cut date declare df diff diffstat dig dir dirname dmesg
    dotenv-linter dpkg-query du egrep eslint exit expand export expr factor fd fdfind fgrep
    file find flake8 fmt fold free gawk getconf getent getopts git-grep gofmt grep groups
    gunzip gzip hadolint hash head hexdump history hostname hostnamectl iconv id ifconfig
    isort jobs join jq kill last ldconfig ldd less let local locale locate look ls
    lsb_release lsblk lscpu lsof man mapfile markdownlint mawk md5 md5sum mdfind mlr more
    mount nawk nl nm nproc ntpq numfmt objdump od otool paste pathchk pgrep pidof pr
    prettier printenv printf ps pstree pt ptx pycodestyle pydocstyle pyflakes pylint read
    readarray readelf readlink readonly realpath return rev rg ripgrep rubocop ruff rustfmt
    sar scc sdiff sed seq set sha1sum sha224sum sha256sum sha384sum sha512sum shasum
    shellcheck shfmt shift shopt size sleep sort ss stat strings stty stylelint sum sw_vers
    sysctl tac tail tar tasklist test tldr tokei top tput tr tree tsort tty type typeset
    ulimit umask uname unexpand uniq unset unzip uptime users vdir vmstat vulture w wait wc
    whatis whereis which who whoami xmllint xq xxd xzcat yamllint yq zcat zgrep zipinfo
    zstdcat"""
)
"""Programs that print, search, compare, or check a file's form. Formatters are among them: where
nothing can be written they can only check."""

_READS_BY_SUBCOMMAND: Final = word_set(
    """bundle.list cargo.--list cargo.fmt cargo.help cargo.locate-project cargo.metadata cargo.pkgid
    cargo.tree cargo.version composer.show composer.validate conda.list dart.format gem.list
    git.annotate git.bisect.log git.blame git.branch git.cat-file git.check-attr
    git.check-ignore git.cherry git.config git.count-objects git.describe git.diff
    git.diff-files git.diff-index git.diff-tree git.for-each-ref git.fsck git.grep
    git.hash-object git.help git.log git.ls-files git.ls-tree git.merge-base git.merge-tree
    git.name-rev git.notes.list git.notes.show git.range-diff git.reflog git.remote
    git.rev-list git.rev-parse git.shortlog git.show git.show-branch git.show-ref
    git.stash.list git.stash.show git.status git.submodule.status git.symbolic-ref git.tag
    git.var git.verify-commit git.version git.whatchanged git.worktree.list go.doc go.env
    go.fmt go.help go.list go.mod.graph go.mod.verify go.mod.why go.version mix.format
    node.--check npm.config.get npm.config.list npm.explain npm.list npm.ls npm.pkg.get
    npm.prefix npm.root php.-l pip.check pip.config.get pip.config.list pip.freeze
    pip.list pip.show pip3.freeze pip3.list pip3.show pnpm.list pnpm.ls pnpm.why poetry.check
    poetry.env.info poetry.env.list poetry.show python.-V ruby.-c rustc.--print rustup.show
    rustup.toolchain.list terraform.fmt terraform.validate uv.pip.check uv.pip.freeze
    uv.pip.list uv.pip.show uv.pip.tree uv.python.find uv.python.list uv.tree uv.version
    yarn.list yarn.why"""
)

_READS_ALONE: Final = frozenset({"git", "npm.run"})
"""Without anything else they say what they can do."""

_TARGET: Final = re.compile(
    r"(?!.*(?:fix|write|update|deploy|publish|release|clean|install|format|push|migrate|drop))"
    r"(?:(?:unit|type|e2e|integration|ci)[:_-]?)?(?:test|tests|check|checks|build|lint|all|compile"
    r"|typecheck|type-check|types|tsc|unit|spec|verify|assemble|coverage)(?:[:_-][\w:-]+)?\Z"
)
"""What people call a task that builds or tests."""

_BUILDS: Final = word_set(
    """ant bandit basedpyright bats bazel.build bazel.test bun.test cargo.b cargo.bench cargo.build
    cargo.c cargo.check cargo.clippy cargo.doc cargo.llvm-cov cargo.nextest cargo.t cargo.test
    cc clang clang++ cmake.--build cmake.-B cmake.-S compileall composer.test coverage.report
    coverage.run cppcheck ctest dart.analyze dart.test deno.check deno.lint deno.test doctest
    dotnet.build dotnet.test flutter.analyze flutter.test g++ gcc go.build go.test go.vet
    golangci-lint gotestsum hatch.test hspec jasmine javac jest json.tool lint-imports
    meson.compile meson.test mix.compile mix.test mocha mypy node.--test nox npm.t npm.test
    php.artisan.test phpunit pnpm.t pnpm.test py.test py_compile pyre pyrefly pyright pytest
    python.manage.py.check python.manage.py.test rspec site staticcheck swift.build swift.test
    sysconfig timeit tox tsc ty unittest vitest yarn.test zig.test"""
)

_RUN_TARGETS: Final = word_set(
    """bun.run composer composer.run deno.task gmake gradle gradlew hatch.run invoke just mage make
    mvn mvnw ninja npm.run npm.run-script nx pnpm pnpm.run poe rake sbt task tox.run turbo
    turbo.run yarn yarn.run zig zig.build"""
)
"""Programs that run a task by its name; each of the names has to be that of a build or a test."""

_RUN_DEFAULT_TARGET: Final = frozenset({"make", "gmake", "ninja", "just"})

_RUNNERS: Final = word_set(
    """bundle.exec bunx coverage.run hatch.run npm.exec npx pdm.run pipenv.run pnpm.dlx pnpm.exec
    pnpx poetry.run python.-m rye.run uv.run uvx yarn.exec"""
)
"""Programs that run a tool of the project, which stands behind them."""

_TRANSPARENT: Final = word_set(
    """builtin command env exec ionice nice nohup setsid stdbuf time timeout xargs"""
)
"""Wrappers that only add how a command runs; what it is for is up to the command in it."""

_OWN_ARGUMENT: Final = re.compile(r"-|\d+(?:\.\d+)?[smhd]?\Z|\w+=|\{\}\Z|\Z")
"""Words of a wrapper, and not the name of the command in it."""

_PLACED: Final = frozenset(
    [
        "-C",
        "-c",
        "--prefix",
        "--cwd",
        "--dir",
        "--directory",
        "--filter",
        "-F",
        "--workspace",
        "--git-dir",
        "--work-tree",
        "-f",
        "--file",
    ]
)
"""Options that stand before a subcommand with a value of their own."""

_ASKS_ABOUT_ITSELF: Final = word_set("--version -version -V --help -h version help")

_IS_GIVEN_SCRIPT: Final = re.compile(r"-[a-z]*c\Z|-n\Z")
"""A shell that is given its script as an argument, or that only checks one."""

_CHANGES_SOURCES: Final = re.compile(r"--(?:fix|write|update|in-place|add-noqa|allow-dirty)|-u\Z")
"""Options by which a check becomes a change."""


def purpose_of(command: SimpleCommand, functions: frozenset[str] = frozenset()) -> Purpose:
    """What a command is for; `functions` are names that the line itself defines."""
    name = command.name
    if not name:
        return "unknown"
    if name in functions:
        return "reads"
    if name in _TRANSPARENT and [word.text for word in command.words[1:2]] != ["-v"]:
        inner = _inner(command)
        return purpose_of(inner, functions) if inner else "reads"
    if name == "command":
        return "reads"
    arguments = [word.text for word in command.words[1:]]
    if arguments[:1] and (arguments[0] in _ASKS_ABOUT_ITSELF or arguments == ["-v"]):
        return "reads"
    if name in SHELLS and arguments and _IS_GIVEN_SCRIPT.match(arguments[0]):
        return "reads"  # What is in the script counts by itself.
    if _passes_on(name, command):
        return "passes_on"
    return _purpose_by_subcommand(name, command)


def _passes_on(name: str, command: SimpleCommand) -> bool:
    return name in _PASSES_ON or (not command.fed and _FILTERS.match(command.text) is not None)


def _inner(command: SimpleCommand) -> SimpleCommand | None:
    """The command in a transparent wrapper."""
    for one in command.inner():
        if not _OWN_ARGUMENT.match(one.words[0].text):
            return one
    return None


def _purpose_by_subcommand(name: str, command: SimpleCommand) -> Purpose:
    for phrase, rest in _phrases(name, command.words[1:]):
        if phrase in _RUN_TARGETS and _are_targets(phrase, rest):
            return "builds"
        if phrase in _RUNNERS and (inner := _tool(rest)):
            return purpose_of(inner)
        if phrase in _BUILDS:
            changes = any(_CHANGES_SOURCES.match(word.text) for word in rest)
            return "unknown" if changes else "builds"
        if phrase in _READS_BY_SUBCOMMAND or (phrase in _READS_ALONE and not rest):
            return "reads"
    return "reads" if name in _READS else "unknown"


def _phrases(name: str, arguments: Sequence[Word]) -> Iterator[tuple[str, Sequence[Word]]]:
    """The name with its next words, the longest first, and what stands behind them.

    Options between them are passed over, and tried as a word of their own (`node --test`).
    """
    if name.startswith(("python", "pypy")):
        name = "python"
    subcommands: list[tuple[str, Sequence[Word]]] = []
    passed_over: list[tuple[str, Sequence[Word]]] = []
    skip = False
    for index, word in enumerate(arguments):
        rest = arguments[index + 1 :]
        if skip or not word.fixed:
            skip = False
            continue
        if word.text.startswith("-"):
            if not subcommands:
                passed_over.append((f"{name}.{word.text}", rest))
            skip = word.text in _PLACED
            continue
        before = subcommands[-1][0] if subcommands else name
        subcommands.append((f"{before}.{word.text}", rest))
        if len(subcommands) == 2:
            break
    yield from reversed(subcommands)
    yield from passed_over
    yield name, arguments


def _tool(words: Sequence[Word]) -> SimpleCommand | None:
    """The tool behind `npx`, `uv run` or `python -m`."""
    for index, word in enumerate(words):
        if not word.text.startswith("-"):
            return SimpleCommand(tuple(words[index:]))
        if word.text == "-m":
            return SimpleCommand((Word("python"), *words[index:]))
    return None


def _are_targets(phrase: str, words: Sequence[Word]) -> bool:
    """Whether the operands are all names of tasks that build or test."""
    operands: list[str] = []
    skip = False
    for word in words:
        if word.text == "--":
            break
        if skip or word.text.startswith("-") or "=" in word.text:
            skip = word.text in _PLACED and not skip
        elif not word.text.isdecimal():
            operands.append(word.text)
    if not operands:
        return phrase in _RUN_DEFAULT_TARGET
    changes = any(_CHANGES_SOURCES.match(word.text) for word in words)
    return not changes and all(_TARGET.match(one.rpartition(":")[2] or one) for one in operands)
