"""Commands that provably only read: a table of programs and of what their arguments may be. Pure.

Not listed means not known to only read. Where some option writes or runs a program, the table says
which are refused, or which alone are accepted; a long option is refused under every abbreviation.
"""

import re
from collections.abc import Callable, Sequence
from functools import partial

from tiller_daemon.policy.shell_filters import awk_reads, sed_reads
from tiller_daemon.policy.shell_git import reads as git_reads
from tiller_daemon.policy.shell_words import (
    LOWER_NAME,
    NUMBER_OPERATORS,
    OWN_NAMES,
    TEST_OPERATORS,
    SimpleCommand,
    Word,
    plain,
    refuses,
    word_set,
)

Check = Callable[[Sequence[Word]], bool]
"""Whether a command with these arguments only reads."""

ANY_ARGUMENTS = word_set(
    """: true false echo pwd ls dir vdir cat head tail wc nl tac rev cut tr fold expand unexpand
    paste column comm join fmt grep egrep fgrep cmp diff stat du df readlink realpath basename
    dirname md5sum sha1sum sha224sum sha256sum sha384sum sha512sum b2sum cksum sum md5 shasum od
    hexdump strings seq sleep whoami id groups uname arch nproc uptime free ps pgrep pidof which
    whereis type printenv exit return break continue shift cd jq getconf locale lsblk lscpu expr
    zcat"""
)
"""Programs that write nothing and run nothing, whatever their arguments are."""

_FIND_TESTS = word_set(
    """-name -iname -path -ipath -wholename -regex -iregex -type -xtype -size -mtime -mmin -ctime
    -cmin -atime -amin -newer -anewer -cnewer -maxdepth -mindepth -perm -user -group -uid -gid
    -links -inum -samefile -empty -readable -writable -executable -true -false -print -print0 -ls
    -prune -quit -not -a -o -and -or -depth -d -xdev -mount -follow -daystart -L -P -H -regextype
    -printf -lname -ilname -nouser -nogroup -noleaf -fstype -exec -execdir -ok -okdir"""
)
"""What `find` may be told; the commands after `-exec` are judged by themselves."""

_RG_REFUSED = ["--pre", "--pre-glob", "--hostname-bin", "--search-zip"]
_FIND_VALUED = word_set(
    """-name -iname -path -ipath -wholename -regex -iregex -type -xtype -size -mtime -mmin -ctime
    -cmin -atime -amin -perm -user -group -uid -gid -links -inum -maxdepth -mindepth -printf"""
)
"""Those with a word after them that is no file, and may begin with a sign."""

