"""Commands that print names of files, which other commands of the line are then given. Pure.

A name that they print lies below a place that they name themselves; those are judged as their own.
"""

import re
from collections.abc import Sequence

from tiller_daemon.policy.shell_words import ANY_FILE, SimpleCommand, Word, word_set

_FIND_PRINTS_MORE = ("-printf", "-ls", "-exec", "-ok", "-fprint", "-D")
_GREP_LISTS = re.compile(r"-[rRiEFPwIsnv]*[lL][rRiEFPwIsnvlLZ]*|--files-with(?:out)?-match(?:es)?")
_GREP_FLAG = re.compile(
    r"-[rRiEFPwIsnvlLZ]+|--(?:include|exclude|exclude-dir)=.*|--files-with(?:out)?-match(?:es)?|-e|--"
)
_RG_VALUED = word_set("-g --glob -t --type -T -e")
_RG_FLAG = re.compile(r"-[iSswFPlv0u]+|--(?:files|hidden|files-with-matches|no-ignore|null)|--")
_LS_FLAG = re.compile(r"-[1tSrdRAcuX]+")
_GIT_LISTS = {
    "ls-files": re.compile(r"-[cdmoz]+|--(?:others|exclude-standard|cached|modified|deleted)|--"),
    "diff": re.compile(r"--(?:name-only|cached|staged|diff-filter=\w+|no-renames)|-z|--"),
    "grep": re.compile(r"-[liIwEFPz]+|--(?:name-only|files-with-matches)|--"),
}
_GIT_NEEDS = {"ls-files": "", "diff": "--name-only", "grep": r"-\w*l\w*|--name-only|--files-.*"}
_FILTER_FLAG = {
    "sort": re.compile(r"-[urnVfz]+"),
    "uniq": re.compile(r"-[ui]+"),
    "head": re.compile(r"-\d+|-n\d*|\d+"),
    "tail": re.compile(r"-\d+|-n\d*|\d+"),
    "cat": re.compile(r"(?!)"),
}


def lists_files(commands: Sequence[SimpleCommand]) -> Word | None:
    """The name of any file that a pipeline prints, if it prints nothing else.

    All of them lie below the places that its first command names.
    """
    if not commands or not all(word.fixed for one in commands for word in one.words):
        return None
    first, *others = ([word.text for word in command.words] for command in commands)
    patterns = _listed(first)
    if patterns is None or not all(_filters(one) for one in others):
        return None
    return Word("", fixed=False, globs=True, places=tuple(patterns))


def _listed(texts: Sequence[str]) -> Sequence[str] | None:
    """Patterns of the names that a command prints; `None` if it may print something else."""
    name, *rest = texts
    match name:
        case "find":
            return None if any(one.startswith(_FIND_PRINTS_MORE) for one in rest) else _find(rest)
        case "grep":
            known = all(_GREP_FLAG.fullmatch(one) for one in _flags(rest))
            return [ANY_FILE] if known and any(_GREP_LISTS.fullmatch(one) for one in rest) else None
        case "rg":
            return [ANY_FILE] if _rg(rest) else None
        case "ls":
            known = all(_LS_FLAG.fullmatch(one) for one in _flags(rest))
            return ([o for o in rest if "." in o[1:]] or [ANY_FILE]) if known else None
        case "git":
            return _git(rest)
        case _:
            return None


def _find(rest: Sequence[str]) -> Sequence[str]:
    """Each alternative must ask for names, or files of any name are among those found."""
    patterns: list[str] = []
    named = False
    for before, text, following in zip(["", *rest], rest, [*rest[1:], ""], strict=False):
        if text in ("-o", "-or", ","):
            if not named:
                return [ANY_FILE]
            named = False
        elif text in ("-name", "-iname") and before not in ("!", "-not"):
            patterns.append(following)
            named = True
    return patterns if named else [ANY_FILE]


def _rg(rest: Sequence[str]) -> bool:
    flags = _flags(rest)
    known = all(one in _RG_VALUED or _RG_FLAG.fullmatch(one) for one in flags)
    return known and any(
        one in ("--files", "--files-with-matches") or re.fullmatch(r"-[iSswFP]*l[iSswFP0u]*", one)
        for one in flags
    )


def _git(rest: Sequence[str]) -> Sequence[str] | None:
    subcommand, *arguments = rest or [""]
    flags = _flags(arguments)
    known = _GIT_LISTS.get(subcommand)
    if known is None or not all(known.fullmatch(flag) for flag in flags):
        return None
    if not any(re.fullmatch(_GIT_NEEDS[subcommand], flag) for flag in ("", *flags)):
        return None
    untracked = any(flag == "--others" or re.fullmatch(r"-\w*o\w*", flag) for flag in flags)
    return [ANY_FILE] if untracked else [one for one in arguments if one not in flags]


def _filters(texts: Sequence[str]) -> bool:
    """Whether a command passes on some of the lines that it is given, as they are."""
    name, *rest = texts
    if name in ("grep", "egrep", "fgrep"):
        patterns = [one for one in rest if not one.startswith("-")]
        return len(patterns) == 1 and all(re.fullmatch(r"-[viEFPw]+|-e", o) for o in _flags(rest))
    known = _FILTER_FLAG.get(name)
    return known is not None and all(known.fullmatch(one) for one in rest)


def _flags(texts: Sequence[str]) -> list[str]:
    return [text for text in texts if text.startswith("-")]
