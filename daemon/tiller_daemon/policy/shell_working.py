"""Commands that build, test or check a project: a table of programs and of their options. Pure.

They run code of the project, so they do not only read. What they write by their purpose are
products: of what changes files of the user (`--fix`, `-u`, `clean`) nothing is listed here, nor of
what needs the network or names another program, configuration or place for products.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from tiller_daemon.policy.shell_tools import SHARED, TABLE, TARGET
from tiller_daemon.policy.shell_words import SimpleCommand, plain

_LAUNCHERS: dict[tuple[str, ...], re.Pattern[str] | None] = {
    ("python", "-m"): None,
    ("python3", "-m"): None,
    ("uv", "run"): re.compile(r"--(?:offline|frozen|locked|no-sync|quiet)|-q"),
    ("poetry", "run"): None,
    ("pdm", "run"): None,
    ("pipenv", "run"): None,
    ("rye", "run"): None,
    ("hatch", "run"): None,
    ("npx",): re.compile(r"--no-install|--no|--quiet"),
    ("pnpm", "exec"): None,
    ("yarn", "exec"): None,
    ("yarn", "run"): None,
    ("yarn",): None,
    ("pnpm",): None,
    ("bundle", "exec"): None,
}
"""What starts a program of the project's own environment, and its own options."""

_PLACES = re.compile(r"(?:\./)?(?:\.?venv/bin|node_modules/\.bin|vendor/bin)/")
"""Where a project keeps programs of its environment."""

_TELLS = frozenset({"--version", "-V", "--help", "help", "--list"})


class _Tool(NamedTuple):
    """A row of the table."""

    alone: frozenset[str]
    valued: dict[str, re.Pattern[str] | None]
    needed: frozenset[str]
    words: frozenset[str]
    pattern: re.Pattern[str] | None
    most: int | None
    demanded: bool
    passed_on: str


def works(command: SimpleCommand) -> bool:
    """Whether a simple command builds, tests or checks, and with options that keep it to that."""
    if not plain(command.words):
        return False
    return _works([word.text for word in command.words], launched=0)


def _works(texts: Sequence[str], launched: int) -> bool:
    if not texts or launched > 2:
        return False
    texts = [_PLACES.sub("", texts[0]).replace("pip3", "pip"), *texts[1:]]
    known_name = any(name[0] == texts[0] for name in _TOOLS)
    if known_name and (len(texts) == 2 or texts[1:2] == ["help"]) and texts[1] in _TELLS:
        return True
    for size in (3, 2, 1):
        tool = _TOOLS.get(tuple(texts[:size]))
        if tool and len(texts) >= size and _accepts(tool, texts[size:]):
            return True
    return any(_works(rest, launched + 1) for rest in _launched(texts))


def _launched(texts: Sequence[str]) -> list[Sequence[str]]:
    found: list[Sequence[str]] = []
    if texts[0] in ("python", "python3") and texts[1:2] == ["-m"]:
        found.append(texts[1:])
    for size in (2, 1):
        name = tuple(texts[:size])
        if name in _LAUNCHERS and len(texts) > size:
            options = _LAUNCHERS[name]
            rest = list(texts[size:])
            while rest and options and options.fullmatch(rest[0]):
                del rest[0]
            found.append(rest)
    return found


def _accepts(tool: _Tool, texts: Sequence[str]) -> bool:
    """Whether all that follows is known, and what is needed is there."""
    seen: set[str] = set()
    operands: list[str] = []
    index = 0
    while index < len(texts):
        text = texts[index]
        index += 1
        if text == "--":
            further = _TOOLS.get(("--", tool.passed_on))
            if further is None or not _accepts(further, texts[index:]):
                return False
            break
        if text.startswith("@"):
            return False
        if not text.startswith("-") or text == "-":
            operands.append(text)
            continue
        flag = _flag(tool, text)
        seen.add(flag)
        if flag in tool.valued and flag == text:
            if flag in tool.alone and (index == len(texts) or texts[index].startswith("-")):
                continue
            if not _is_value(tool.valued[flag], texts[index : index + 1]):
                return False
            index += 1
        elif flag in tool.valued:
            if not _is_value(tool.valued[flag], [_joined_value(flag, text)]):
                return False
        elif not flag:
            return False
    return (not tool.needed or bool(tool.needed & seen)) and _operands_fit(tool, operands)


def _flag(tool: _Tool, text: str) -> str:
    """The known option that a word is; empty for none."""
    name = text.partition("=")[0]
    if text in tool.alone or text in tool.valued:
        return text
    if name in tool.valued and "=" in text:
        return name
    if not text.startswith("--"):
        if text[:2] in tool.valued:
            return text[:2]
        if all(f"-{letter}" in tool.alone for letter in text[1:]):
            return next((f"-{o}" for o in text[1:] if f"-{o}" in tool.needed), f"-{text[1]}")
    return ""


def _joined_value(flag: str, text: str) -> str:
    return text[len(flag) :].removeprefix("=")


def _is_value(pattern: re.Pattern[str] | None, texts: Sequence[str]) -> bool:
    return bool(texts) and (pattern is None or pattern.fullmatch(texts[0]) is not None)


def _operands_fit(tool: _Tool, operands: Sequence[str]) -> bool:
    if tool.demanded and not operands:
        return False
    if tool.most is not None:
        return len(operands) <= tool.most
    if tool.words and (not operands or operands[0] not in tool.words):
        return not operands and not tool.demanded
    rest = operands[1:] if tool.words else operands
    if tool.pattern is None:
        return not rest
    return all(tool.pattern.fullmatch(one) for one in rest)


def _rows() -> dict[tuple[str, ...], _Tool]:
    text = TABLE
    for name, flags in SHARED.items():
        text = text.replace("{" + name + "}", " ".join(flags.split()))
    rows = re.sub(r"\n +", " ", text).strip().split("\n")
    return dict(_row(row) for row in rows)


def _row(row: str) -> tuple[tuple[str, ...], _Tool]:
    columns: list[list[str]] = [[]]
    for word in row.split():
        if word == "|":
            columns.append([])
        else:
            columns[-1].append(word)
    name, alone, valued, operands = columns
    values: dict[str, re.Pattern[str] | None] = {}
    for one in valued:
        flag, _, pattern = one.lstrip("!").partition("~")
        values[flag] = re.compile(pattern) if pattern else None
    flags = [one.partition("~")[0] for one in (*alone, *valued)]
    words = operands[: operands.index("--")] if "--" in operands else operands
    any_more = r"(?s).*" if "*" in words else TARGET if "@" in words else None
    number = next((int(one) for one in words if one.isdecimal()), None)
    return tuple(name), _Tool(
        alone=frozenset(one.lstrip("!") for one in alone),
        valued=values,
        needed=frozenset(one.lstrip("!") for one in flags if one.startswith("!")),
        words=frozenset(one for one in words if one not in "*@!" and not one.isdecimal()),
        pattern=re.compile(any_more) if any_more else None,
        most=number,
        demanded="!" in words,
        passed_on=operands[-1] if words is not operands else "",
    )


_TOOLS = _rows()
