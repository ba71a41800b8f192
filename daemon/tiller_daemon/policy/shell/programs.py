"""The table of programs, by which command lines are judged.

To add a program, add a record here and lines in `tests/policy/agent_commands.txt`. No record is
trusted: if a command seems only to read, nothing can be written where it runs, and if it seems to
build or test, it runs in the workspace without a network. So the table lists no options, and a
wrong record costs a question or a failed command.
"""

from typing import Final, Literal, NamedTuple

Use = Literal["passes_on", "reads", "builds", "runs_task", "runs_tool", "runs_command", "unknown"]
"""What a program is for.

- `passes_on`: reads no file, and can't be made to write or run anything.
- `reads`: prints, searches, compares, or checks the form of a file.
- `builds`: builds, tests or checks the project.
- `runs_task`: runs the project's tasks by their names, as `make` and `npm run` do.
- `runs_tool`: runs one of the project's tools, whose name follows, as `npx` and `python -m` do.
- `runs_command`: changes only how the command after it runs, as `time` and `env` do.
"""


class Program(NamedTuple):
    """The record of a program; the defaults are for an unknown program.

    Subcommands are separated by blanks, and the words of one subcommand by dots.
    """

    use: Use = "unknown"
    """What the program is for, unless a subcommand below says otherwise."""

    reads: str = ""
    """Subcommands that read."""

    builds: str = ""
    """Subcommands that build or test."""

    tasks: str = ""
    """Subcommands that run tasks by their names."""

    tools: str = ""
    """Subcommands that run a tool whose name follows."""

    lists_alone: tuple[str, ...] = ()
    """Subcommands that only print a list if nothing follows; "" stands for the program alone."""

    default_task: bool = False
    """Whether the program builds when no task is named."""

    filter_options: str | None = None
    """A regular expression for the options with which the program only passes on its input if no
    file is named; None if it always does more."""

    wraps: bool = False
    """Whether the program may run a command that is among its arguments."""

    operands: Literal["files", "pattern_first", "names", "text"] = "files"
    """The meaning of the operands. `files`: files whose content the program may show;
    `pattern_first`: a pattern or script, then such files; `names`: files of which it shows only
    names and dates; `text`: no files."""

    always_words: int = 0
    """How many words of a command the answer `always` keeps in its pattern; 0 if the pattern is the
    exact command."""

    always_three: str = ""
    """Subcommands for which the pattern keeps three words."""

    def uses_of(self, subcommand: str) -> tuple[Use, ...]:
        """Return the uses of a subcommand, the most likely first; "" is the program itself."""
        if not subcommand:
            return (self.use,)
        listed: tuple[tuple[Use, str], ...] = (
            ("runs_task", self.tasks),
            ("runs_tool", self.tools),
            ("builds", self.builds),
            ("reads", self.reads),
        )
        return tuple(use for use, subcommands in listed if subcommand in subcommands.split())


# Formatters also count as readers, because they can only check where nothing can be written.
_READERS: Final = """
    actionlint alias apropos arch arp ast-grep b2sum base32 base64 bat batcat bc break bzcat cal
    cksum clang-format clang-tidy cloc cmp codespell column comm continue csplit cut date declare
    df diffstat dig dir dmesg dotenv-linter dpkg-query du exit expand export expr factor fd fdfind
    file fmt fold free gawk getconf getent getopts git-grep gofmt groups gunzip gzip hadolint hash
    hexdump history hostname hostnamectl iconv id ifconfig jobs join kill last ldconfig ldd less
    let local locale locate look lsb_release lsblk lscpu lsof man mapfile markdownlint mawk md5
    md5sum mdfind mlr more mount nawk nl nm nproc ntpq numfmt objdump od otool paste pathchk pgrep
    pidof pr printenv ps pstree pt ptx pycodestyle pydocstyle pyflakes read readarray readelf
    readlink readonly realpath return rev ripgrep rubocop rustfmt sar scc sdiff seq set sha1sum
    sha224sum sha256sum sha384sum sha512sum shasum shellcheck shfmt shift shopt size sleep sort ss
    strings stty stylelint sum sw_vers sysctl tac tar tasklist tldr tokei top tput tr tsort tty
    type typeset ulimit umask uname unexpand uniq unset unzip uptime users vdir vmstat vulture w
    wait whatis whereis which who whoami xmllint xq xxd xzcat yamllint yq zcat zgrep zipinfo
    zstdcat"""

_BUILDERS: Final = """
    ant bandit bats cc clang clang++ compileall cppcheck doctest g++ gcc golangci-lint gotestsum
    hspec jasmine javac json.tool mocha phpunit py.test py_compile pyre pyrefly rspec site
    staticcheck sysconfig timeit ty unittest"""

_GIT_READS: Final = """
    annotate bisect.log blame branch cat-file check-attr check-ignore cherry config count-objects
    describe diff diff-files diff-index diff-tree for-each-ref fsck grep hash-object help log
    ls-files ls-tree merge-base merge-tree name-rev notes.list notes.show range-diff reflog remote
    rev-list rev-parse shortlog show show-branch show-ref stash.list stash.show status
    submodule.status submodule.summary symbolic-ref tag var verify-commit version whatchanged
    worktree.list"""

_LETTERS: Final = r"(?: -[A-Za-z]+)*"
_COUNTS: Final = r"(?: -[cn] ?[+-]?[0-9]+| -[0-9]+)*"

