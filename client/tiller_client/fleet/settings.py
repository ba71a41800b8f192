"""Reads the table `[fleet]` of the user's configuration, and variables that replace its keys."""

import importlib.util
import os
import platform
import re
import tomllib
from pathlib import Path

import msgspec

from tiller_client.errors import NotInstalled, UsageError
from tiller_protocol.fleet import Fleet
from tiller_protocol.places import CONFIG_FILE, Places

TABLE, VARIABLE_PREFIX = "fleet", "TILLER_FLEET__"

NOT_INSTALLED = (
    "the fleet needs more packages: install 'tillerd[fleet]' in the place of tillerd, as with: "
    "uv tool install 'tillerd[fleet]'"
)


def require_packages() -> None:
    """Raise `NotInstalled` without the extra `fleet`; call it before importing what needs NATS."""
    if importlib.util.find_spec("nats") is None:
        raise NotInstalled(NOT_INSTALLED)


def read_settings(places: Places) -> Fleet:
    """Return the table, with all paths absolute and with a name.

    Raises `UsageError` if the configuration has no such table, or one that can't be used.
    """
    path = places.config / CONFIG_FILE
    try:
        values = tomllib.loads(path.read_text("utf-8-sig"))
    except FileNotFoundError:
        values = {}
    except OSError as error:
        raise UsageError(f"{path} can't be read: {error.strerror}") from None
    except ValueError as error:
        raise UsageError(f"{path}: not valid TOML: {error}") from None
    table = {**values.get(TABLE, {}), **_variables()}
    if TABLE not in values and not table:
        raise UsageError(
            f"{path} has no table [{TABLE}], which says how to reach the fleet's NATS server; "
            "see docs/fleet.md"
        )
    try:
        fleet = msgspec.convert(table, Fleet, strict=False)
    except msgspec.ValidationError as error:
        raise UsageError(f"{path}: [{TABLE}]: {error}") from None
    if fleet.key and fleet.workspace:
        raise UsageError(
            f"{path}: [{TABLE}]: leave out `workspace` or `key`: the Synadia Agent Protocol does "
            "not encrypt what it sends"
        )
    return msgspec.structs.replace(
        fleet,
        name=fleet.name or _host_name(path),
        creds=_absolute(places, fleet.creds),
        ca=_absolute(places, fleet.ca),
        key=_absolute(places, fleet.key),
        workspace=_absolute(places, fleet.workspace),
    )


def _variables() -> dict[str, object]:
    """The values in the environment: as the daemon reads them, lists in TOML, and text."""
    found: dict[str, object] = {}
    for name, text in os.environ.items():
        if name.startswith(VARIABLE_PREFIX):
            key = name.removeprefix(VARIABLE_PREFIX).lower()
            try:
                found[key] = tomllib.loads(f"v = {text}")["v"] if text[:1] in {"[", '"'} else text
            except tomllib.TOMLDecodeError:
                raise UsageError(f"the variable {name} is not valid TOML") from None
    return found


def _absolute(places: Places, path: str) -> str:
    return str(places.config / Path(path).expanduser()) if path else ""


def _host_name(path: Path) -> str:
    name = re.sub(r"[^A-Za-z0-9_-]", "-", platform.node().partition(".")[0])[:32].strip("-_")
    if not name:
        raise UsageError(f"{path}: [{TABLE}]: give this host a name, such as name = 'box'")
    return name
