"""Offers the prompts of servers as commands: `/mcp:SERVER:PROMPT arguments`. Pure."""

import re
from collections.abc import Sequence
from typing import Final

from tiller_daemon.mcp.base import ListedPrompt
from tiller_daemon.tools.base import ToolFailure
from tiller_daemon.tools.suggestions import did_you_mean
from tiller_protocol.catalog import CommandSummary

PREFIX: Final = "mcp:"

_WORD: Final = re.compile(r'"([^"]*)"|\'([^\']*)\'|(\S+)')


NAME_CHARS_MAX: Final = 100
"""The longest name of a prompt or a parameter, since people must type these names."""

NAMES_SHOWN_MAX: Final = 20
"""How many prompts a message names."""


def is_usable(prompt: ListedPrompt) -> bool:
    """Whether people can type the name of a prompt and read the names of its parameters."""
    names = (prompt.name, *(one.name for one in prompt.parameters))
    return all(
        name.isprintable() and " " not in name and len(name) <= NAME_CHARS_MAX for name in names
    )


def unknown_prompt(server: str, name: str, prompts: Sequence[ListedPrompt]) -> str:
    """Return an error message for a prompt name that the server does not list."""
    names = [one.name for one in prompts]
    more = len(names) - NAMES_SHOWN_MAX
    listed = ", ".join(names[:NAMES_SHOWN_MAX]) or "none"
    listed += f" and {more} more" if more > 0 else ""
    typed = name if name.isprintable() else ascii(name)[1:-1]
    if len(typed) > NAME_CHARS_MAX:
        typed = f"{typed[:NAME_CHARS_MAX]}…"
    hint = did_you_mean(typed, names)
    return f"The MCP server {server} has no prompt {typed}.{hint} It has: {listed}."


def summary(server: str, prompt: ListedPrompt) -> CommandSummary:
    """Return the entry of a prompt in the list of commands."""
    shown = (
        f"<{one.name}>" if one.required else f"[{one.name}]" for one in prompt.parameters
    )  # in the notation that shows the usage of commands
    about = " ".join((*shown, *prompt.description.split()))
    return CommandSummary(f"{PREFIX}{server}:{prompt.name}", about)


def read_arguments(prompt: ListedPrompt, given: str) -> dict[str, str]:
    """Return the arguments that a user typed after a prompt, by position or as `name=value`.

    The last argument takes the rest of the text. Raises `ToolFailure` for arguments that are
    missing or too many.
    """
    arguments: dict[str, str] = {}
    open_names = [one.name for one in prompt.parameters]
    rest = given.strip()
    while rest and open_names:
        name, equals, _ = rest.partition("=")
        if equals and name in open_names:
            open_names.remove(name)
            rest = rest[len(name) + 1 :]
        else:
            name = open_names.pop(0)
        word = _WORD.match(rest)
        quoted = word is not None and word[3] is None
        # The last argument gets the rest as it is, unless the rest is one quoted word.
        if not word or (not open_names and not (quoted and word.end() == len(rest))):
            arguments[name], rest = rest, ""
        else:
            arguments[name] = next(part for part in word.groups() if part is not None)
            rest = rest[word.end() :].lstrip()
    missing = [one.name for one in prompt.parameters if one.required and one.name not in arguments]
    if missing or rest:
        names = ", ".join(one.name for one in prompt.parameters) or "none"
        problem = f"Missing: {', '.join(missing)}." if missing else "It takes no arguments."
        raise ToolFailure(f"The prompt {prompt.name} can't be used. {problem} Arguments: {names}.")
    return arguments
