"""Adds to the wheel what is made from the source: shell completions, man pages, the Neovim plugin.

Hatchling calls it for each build (pyproject.toml). An editable installation gets none of this.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import (  # type: ignore[import-not-found] - not needed by tests
    BuildHookInterface,
)

COMPLETIONS = {
    "bash": "share/bash-completion/completions/tiller",
    "zsh": "share/zsh/site-functions/_tiller",
    "fish": "share/fish/vendor_completions.d/tiller.fish",
}
PLUGIN = {"client/editors/nvim": "tiller_client/editors/nvim"}

HELP_COLUMNS = "78"
"""Fits into a terminal of 80 columns, where `man` indents the text a little."""


class InstalledFiles(BuildHookInterface):
    """The hook for wheels."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Make the files in a temporary directory, and name their places in the wheel."""
        if version == "editable":
            return
        root = Path(self.root)
        sys.path[:0] = [str(root / part) for part in ("protocol", "client", "daemon")]
        os.environ.update(COLUMNS=HELP_COLUMNS, NO_COLOR="1")
        made = Path(tempfile.mkdtemp())
        for place, text in (*_completions(), *_man_pages()):
            file = made / place
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
            build_data["shared_data"][str(file)] = place
        build_data["force_include"] |= {str(root / path): to for path, to in PLUGIN.items()}


def _completions() -> Iterator[tuple[str, str]]:
    from argcomplete.shell_integration import shellcode

    for shell, place in COMPLETIONS.items():
        yield place, shellcode(["tiller"], shell=shell).lstrip("\n")


def _man_pages() -> Iterator[tuple[str, str]]:
    from tiller_client.command_line.arguments import all_verbs
    from tiller_daemon.arguments import parser

    for program in (all_verbs(), parser()):
        yield f"share/man/man1/{program.prog}.1", man_page(program)


def man_page(program: argparse.ArgumentParser) -> str:
    """Return the help of a program and its verbs as a man page."""
    from tiller_protocol import VERSION

    lines = [f'.TH {program.prog.upper()} 1 "" "tiller {VERSION}"', ".SH NAME"]
    lines.append(_escaped(f"{program.prog} - {program.description}").removesuffix("."))
    for parser in _with_verbs(program):
        lines += [f".SH {_escaped(parser.prog)}", ".nf", _escaped(parser.format_help()), ".fi"]
    return "\n".join(lines) + "\n"


def _with_verbs(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for verb in action.choices.values():
                yield from _with_verbs(verb)


def _escaped(text: str) -> str:
    lines = text.strip().replace("\\", "\\e").replace("-", "\\-").split("\n")
    return "\n".join(f"\\&{line}" if line[:1] in (".", "'") else line for line in lines)