_SORT_FLAG = re.compile(
    r"-[bdfghiMnRrVmsuzc]*(?:[kt].*)?|--(?:reverse|unique|(?:numeric|general-numeric|human-numeric"
    r"|version)-sort|stable|check|ignore-case|zero-terminated|(?:key|field-separator)=.*)",
    re.DOTALL,
)
_VERSION = word_set("--version -V -v -version version")
_TELLS_VERSION = word_set(
    """python python3 pip pip3 node npm git gcc g++ clang make cmake java docker uv ruff bash sed
    awk rg jq go ruby php perl tsc deno bun psql curl tar gzip tree fd"""
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
    if name == "test":
        return _test(command.words[1:])
    return name == "git" and not word.globs and before.text in ("-m", "--message")


def _find(words: Sequence[Word]) -> bool:
    inside_run = False
    before = ""
    for word in words:
        if inside_run:
            inside_run = word.text not in (";", "+")
        elif before in _FIND_VALUED and word.fixed and not word.globs:
            before = ""
            continue
        elif not plain([word]) or (word.text.startswith("-") and word.text not in _FIND_TESTS):
            return False
        else:
            inside_run = word.text in ("-exec", "-execdir", "-ok", "-okdir")
        before = word.text
    return True


def _rg(words: Sequence[Word]) -> bool:
    return plain(words) and not refuses(words, _RG_REFUSED, "z")


def _fd(words: Sequence[Word]) -> bool:
    return plain(words) and not refuses(words, ["--exec", "--exec-batch"], "xX")


def _sort(words: Sequence[Word]) -> bool:
    flags = [word.text for word in words if word.text.startswith("-")]
    return plain(words) and all(_SORT_FLAG.fullmatch(flag) for flag in flags)


def _uniq(words: Sequence[Word]) -> bool:
    """A second file would be written."""
    files = [word for word in words if not word.text.startswith("-")]
    flags = [word.text for word in words if word.text.startswith("-")]
    return (
        plain(words)
        and not any(word.globs for word in words)
        and all(re.fullmatch(r"-[cdDiuz]+", flag) for flag in flags)
        and len(files) <= 1
    )


def _date(words: Sequence[Word]) -> bool:
    known = re.compile(r"\+.*|-u|--utc|-R|-I\w*|--iso-8601(?:=\w+)?|--date=.*|-d.+", re.DOTALL)
    texts = [word.text for word in words]
    texts = [text for before, text in zip(["", *texts], texts, strict=False) if before != "-d"]
    return plain(words) and all(known.fullmatch(text) or text == "-d" for text in texts)


def _printf(words: Sequence[Word]) -> bool:
    """With `-v` it sets a variable, whose index may run something."""
    return bool(words) and words[0].fixed and not words[0].text.startswith("-")


def _test(words: Sequence[Word]) -> bool:
    if all(word.fixed for word in words):
        return not any(word.text in ("-v", "-R") for word in words)
    return _tests_plainly([word for word in words if word != Word("!")])


def _tests_plainly(words: Sequence[Word]) -> bool:
    """One value is tested, or two are compared: whatever they are, they are not looked into."""
    if any(word.globs for word in words):
        return False
    match words:
        case [operator, _]:
            return operator.fixed and operator.text in TEST_OPERATORS
        case [_, operator, _]:
            return operator.fixed and operator.text in ("=", "!=", "==", *NUMBER_OPERATORS)
        case _:
            return False


def _tree(words: Sequence[Word]) -> bool:
    return plain(words) and not refuses(words, ["--output"], "oR")


def _file(words: Sequence[Word]) -> bool:
    return plain(words) and not refuses(
        words, ["--compile", "--uncompress", "--uncompress-noreport"], "CzZ"
    )


def _tar(words: Sequence[Word]) -> bool:
    """Lists an archive: `tar tzf x.tgz`."""
    return (
        len(words) > 1
        and plain(words)
        and re.fullmatch(r"-?[vzjJ]*t[vzjJ]*f", words[0].text) is not None
        # A name with a colon is a file of another machine.
        and not any(word.text.startswith("-") or ":" in word.text for word in words[1:])
    )


def _set(words: Sequence[Word]) -> bool:
    known = re.compile(r"-[euxf]+o?|-o|pipefail")
    return bool(words) and all(word.fixed and known.fullmatch(word.text) for word in words)


def _read(words: Sequence[Word]) -> bool:
    """Into plain names: the index of an array may run something."""
    return all(
        word.fixed and (word.text == "-r" or LOWER_NAME.match(word.text) or word.text in OWN_NAMES)
        for word in words
    )


def _command(words: Sequence[Word]) -> bool:
    """Tells what a name stands for; without these options it runs it."""
    return bool(words) and words[0].text in ("-v", "-V")


def _nothing(words: Sequence[Word]) -> bool:
    return not words


def _flags(known: str, words: Sequence[Word]) -> bool:
    """Whether all options are known ones."""
    return plain(words) and all(
        re.fullmatch(known, word.text) for word in words if word.text.startswith("-")
    )


def _xxd(words: Sequence[Word]) -> bool:
    """A second file would be written."""
    texts = [word.text for word in words]
    valued = {i + 1 for i, text in enumerate(texts) if text in ("-l", "-s", "-c", "-g")}
    files = [text for i, text in enumerate(texts) if i not in valued and not text.startswith("-")]
    return _flags("-[lscgpbiu]", words) and not any(w.globs for w in words) and len(files) <= 1


def _unzip(words: Sequence[Word]) -> bool:
    """Lists an archive, or prints files out of it."""
    return (
        plain(words)
        and bool(words)
        and words[0].text in ("-l", "-p", "-v", "-Z1")
        and not any(word.text.startswith("-") for word in words[1:])
    )


def _tput(words: Sequence[Word]) -> bool:
    """What sets a terminal up may run a program that its description names."""
    return len(words) == 1 and words[0].text in ("cols", "lines", "colors")


def _yq(words: Sequence[Word]) -> bool:
    """Plain paths only: expressions can read and run, and `-i` writes."""
    return (
        _flags("-r|-P|-o=[a-z]+", words)
        and bool(words)
        and any(re.fullmatch(r"\.[\w.\[\]| -]*", word.text) for word in words[:2])
    )


def _ldconfig(words: Sequence[Word]) -> bool:
    return [word.text for word in words] == ["-p"]


def _shell(words: Sequence[Word]) -> bool:
    """Looks only whether a script can be parsed."""
    return len(words) == 2 and words[0].text == "-n" and words[1].text[:1] != "-" and plain(words)


def _ulimit(words: Sequence[Word]) -> bool:
    return len(words) == 1 and words[0].text in ("-n", "-a", "-u", "-s", "-v")


_CHECKS: dict[str, Check] = {
    "find": _find,
    "git": git_reads,
    "rg": _rg,
    "fd": _fd,
    "sort": _sort,
    "uniq": _uniq,
    "sed": sed_reads,
    "awk": awk_reads,
    "gawk": awk_reads,
    "mawk": awk_reads,
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
    "jobs": _nothing,
    "umask": _nothing,
    "ulimit": _ulimit,
    "bash": _shell,
    "sh": _shell,
    "xxd": _xxd,
    "unzip": _unzip,
    "ldconfig": _ldconfig,
    "base64": partial(_flags, r"-[dDiw]+\d*|--decode|--wrap=\d+"),
    "tput": _tput,
    "nm": partial(_flags, "-[AaCDgnopPSu]+|--demangle|--defined-only|--undefined-only"),
    "objdump": partial(_flags, "-[dDhtTrRfxpsSCw]+|--no-show-raw-insn|-M|-j"),
    "readelf": partial(_flags, "-[ahlSsdrnVW]+|--wide"),
    "zgrep": partial(_flags, "-[niEFvclowhH]+"),
    "yq": _yq,
}
