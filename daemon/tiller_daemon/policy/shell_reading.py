"""Commands that provably only read: a table of programs and of what their arguments may be. Pure.

Not listed means not known to only read. Where some option writes or runs a program, the table says
which are refused, or which alone are accepted; a long option is refused under every abbreviation.
"""

import re
from collections.abc import Callable, Iterable, Sequence

from tiller_daemon.policy.shell_syntax import LOWER_NAME, SimpleCommand, Word, word_set

Check = Callable[[Sequence[Word]], bool]
"""Whether a command with these arguments only reads."""

ANY_ARGUMENTS = word_set(
    """: true false echo pwd ls dir vdir cat head tail wc nl tac rev cut tr fold expand unexpand
    paste column comm join fmt grep egrep fgrep cmp diff stat du df readlink realpath basename
    dirname md5sum sha1sum sha224sum sha256sum sha384sum sha512sum b2sum cksum sum md5 shasum od
    hexdump strings seq sleep whoami id groups uname arch nproc uptime free ps pgrep pidof which
    whereis type printenv exit return break continue cd jq getconf locale lsblk lscpu"""
)
"""Programs that write nothing and run nothing, whatever their arguments are."""

_NAMES_ONLY = word_set(
    """: true false echo printf pwd ls dir vdir stat du df readlink realpath basename dirname seq
    sleep which whereis type exit return break continue cd find fd tree test"""
)
"""Programs that show no content of the files that their arguments name."""

_NAMES_NOTHING = word_set(
    """: true false echo printf pwd basename dirname seq sleep which whereis type exit return break
    continue whoami id groups uname arch nproc uptime free ps pgrep pidof printenv getconf locale
    lsblk lscpu"""
)
"""Programs whose arguments name no file that they look at."""

_SEARCHES = frozenset({"grep", "egrep", "fgrep", "rg"})

_FIND_TESTS = word_set(
    """-name -iname -path -ipath -wholename -regex -iregex -type -xtype -size -mtime -mmin -ctime
    -cmin -atime -amin -newer -anewer -cnewer -maxdepth -mindepth -perm -user -group -uid -gid
    -links -inum -samefile -empty -readable -writable -executable -true -false -print -print0 -ls
    -prune -quit -not -a -o -and -or -depth -d -xdev -mount -follow -daystart -L -P -H -regextype
    -printf -lname -ilname -nouser -nogroup -noleaf -fstype -exec -execdir -ok -okdir"""
)
"""What `find` may be told; the commands after `-exec` are judged by themselves."""

_GIT_READS = word_set(
    """status log diff show rev-parse rev-list ls-files ls-tree cat-file blame annotate shortlog
    describe name-rev merge-base show-ref for-each-ref count-objects whatchanged grep cherry
    diff-tree diff-index diff-files check-ignore check-attr version range-diff show-branch"""
)
_GIT_REFUSED = word_set(
    "--output --ext-diff --textconv --open-files-in-pager --exec --filters --paginate --help "
    "--show-signature --output-directory"
)
_GIT_LISTS = {
    "branch": word_set("-a -r -v -vv --all --remotes --list --show-current --verbose"),
    "tag": word_set("-l --list -n --sort=-creatordate --sort=creatordate"),
    "remote": word_set("-v --verbose get-url"),
    "stash": word_set("list"),
    "worktree": word_set("list --porcelain"),
    "reflog": word_set(""),
    "config": word_set("--get --get-all --list -l --show-origin --global --local"),
}
_GIT_NEEDED = {
    "config": word_set("--get --get-all --list -l"),
    "stash": frozenset({"list"}),
    "worktree": frozenset({"list"}),
}
_GIT_TAKES_NAMES = {
    "config": word_set("--get --get-all"),
    "tag": word_set("-l --list"),
    "branch": frozenset({"--list"}),
    "remote": frozenset({"get-url"}),
}

_RG_REFUSED = ["--pre", "--pre-glob", "--hostname-bin", "--search-zip"]
_SORT_FLAG = re.compile(r"-[bdfghiMnRrVmsuzc]*(?:[kt].*)?|--(?:reverse|unique|numeric-sort)", re.S)
_SED_FLAG = re.compile(r"-[nErsuz]+")
_SED_ADDRESS = r"(?:\d+|\$|/[^/\\\n;\[]*/)"
_SED_PRINT = re.compile(rf"(?:{_SED_ADDRESS}(?:,\+?{_SED_ADDRESS})?)?[pdq=]")
_SED_REPLACE = re.compile(
    r"s([/|#,])(?:(?!\1)[^\\\n]|\\[^\n])*\1(?:(?!\1)[^\\\n]|\\[^\n])*\1[gIp0-9]*"
)
_AWK_REFUSED = re.compile(r"system|getline|[|>@]")
_VERSION = word_set("--version -V -v -version version")
_TELLS_VERSION = word_set(
    "python python3 pip pip3 node git gcc g++ clang make cmake java docker uv ruff bash sed awk"
)


