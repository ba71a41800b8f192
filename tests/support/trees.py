"""Random trees and patterns for searches, and a slow search that looks at everything."""

import fnmatch
from pathlib import Path

from hypothesis import strategies as st

NAMES = ("a", "b", "a.py", "b.ts", ".a", "x y", "é.py", "[a]", "a*b", "!a", "#a", "c ", "-a", "\\a")

_names = st.sampled_from(NAMES)
_paths = st.lists(_names, min_size=1, max_size=4).map("/".join)

_pieces = st.sampled_from(("*", "?", "**", "a", "b", ".py", "[ab]", "[!a]", "[^a]", "[a", " ", "é"))
_parts = st.one_of(_names, st.just("**"), st.lists(_pieces, min_size=1, max_size=3).map("".join))
_braces = st.tuples(_parts, _parts, st.sampled_from(("", ".py"))).map(
    lambda three: f"{{{three[0]},{three[1]}}}{three[2]}"
)
patterns = (
    st.lists(st.one_of(_parts, _parts, _braces), min_size=1, max_size=4)
    .map("/".join)
    .filter(lambda pattern: not pattern.startswith("/"))
)

_rules = st.tuples(
    st.sampled_from(("", "", "!")),
    st.sampled_from(("", "", "/", "**/")),
    _parts.filter(lambda part: "\\" not in part),
    st.sampled_from(("", "", "/", "/*", "/**")),
).map("".join)
ignore_files = st.lists(_rules, min_size=1, max_size=3).map("\n".join)

trees = st.tuples(
    st.lists(_paths, max_size=12),
    st.dictionaries(st.lists(_names, max_size=2).map("/".join), ignore_files, max_size=2),
    st.sampled_from((".gitignore", ".ignore")),
)
"""Paths of files, directories that get an ignore file, and the ignore file's name."""


def plant(place: Path, tree) -> list[str]:
    """Write a tree; skip paths that are directories already or lead through a file."""
    files, ignored, called = tree
    planted: list[str] = []
    contents = dict.fromkeys(files, "one\ntwo\n")
    contents |= {f"{path}/{called}".lstrip("/"): text for path, text in ignored.items()}
    for path, text in contents.items():
        file = place / path
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        except OSError:
            continue
        planted.append(path)
    return planted


def fits(pattern: str, path: str) -> bool:
    """Whether a pattern matches a path, tested slowly, one `**` after another."""
    return any(_fits(one.split("/"), path.split("/")) for one in _alternatives(pattern))


def _alternatives(pattern: str) -> list[str]:
    if "{" not in pattern:
        return [pattern if "/" in pattern else f"**/{pattern}"]
    before, _, rest = pattern.partition("{")
    inside, _, after = rest.partition("}")
    found = [f"{before}{one}{after}" for one in inside.split(",")]
    return [done for one in found for done in _alternatives(one)]


def _fits(parts: list[str], names: list[str]) -> bool:
    if not parts:
        return not names
    if parts[0] == "**":
        return any(_fits(parts[1:], names[taken:]) for taken in range(len(names) + 1))
    either = (parts[0], parts[0].replace("[", "[[]"))
    matches = bool(names) and any(fnmatch.fnmatchcase(names[0], one) for one in either)
    return matches and _fits(parts[1:], names[1:])
