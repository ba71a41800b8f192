"""What of git only reads: its subcommands, and the options of each that do more. Pure.

Configuration that makes git run something meanwhile is looked for where the command would run.
"""

import re
from collections.abc import Callable, Sequence

from tiller_daemon.policy.shell_words import Word, plain, refuses, word_set

_READS = word_set(
    """status log diff show rev-parse rev-list ls-files ls-tree cat-file blame annotate shortlog
    describe name-rev merge-base show-ref for-each-ref count-objects whatchanged grep cherry
    diff-tree diff-index diff-files check-ignore check-attr version range-diff show-branch"""
)
_REFUSED = word_set(
    "--output --ext-diff --textconv --open-files-in-pager --exec --filters --paginate --help "
    "--show-signature --output-directory"
)
_BRANCH_FLAG = re.compile(
    r"-[arv]+|--(?:all|remotes|verbose|show-current|no-color|sort=[\w:-]+|format=.*)"
)
_BRANCH_LISTS = word_set("--list --contains --no-contains --merged --no-merged --points-at")
"""With one of them, a name is what to look for and not a new branch."""

_TAG_FLAG = re.compile(r"-n\d*|--sort=[\w:-]+|-i|--ignore-case|--no-color|--format=.*")
_TAG_LISTS = word_set("--list -l --contains --merged --no-merged --points-at")
_CONFIG_FLAG = re.compile(
    r"--(?:global|local|system|show-origin|show-scope|name-only|null|type=[a-z-]+|bool|int|path)|-z"
)
_CONFIG_GETS = {"--list": 0, "-l": 0, "--get-regexp": 1, "--get": 2, "--get-all": 2}
"""What asks, and how many words it takes."""


def reads(words: Sequence[Word]) -> bool:
    """Whether git with these arguments changes nothing."""
    if not words or not plain(words):
        return False
    subcommand, *rest = words
    if subcommand.text in _READS:
        return not refuses(rest, _REFUSED, "O")
    check = _CHECKS.get(subcommand.text)
    return check is not None and check([word.text for word in rest])


def _names(texts: Sequence[str]) -> list[str]:
    return [text for text in texts if not text.startswith("-")]


def _lists(texts: Sequence[str], known: re.Pattern[str], lists: frozenset[str]) -> bool:
    flags = [text for text in texts if text.startswith("-")]
    asked = any(flag in lists for flag in flags)
    return all(flag in lists or known.fullmatch(flag) for flag in flags) and (
        asked or not _names(texts)
    )


def _branch(texts: Sequence[str]) -> bool:
    return _lists(texts, _BRANCH_FLAG, _BRANCH_LISTS)


def _tag(texts: Sequence[str]) -> bool:
    return _lists(texts, _TAG_FLAG, _TAG_LISTS)


def _config(texts: Sequence[str]) -> bool:
    """One name alone is asked for, two are a name and its new value."""
    names = _names(texts)
    flags = [text for text in texts if text.startswith("-")]
    asking = [flag for flag in flags if flag in _CONFIG_GETS]
    known = all(flag in _CONFIG_GETS or _CONFIG_FLAG.fullmatch(flag) for flag in flags)
    if not known or len(asking) > 1:
        return False
    return len(names) <= _CONFIG_GETS[asking[0]] if asking else len(names) == 1 and "." in names[0]


def _remote(texts: Sequence[str]) -> bool:
    if texts[:1] == ["get-url"]:
        return all(text in ("--all", "--push") for text in texts[1:] if text.startswith("-"))
    return all(text in ("-v", "--verbose") for text in texts)


def _stash(texts: Sequence[str]) -> bool:
    if texts[:1] not in (["list"], ["show"]):
        return False
    return not refuses([Word(text) for text in texts[1:]], _REFUSED, "O")


def _reflog(texts: Sequence[str]) -> bool:
    shows = texts[:1] == ["show"]
    flags = [text for text in texts if text.startswith("-")]
    known = all(re.fullmatch(r"-\d+|-n\d+|--oneline|--date=\w+", flag) for flag in flags)
    return known and (shows or not _names(texts))


def _worktree(texts: Sequence[str]) -> bool:
    return texts[:1] == ["list"] and all(text in ("--porcelain", "-v") for text in texts[1:])


def _symbolic_ref(texts: Sequence[str]) -> bool:
    """A second name would be where it points from then on."""
    return len(_names(texts)) == 1 and all(
        text in ("--short", "-q", "--quiet") for text in texts if text.startswith("-")
    )


def _notes(texts: Sequence[str]) -> bool:
    return texts[:1] in (["list"], ["show"]) and len(texts) <= 2 and not texts[-1].startswith("-")


def _bisect(texts: Sequence[str]) -> bool:
    return texts == ["log"]


def _hash_object(texts: Sequence[str]) -> bool:
    """With `-w` it would write; a path with `--path` runs its filter."""
    return (
        bool(texts)
        and (texts == ["--stdin"] or "--no-filters" in texts)
        and not any(
            text.startswith("-") and text not in ("--stdin", "--no-filters") for text in texts
        )
    )


_CHECKS: dict[str, Callable[[Sequence[str]], bool]] = {
    "branch": _branch,
    "tag": _tag,
    "config": _config,
    "remote": _remote,
    "stash": _stash,
    "reflog": _reflog,
    "worktree": _worktree,
    "symbolic-ref": _symbolic_ref,
    "notes": _notes,
    "bisect": _bisect,
    "hash-object": _hash_object,
}
