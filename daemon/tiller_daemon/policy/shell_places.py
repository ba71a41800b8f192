"""What a reading command may look at: files that it shows, places that it names. Pure."""

import re

from tiller_daemon.policy.shell_words import ANY_FILE, SimpleCommand, Word, word_set

_NAMES_ONLY = word_set(
    """: true false echo printf pwd ls dir vdir stat du df readlink realpath basename dirname seq
    sleep which whereis type exit return break continue shift cd find fd tree test wc expr file
    md5sum sha1sum sha224sum sha256sum sha384sum sha512sum b2sum cksum sum md5 shasum"""
)
"""Programs that show no content of the files that their arguments name."""

_NAMES_NOTHING = word_set(
    """: true false echo printf pwd basename dirname seq sleep which whereis type exit return break
    continue shift whoami id groups uname arch nproc uptime free ps pgrep pidof printenv getconf
    locale lsblk lscpu tr expr date tput ulimit test"""
)
"""Programs whose arguments name no file that they look at."""

_SEARCHES = word_set("grep egrep fgrep zgrep rg")

_FIRST_IS_TEXT = _SEARCHES | word_set("sed awk gawk mawk jq yq")
"""Programs whose first word is no file, but what to look for or to do."""

_GIVES_TEXT = re.compile(r"-[A-Za-z]*[ef].*|--(?:files|regexp.*|file.*|from-file.*)", re.DOTALL)
"""The options with which it is one."""

_VALUED = {
    **dict.fromkeys(("awk", "gawk", "mawk"), word_set("-F -v")),
    **dict.fromkeys(("grep", "egrep", "fgrep"), word_set("-e -A -B -C -m")),
    "rg": word_set("-e -A -B -C -m -g -t -T"),
    "cut": word_set("-d -f -c -b"),
    "sort": word_set("-t -k"),
    "column": word_set("-s"),
    "paste": word_set("-d"),
    "join": word_set("-t"),
    "sed": word_set("-e"),
    "jq": word_set("--arg --argjson --indent"),
    "head": word_set("-n -c"),
    "tail": word_set("-n -c"),
}
"""Options with a word after them that is no file."""

_JOINED = {"awk": "-F", "gawk": "-F", "cut": "-d", "sort": "-t", "column": "-s", "paste": "-d"}
"""Options whose value may be joined and is a sign between fields, such as `-d/`."""


def files_shown(command: SimpleCommand) -> tuple[str, ...]:
    """The words of a reading command that may name files whose content it shows."""
    if command.words[0].text in _NAMES_ONLY:
        return ()
    # Who searches everything may also search what is listed.
    hidden = {ANY_FILE} if command.words[0].text in _SEARCHES else set[str]()
    texts = (text for word in _named(command) for text in (word.text, *(word.places or ())))
    return tuple(text for text in texts if text and text not in hidden)


def places_named(command: SimpleCommand) -> tuple[Word, ...]:
    """The words of a reading command that may name files or directories it looks at.

    Unlike `files_shown` also those whose content it does not show, and words that only the run
    will tell.
    """
    return () if command.words[0].text in _NAMES_NOTHING else tuple(_named(command))


def _named(command: SimpleCommand) -> list[Word]:
    name, *arguments = command.words
    text_follows = name.text in _FIRST_IS_TEXT and not any(
        _GIVES_TEXT.fullmatch(word.text) for word in arguments
    )
    valued = _VALUED.get(name.text, frozenset[str]())
    joined = _JOINED.get(name.text)
    found: list[Word] = []
    before = ""
    for word in arguments:
        is_value = before in valued
        before = "" if is_value else word.text
        if is_value or (joined and word.text.startswith(joined)):
            continue
        if text_follows and not word.text.startswith("-"):
            text_follows = False
            continue
        found.append(word)
    return found