def only_reads(command: SimpleCommand) -> bool:
    """Whether a simple command changes nothing and runs no other program, as far as it can be told.

    What it runs by being a wrapper is not looked at here.
    """
    name, *arguments = command.words
    if not name.fixed or name.globs:
        return False
    if name.text in ANY_ARGUMENTS:
        return True
    if len(arguments) == 1 and name.text in _TELLS_VERSION and arguments[0].text in _VERSION:
        return True
    check = _CHECKS.get(name.text)
    return check is not None and check(arguments)


def takes_unknown(command: SimpleCommand, index: int) -> bool:
    """Whether the word at `index`, which only the run will tell, can't make the command do more."""
    name = command.words[0].text
    if name in ANY_ARGUMENTS:
        return True
    word, before = command.words[index], command.words[index - 1]
    if name == "printf":
        return index > 1 and not command.words[1].text.startswith("-")
    return name == "git" and not word.globs and before.text in ("-m", "--message")


def files_shown(command: SimpleCommand) -> tuple[str, ...]:
    """The words of a reading command that may name files whose content it shows."""
    name, *arguments = (word.text for word in command.words)
    if name in _NAMES_ONLY:
        return ()
    if name in _SEARCHES and not any(word[:2] in ("-e", "-f") for word in arguments):
        pattern = next((word for word in arguments if not word.startswith("-")), "")
        arguments = [word for word in arguments if word != pattern]
    return tuple(arguments)


def places_named(command: SimpleCommand) -> tuple[Word, ...]:
    """The words of a reading command that may name files or directories it looks at.

    Unlike `files_shown` also those whose content it does not show, and words that only the run
    will tell.
    """
    name, *arguments = command.words
    if name.text in _NAMES_NOTHING:
        return ()
    if name.text in _SEARCHES and not any(word.text[:2] in ("-e", "-f") for word in arguments):
        pattern = next((word for word in arguments if not word.text.startswith("-")), None)
        arguments = [word for word in arguments if word is not pattern]
    return tuple(arguments)


def _plain(words: Sequence[Word]) -> bool:
    """Whether no word can turn into an option when the shell fills it in."""
    return all(word.fixed and not (word.globs and word.text[:1] in "*?[") for word in words)


def _refuses(words: Sequence[Word], refused: Iterable[str], letters: str = "") -> bool:
    """Whether a word is one of the long options, or a group of short ones with a letter."""
    for word in words:
        flag = word.text.partition("=")[0]
        if flag.startswith("--"):
            if len(flag) > 2 and any(one.startswith(flag) for one in refused):
                return True
        elif flag.startswith("-") and any(letter in flag for letter in letters):
            return True
    return False


def _find(words: Sequence[Word]) -> bool:
    inside_run = False
    for word in words:
        if inside_run:
            inside_run = word.text not in (";", "+")
        elif not _plain([word]) or (word.text.startswith("-") and word.text not in _FIND_TESTS):
            return False
        else:
            inside_run = word.text in ("-exec", "-execdir", "-ok", "-okdir")
    return True


def _git(words: Sequence[Word]) -> bool:
    if not words or not _plain(words):
        return False
    subcommand, *rest = words
    if subcommand.text in _GIT_READS:
        return not _refuses(rest, _GIT_REFUSED, "O")
    texts = {word.text for word in rest}
    if subcommand.text not in _GIT_LISTS:
        return False
    names = texts - _GIT_LISTS[subcommand.text]
    if any(name.startswith("-") for name in names):
        return False
    if names and not texts & _GIT_TAKES_NAMES.get(subcommand.text, frozenset()):
        return False
    needed = _GIT_NEEDED.get(subcommand.text)
    return needed is None or bool(texts & needed)


def _rg(words: Sequence[Word]) -> bool:
    return _plain(words) and not _refuses(words, _RG_REFUSED, "z")


def _fd(words: Sequence[Word]) -> bool:
    return _plain(words) and not _refuses(words, ["--exec", "--exec-batch"], "xX")


def _sort(words: Sequence[Word]) -> bool:
    flags = [word.text for word in words if word.text.startswith("-")]
    return _plain(words) and all(_SORT_FLAG.fullmatch(flag) for flag in flags)