TABLE: Final[dict[str, Program]] = {
    # Programs that read.
    ": cd false pwd true": Program("passes_on"),
    "echo": Program("passes_on", operands="text"),
    "printf": Program("reads", operands="text"),
    "[ [[ basename dirname stat test": Program("reads", operands="names"),
    "ls": Program("reads", operands="names", always_words=1),
    "ack ag awk egrep fgrep jq sed": Program("reads", operands="pattern_first"),
    "grep rg": Program("reads", operands="pattern_first", always_words=1),
    "cat wc": Program("reads", filter_options=_LETTERS, always_words=1),
    "head tail": Program("reads", filter_options=_COUNTS, always_words=1),
    "find": Program("reads", wraps=True, always_words=1),
    # The script of a virtual environment changes only variables of the shell.
    ". source": Program(builds=".venv/bin/activate env/bin/activate venv/bin/activate"),
    "black diff eslint flake8 isort prettier pylint ruff tree": Program("reads", always_words=1),
    _READERS: Program("reads"),
    # Programs that build and test.
    "basedpyright ctest jest lint-imports mypy nox pyright pytest tsc vitest": Program(
        "builds", always_words=1
    ),
    "tox": Program("builds", tasks="run", always_words=1),
    _BUILDERS: Program("builds"),
    # Programs that run the project's tasks and tools.
    "just make": Program("runs_task", default_task=True, always_words=2),
    "gmake ninja": Program("runs_task", default_task=True),
    "gradle mvn rake": Program("runs_task", always_words=2),
    "gradlew invoke mage mvnw nx poe sbt task": Program("runs_task"),
    "./gradlew": Program(always_words=2),  # A rule needs the path as it is written.
    "turbo": Program("runs_task", tasks="run"),
    "zig": Program("runs_task", tasks="build", builds="test"),
    "npx": Program("runs_tool", always_words=2),
    "bunx pnpx uvx": Program("runs_tool"),
    "pdm pipenv rye": Program(tools="run"),
    # Programs that run other commands.
    "builtin command env exec ionice nice nohup setsid stdbuf time timeout xargs": Program(
        "runs_command", wraps=True
    ),
    "chroot chrt doas sudo watch": Program(wraps=True),
    # Programs whose use depends on the subcommand.
    "git": Program(
        reads=_GIT_READS,
        lists_alone=("",),
        always_words=2,
        always_three="remote stash worktree",
    ),
    "npm": Program(
        reads="config.get config.list explain list ls pkg.get prefix root",
        builds="t test",
        tasks="run run-script",
        tools="exec",
        lists_alone=("run",),
        always_words=2,
        always_three="exec run",
    ),
    "pnpm": Program(
        "runs_task",
        reads="list ls why",
        builds="t test",
        tasks="run",
        tools="dlx exec",
        always_words=2,
        always_three="run",
    ),
    "yarn": Program(
        "runs_task",
        reads="list why",
        builds="test",
        tasks="run",
        tools="exec",
        always_words=2,
        always_three="run",
    ),
    "bun": Program(builds="test", tasks="run", always_words=2, always_three="run"),
    "deno": Program(builds="check lint test", tasks="task", always_words=2, always_three="task"),
    "node": Program(reads="--check", builds="--test"),
    "python python3": Program(
        reads="-V", builds="manage.py.check manage.py.test", tools="-m", always_three="-m"
    ),
    "pip pip3": Program(reads="check config.get config.list freeze list show", always_words=2),
    "uv": Program(
        reads="pip.check pip.freeze pip.list pip.show pip.tree python.find python.list tree "
        "version",
        tools="run",
        always_words=2,
        always_three="pip run",
    ),
    "poetry": Program(
        reads="check env.info env.list show", tools="run", always_words=2, always_three="run"
    ),
    "hatch": Program(builds="test", tasks="run", tools="run", always_words=2, always_three="run"),
    "coverage": Program(builds="report run", tools="run"),
    "conda gem": Program(reads="list"),
    "cargo": Program(
        reads="--list fmt help locate-project metadata pkgid tree version",
        builds="b bench build c check clippy doc llvm-cov nextest t test",
        always_words=2,
    ),
    "rustc": Program(reads="--print"),
    "rustup": Program(reads="show toolchain.list"),
    "go": Program(
        reads="doc env fmt help list mod.graph mod.verify mod.why version",
        builds="build test vet",
        always_words=2,
    ),
    "bazel": Program(builds="build test"),
    "cmake": Program(builds="--build -B -S"),
    "meson": Program(builds="compile test"),
    "dotnet swift": Program(builds="build test", always_words=2),
    "mix": Program(reads="format", builds="compile test", always_words=2),
    "dart": Program(reads="format", builds="analyze test"),
    "flutter": Program(builds="analyze test", always_words=2),
    "php": Program(reads="-l", builds="artisan.test"),
    "composer": Program(
        "runs_task", reads="show validate", builds="test", tasks="run", always_words=2
    ),
    "ruby": Program(reads="-c"),
    "bundle": Program(reads="list", tools="exec", always_words=2, always_three="exec"),
    "terraform": Program(reads="fmt validate", always_words=2),
    # Programs that need a question, and whose rules keep some words.
    "mkdir touch": Program(always_words=1),
    "brew kubectl": Program(always_words=2),
    "docker": Program(always_words=2, always_three="compose"),
    "gh": Program(always_words=2, always_three="issue pr run"),
}
"""The record of each program, or of each group of programs that share a record."""

UNKNOWN: Final = Program()

_PROGRAMS: Final = {name: program for names, program in TABLE.items() for name in names.split()}


def word_set(text: str) -> frozenset[str]:
    """Return the words of a text as a set."""
    return frozenset(text.split())


def find_program(name: str) -> Program:
    """Return the record of a program, or the record for unknown programs."""
    return _PROGRAMS.get(name, UNKNOWN)
