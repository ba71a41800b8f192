"""Programs of sed and awk, as arguments: which of them only print. Pure."""

import re
from collections.abc import Sequence

from tiller_daemon.policy.shell_words import Word, plain

_SED_FLAG = re.compile(r"-[nErsuz]+")
_SED_ADDRESS = r"(?:\d+|\$|/[^/\\\n;\[]*/)"
_SED_PRINT = re.compile(rf"(?:{_SED_ADDRESS}(?:,\+?{_SED_ADDRESS})?)?[pdq=]")
_SED_REPLACE = re.compile(
    r"s([/|#,%@:!])(?:(?!\1)[^\\\n]|\\[^\n])*\1(?:(?!\1)[^\\\n]|\\[^\n])*\1[gIp0-9]*"
)
_AWK_REFUSED = re.compile(r"system|getline|[|@]")
_AWK_STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"')


def sed_reads(words: Sequence[Word]) -> bool:
    """Printing, deleting and replacing on the way to the output; never `w`, `e`, `-i`."""
    if not plain(words):
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


def awk_reads(words: Sequence[Word]) -> bool:
    """Printing, and never into a file or a program; texts of programs that are read are unknown."""
    if not plain(words):
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
        and not _may_write(program)
        and not any(file.startswith("-") for file in files)
    )


def _may_write(program: str) -> bool:
    """Whether a program of awk may run something, or write: `>` is a comparison where none prints.

    Before an action, and between parentheses. Texts with `/` or `#` are left alone, as they may be
    divisions, expressions or comments.
    """
    if _AWK_REFUSED.search(program.replace("||", " ")):
        return True
    bare = _AWK_STRING.sub(" ", program.replace(">=", "  "))
    if ">" not in bare:
        return False
    if re.search(r"[/#\\\"]", bare):
        return True
    braces = parentheses = 0
    for sign in bare:
        braces += (sign == "{") - (sign == "}")
        parentheses += (sign == "(") - (sign == ")")
        if sign == ">" and braces and not parentheses:
            return True
    return False