def _uniq(words: Sequence[Word]) -> bool:
    """A second file would be written."""
    files = [word for word in words if not word.text.startswith("-")]
    flags = [word.text for word in words if word.text.startswith("-")]
    return (
        _plain(words)
        and not any(word.globs for word in words)
        and all(re.fullmatch(r"-[cdDiuz]+", flag) for flag in flags)
        and len(files) <= 1
    )


def _sed(words: Sequence[Word]) -> bool:
    """Printing, deleting and replacing on the way to the output; never `w`, `e`, `-i`."""
    if not _plain(words):
        return False
    texts = [word.text for word in words]
    scripts: list[str] = []
    index = 0
    while index < len(texts) and texts[index].startswith("-"):
        if texts[index] == "-e" and index + 1 < len(texts):
            index += 1
            scripts.append(texts[index])
        elif not _SED_FLAG.fullmatch(texts[index]):
            return False
        index += 1
    files = texts[index:]
    if not scripts:
        scripts, files = files[:1], files[1:]
    statements = [part.strip() for script in scripts for part in script.split(";")]
    return (
        bool(statements)
        and all(_SED_PRINT.fullmatch(one) or _SED_REPLACE.fullmatch(one) for one in statements)
        and not any(file.startswith("-") for file in files)
    )


def _awk(words: Sequence[Word]) -> bool:
    if not _plain(words):
        return False
    texts = [word.text for word in words]
    while texts and texts[0].startswith("-"):
        if texts[0] in ("-F", "-v"):
            del texts[:2]
        elif texts[0].startswith("-F"):
            del texts[0]
        else:
            return False
    program, *files = texts or [""]
    return (
        bool(program)
        and not _AWK_REFUSED.search(program)
        and not any(file.startswith("-") for file in files)
    )


def _date(words: Sequence[Word]) -> bool:
    known = re.compile(r"\+.*|-u|--utc|-R|-I\w*|--iso-8601(?:=\w+)?|--date=.*|-d.+", re.DOTALL)
    texts = [word.text for word in words]
    texts = [text for before, text in zip(["", *texts], texts, strict=False) if before != "-d"]
    return _plain(words) and all(known.fullmatch(text) or text == "-d" for text in texts)


def _printf(words: Sequence[Word]) -> bool:
    """With `-v` it sets a variable, whose index may run something."""
    return bool(words) and words[0].fixed and not words[0].text.startswith("-")


def _test(words: Sequence[Word]) -> bool:
    return all(word.fixed and word.text not in ("-v", "-R") for word in words)


def _tree(words: Sequence[Word]) -> bool:
    return _plain(words) and not _refuses(words, ["--output"], "oR")


def _file(words: Sequence[Word]) -> bool:
    return _plain(words) and not _refuses(
        words, ["--compile", "--uncompress", "--uncompress-noreport"], "CzZ"
    )


def _tar(words: Sequence[Word]) -> bool:
    """Lists an archive: `tar tzf x.tgz`."""
    return (
        len(words) > 1
        and _plain(words)
        and re.fullmatch(r"-?t[vzjJ]*f", words[0].text) is not None
        and not any(word.text.startswith("-") for word in words[1:])
    )


def _set(words: Sequence[Word]) -> bool:
    known = re.compile(r"-[eux]+o?|-o|pipefail")
    return bool(words) and all(word.fixed and known.fullmatch(word.text) for word in words)


def _read(words: Sequence[Word]) -> bool:
    """Into plain names: the index of an array may run something."""
    return all(word.fixed and (word.text == "-r" or LOWER_NAME.match(word.text)) for word in words)


def _command(words: Sequence[Word]) -> bool:
    """Tells what a name stands for; without these options it runs it."""
    return bool(words) and words[0].text in ("-v", "-V")


def _nothing(words: Sequence[Word]) -> bool:
    return not words


_CHECKS: dict[str, Check] = {
    "find": _find,
    "git": _git,
    "rg": _rg,
    "fd": _fd,
    "sort": _sort,
    "uniq": _uniq,
    "sed": _sed,
    "awk": _awk,
    "gawk": _awk,
    "mawk": _awk,
    "date": _date,
    "printf": _printf,
    "test": _test,
    "tree": _tree,
    "file": _file,
    "tar": _tar,
    "set": _set,
    "command": _command,
    "read": _read,
    "env": _nothing,
    "hostname": _nothing,
    "wait": _nothing,
    "xargs": _nothing,
}
