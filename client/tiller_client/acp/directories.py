"""Converts a client's additional directories to permission rules. Pure."""

import re
from collections.abc import Iterable
from pathlib import Path

from tiller_client.acp.rpc import INVALID_PARAMS, RpcFailure
from tiller_protocol.settings import Rule

_WILDCARD = re.compile(r"([*?\\])")


def rules_for(directories: Iterable[str] | None, rules: tuple[Rule, ...]) -> tuple[Rule, ...]:
    """Return `rules` with the rules added that are still needed to open these directories.

    Raises `RpcFailure` for a path that is not absolute.
    """
    wanted: list[Rule] = []
    for directory in directories or ():
        if not Path(directory).is_absolute():
            raise RpcFailure(INVALID_PARAMS, f"{directory!r} is not an absolute path")
        path = _WILDCARD.sub(r"\\\1", directory.rstrip("/"))
        wanted += [Rule("external_directory", one, "allow") for one in (path, f"{path}/*")]
    return rules + tuple(rule for rule in wanted if rule not in rules)
