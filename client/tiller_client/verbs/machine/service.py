"""`daemon install|uninstall`: the daemon as a service, started at login and after a crash."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from argparse import Namespace
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from tiller_client.connecting.runtime import FOR_OTHERS, daemon_pid, my_places
from tiller_client.connecting.starting import DAEMON_COMMAND
from tiller_client.console import complain, print_json, say
from tiller_client.errors import TillerError
from tiller_client.rendering.text import one_line
from tiller_client.service import find_service
from tiller_client.service.definition import Command, Definition, Service, define
from tiller_client.verbs.machine.daemon import stop
from tiller_protocol.places import CONFIG_FILE, Places

FILE_MODE = 0o644

LINGER = Path("/var/lib/systemd/linger")
"""Contains a file per user whose services run without a login (loginctl(1), `enable-linger`)."""

KEY_ENDING = "_API_KEY"
"""Suffix of the variables in which most people keep their keys."""

_KEY_VARIABLE = re.compile(r"""\bapi_key_env\s*=\s*["'](\w+)["']""")

CACHES = (("XDG_CACHE_HOME", ".cache"), ("UV_CACHE_DIR", ".cache/uv"), ("", "Library/Caches"))
"""Caches, where programs don't last: the variable for each, and its default below the home."""


class Installed(msgspec.Struct, tag_field="type", tag="installed"):
    """Result of `install --json`."""

    manager: str
    name: str
    file: str


class Uninstalled(msgspec.Struct, tag_field="type", tag="uninstalled"):
    """Result of `uninstall --json`; `was_installed` is false if there was no service."""

    was_installed: bool


def run(arguments: Namespace) -> int:
    """Install or uninstall the service, or print what would be installed."""
    places, service = my_places(), _service()
    if arguments.verb == "uninstall":
        return _uninstall(places, service, arguments)
    definition = define(
        places, os.environ, DAEMON_COMMAND, no_new_privileges=_can_confine_without_privileges()
    )
    if arguments.print:
        say(service.render(definition).decode(errors="replace"), end="")
        return 0
    return _install(places, service, definition, json=arguments.json)


def key_file_problem(file: Path) -> str:
    """Return the problem with the file of the service's variables; empty if there is none."""
    with suppress(OSError):
        if file.stat().st_mode & FOR_OTHERS:
            return f"other users can read {file}; fix it with: chmod 600 {shlex.quote(str(file))}"
    return ""


def _service() -> Service:
    service = find_service(os.environ)
    if service and shutil.which(service.program):
        return service
    raise TillerError(
        "this machine has neither systemd nor launchd; let your own service manager run this "
        "command under your account: "
        f"{shlex.join(DAEMON_COMMAND)}"
    )


def _install(places: Places, service: Service, definition: Definition, *, json: bool) -> int:
    if cache := _cache_of(Path(sys.prefix)):
        raise TillerError(
            f"this tiller is in the cache {cache}, which may be emptied at any time; first install "
            "tiller, with: uv tool install tillerd (or: pipx install tillerd)"
        )
    service.file.parent.mkdir(parents=True, exist_ok=True)
    draft = service.file.with_name(f".{service.file.name}.new")
    draft.write_bytes(service.render(definition))
    draft.chmod(FILE_MODE)
    draft.replace(service.file)
    holder = daemon_pid(places)
    commands = service.enable if holder else (*service.enable, service.start)
    places.state.mkdir(parents=True, exist_ok=True, mode=0o700)
    if problem := _run_all(commands):
        written = "".join(f"\n  {shlex.join(command)}" for command in commands)
        complain(
            f"{service.file} was written, but {service.manager} did not accept it: {problem}. "
            f"In a shell of your login session, run:{written}"
        )
        return 1
    if json:
        print_json(Installed(service.manager, service.name, str(service.file)))
    else:
        say(f"installed {service.name} for {service.manager}: {one_line(str(service.file))}")
    for note in _notes(service, definition, holder):
        complain(note)
    return 0


def _notes(service: Service, definition: Definition, holder: int | None) -> Iterator[str]:
    """Yield what the user has to know or do once the service is installed."""
    if holder:
        yield (
            f"the daemon with pid {holder} keeps running outside of the service; to let the "
            "service take over: tiller daemon restart --drain"
        )
    if service.manager == "systemd" and not (LINGER / _user()).exists():
        yield "the service ends when you log out; to keep it running: loginctl enable-linger"
    if problem := key_file_problem(definition.environment):
        yield problem
    if keys := sorted(missing_keys(definition.environment)):
        where = (
            f"put them into {definition.environment} (chmod 600), as NAME=value"
            if service.manager == "systemd"
            else "in config.toml, say where the keys are, with api_key_keyring, api_key_file or "
            "api_key_command"
        )
        names = ", ".join(keys)
        yield f"the service does not get the variables of this shell, such as {names}; {where}"


def missing_keys(file: Path) -> set[str]:
    """Return variables of this shell that are keys but are not in the service's `file`.

    They look like keys, or the configuration beside `file` names them as keys.
    """
    try:
        lines = file.read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    known = {line.partition("=")[0].strip() for line in lines}
    named = set(_named_keys(file.with_name(CONFIG_FILE)))
    keys = (name for name in os.environ if name.endswith(KEY_ENDING) or name in named)
    return {one_line(name) for name in keys} - known


def _named_keys(configuration: Path) -> Iterator[str]:
    """Yield the variables that a configuration names as keys; none if it can't be read."""
    with suppress(OSError, ValueError):
        for line in configuration.read_text(encoding="utf-8-sig").splitlines():
            if found := _KEY_VARIABLE.search(line):
                yield found[1]


def _uninstall(places: Places, service: Service, arguments: Namespace) -> int:
    was_installed = any(path.is_symlink() or path.exists() for path in service.files)
    if was_installed:
        if arguments.drain:
            stop(places, drain=True)
        # A manager that can't be reached runs no service, so removing the files is enough.
        _run_all(service.disable)
        for path in service.files:
            path.unlink(missing_ok=True)
            _remove_empty(path.parent)
        _run_all(service.forget)
    if arguments.json:
        print_json(Uninstalled(was_installed))
    elif was_installed:
        say(f"uninstalled {service.name}; the next verb that needs the daemon starts it")
    else:
        say("no service is installed")
    return 0


def _remove_empty(directory: Path) -> None:
    """Remove a directory and its parents below the home, up to the first that is not empty."""
    with suppress(OSError):
        while directory != Path(os.environ.get("HOME") or "/"):
            directory.rmdir()
            directory = directory.parent


def _run_all(commands: Iterable[Command]) -> str:
    """Run commands until one fails; returns why it failed, or an empty text."""
    for command in commands:
        try:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, check=False
            )
        except OSError as error:
            return f"{command[0]}: {error.strerror}"
        if done.returncode:
            said = done.stderr.decode(errors="replace").strip() or f"status {done.returncode}"
            return one_line(said).rstrip(".")
    return ""


def _can_confine_without_privileges() -> bool:
    """Whether the sandbox stays the same if setuid programs gain no privileges.

    It does not if bubblewrap is installed setuid, which some systems need.
    """
    command = [*DAEMON_COMMAND, "--sandboxed"]
    limited = ["setpriv", "--no-new-privs", *command]
    if not shutil.which(limited[0]):
        return False
    usual, found = (
        subprocess.run(words, capture_output=True, check=False) for words in (command, limited)
    )
    return (usual.returncode, usual.stdout) == (found.returncode, found.stdout)


def _cache_of(prefix: Path) -> str:
    """Return the cache that contains this Python environment (`uvx`, `pipx run`); else empty."""
    home = Path(os.environ.get("HOME") or "/")
    for variable, default in CACHES:
        cache = Path(os.environ.get(variable) or home / default)
        if prefix.is_relative_to(cache):
            return str(cache)
    return ""


def _user() -> str:
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
