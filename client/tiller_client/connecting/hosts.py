"""The hosts in the table `[hosts]` of the user's configuration, and how to connect to each of them.

The daemon checks the same table when it reads the file, but uses no host itself.
"""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from tiller_client.connecting.runtime import chosen_remote, know_remote, my_places
from tiller_client.errors import UsageError
from tiller_protocol.places import (
    CONFIG_FILE,
    DESTINATION,
    DESTINATION_EXPECTED,
    FLEET_PREFIX,
    HOST_LABEL,
    HOST_LABEL_EXPECTED,
    Places,
)

if TYPE_CHECKING:
    from tiller_client.connecting.linked import LinkedDaemon

TABLE = "hosts"

FILE_BYTES_MAX = 1024 * 1024
"""The largest configuration file, in bytes; the daemon has the same limit."""


class Host(NamedTuple):
    """A host whose daemon can be reached with `DaemonConnection(host.places, name)`.

    `ConnectionPool` and `EventSocket` take `places`, too. Connecting takes as long as ssh does, so
    do it in a thread. ssh never asks for a password there.
    """

    label: str
    """The name in the configuration; empty for the daemon that a verb without `--all` uses."""
    destination: str
    """The destination for ssh, or a host of the fleet; empty for this machine."""
    places: Places


def configured_hosts() -> list[Host]:
    """Return this machine, then the hosts in the order of the file; connects to none.

    With `--host`, return only that host, with an empty label. Raises `UsageError` with the line of
    a bad entry.
    """
    local, remote = my_places(), chosen_remote()
    own = Host("", remote.destination if remote else "", local)
    if remote:
        return [own]
    return [own, *(_host(*entry, local) for entry in read_hosts(local.config).items())]


def remote_daemon(word: str, *, only_label: bool = False) -> "LinkedDaemon":
    """Return the daemon on the host with this label, or with this destination.

    With `only_label`, raise `UsageError` if the configuration has no such label.
    """
    local = my_places()
    known = read_hosts(local.config) if re.search(HOST_LABEL, word) else {}
    if only_label and word not in known:
        names = f"it has {', '.join(known)}" if known else "it has none"
        raise UsageError(
            f"there is no host {word!r} in the table [{TABLE}] of "
            f"{local.config / CONFIG_FILE}; {names}"
        )
    return _daemon(known.get(word, word), local, word if word in known else "")


def read_hosts(directory: Path) -> dict[str, str]:
    """Read the destinations by label from the configuration in a directory; {} without a file.

    Raises `UsageError` if the file can't be read, or with the line of a bad entry.
    """
    path = directory / CONFIG_FILE
    try:
        if path.exists() and not path.is_file():
            raise UsageError(f"{path} is not a regular file; move it away")
        with path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX)
        if TABLE.encode() not in data:  # a mistake elsewhere is no reason to list nothing
            return {}
        import tomllib

        text = data.decode("utf-8-sig")
        values: dict[str, Any] = tomllib.loads(text)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise UsageError(f"{path} can't be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: not valid TOML: {error}") from None
    table: object = values.get(TABLE, {})
    if not isinstance(table, dict):
        line = _line_of(text, TABLE)
        raise UsageError(f'{path}, line {line}: {TABLE}: expected a table, such as box = "me@box"')
    found = cast("dict[str, object]", table)
    for label, destination in found.items():
        if not re.search(HOST_LABEL, label):
            raise UsageError(_problem(path, text, label, HOST_LABEL_EXPECTED))
        if not isinstance(destination, str) or not re.search(DESTINATION, destination):
            raise UsageError(_problem(path, text, label, DESTINATION_EXPECTED))
    return cast("dict[str, str]", found)


def _host(label: str, destination: str, local: Places) -> Host:
    daemon = _daemon(destination, local, label, asks=False)
    know_remote(daemon)
    return Host(label, destination, daemon.places)


def _daemon(destination: str, local: Places, label: str, *, asks: bool = True) -> "LinkedDaemon":
    # Few users have hosts.
    if destination.startswith(FLEET_PREFIX):
        from tiller_client.connecting.fleet_daemon import FleetDaemon

        return FleetDaemon(destination, local, label)
    from tiller_client.connecting.remote import RemoteDaemon

    return RemoteDaemon(destination, local, label, asks=asks)


def _problem(path: Path, text: str, label: str, problem: str) -> str:
    line = _line_of(text, label)
    place = f"{path}, line {line}" if line else str(path)
    shown = label if re.search(HOST_LABEL, label) else f'"{label}"'
    return f"{place}: {TABLE}.{shown}: {problem}"


def _line_of(text: str, label: str) -> int:
    """Return the line of an entry, or else of the table; 0 if neither is written in a usual way."""
    found, in_table = 0, False
    key = re.compile(rf"""\s*(?:{TABLE}\s*\.\s*)?["']?{re.escape(label)}["']?\s*=""")
    for number, line in enumerate(text.splitlines(), 1):
        if header := re.match(r"\s*\[\s*([^\]]*?)\s*\]", line):
            in_table = header[1] == TABLE
            found = number if in_table else found
        elif in_table or re.match(rf"\s*{TABLE}\s*[.=]", line):
            found = found or number
            if key.match(line):
                return number
    return found
