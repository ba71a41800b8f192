"""Makes the text of a first configuration, and of additions to an existing one. Pure."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from tiller_protocol.catalog import ProviderOffer

_BEGINNING = """\
# The configuration of tiller, created by `tiller init`. Changes take effect at once; to check them:
# tiller config check

"""

_SETTINGS = """\
# For calls that need your approval: ask (the default), always (allow them) or never (deny them).
# approve = "ask"
"""

_TABLES = """\
# What the model's commands may do: read_only, workspace_write (the default) or full_access.
# [sandbox]
# mode = "workspace_write"

# Rules for individual tools and commands; the last matching rule wins.
# [[permissions]]
# permission = "bash"
# pattern = "git push*"
# action = "ask"
"""


def configuration_text(model: str, offers: Iterable[ProviderOffer]) -> str:
    """A commented configuration with these providers; `model` (`provider/model`) is the default."""
    parts = (_default(model) + "\n" + _SETTINGS, *map(_provider, offers), _TABLES)
    return _BEGINNING + "\n".join(parts)


def missing_text(existing: Mapping[str, Any], model: str, offers: Iterable[ProviderOffer]) -> str:
    """The text to add for these offers to a configuration with the values `existing`, if any."""
    known = existing.get("providers")
    names = set(known) if isinstance(known, dict) else set[str]()  # type: ignore[reportUnknownArgumentType]
    parts = [] if "model" in existing or not model else [_default(model)]
    return "\n".join((*parts, *(_provider(one) for one in offers if one.name not in names)))


def _default(model: str) -> str:
    return f"model = {_quoted(model)}   # the default; to list all models: tiller models --all\n"


def _provider(offer: ProviderOffer) -> str:
    lines = [
        f"[providers.{offer.name}]",
        f"api = {_quoted(offer.api)}",
        f"account = {_quoted(offer.account)}"
        if offer.account
        else f"base_url = {_quoted(offer.base_url)}",
    ]
    if offer.api_key_env:
        variable = _quoted(offer.api_key_env)
        lines.append(f"api_key_env = {variable}   # the variable's name, never the key")
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    """Quote a text as a basic string of TOML: like JSON, but TOML also escapes DEL."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
