"""`daemon run|start|stop|status|restart|backup|logs`: the daemon's process."""

import contextlib
import os
import signal
import sys
import time
from argparse import Namespace
from pathlib import Path
from typing import NoReturn

import msgspec

from tiller_client.connecting.connection import DaemonConnection
from tiller_client.connecting.runtime import (
    daemon_pid,
    daemon_version,
    is_running,
    my_places,
    read_token,
    runtime_of,
)
from tiller_client.connecting.starting import DAEMON_COMMAND, OUTPUT_LINES_SHOWN, last_lines
from tiller_client.console import complain, confirm, flush, print_json, say
from tiller_client.errors import (
    NoAnswer,
    NoDaemon,
    NotPrivate,
    StartFailed,
    TillerError,
    UsageError,
)
from tiller_client.rendering.text import count, counted, one_line, sanitized, seconds
from tiller_client.verbs.machine.program import ask_program
from tiller_client.verbs.machine.service_state import service_state
from tiller_protocol.answers import DaemonStatusResult
from tiller_protocol.daemon import Backup, BackupResult
from tiller_protocol.ops import DaemonStatus, Shutdown
from tiller_protocol.places import (
    DAEMON_OUTPUT_FILE,
    EVENTS_SOCKET,
    OPS_SOCKET,
    TOKEN_FILE,
    Places,
)

NAME = "tiller daemon"

STOP_DEADLINE_S = 15.0
"""Time that a daemon has to stop before it is killed. The daemon gives its turns 5 s to end."""

SAID_AFTER_S = 1.0
"""Time after which the user is told that running turns have to end first."""

POLL_S = 0.02
FOLLOW_S = 0.2


class NotRunning(msgspec.Struct, tag_field="type", tag="not_running"):
    """Result of `status --json` if no daemon is running."""


class Unreachable(msgspec.Struct, tag_field="type", tag="unreachable"):
    """Result of `status --json` if a daemon is running but can't be asked."""

    pid: int | None
    daemon_version: str
    """Empty if the daemon has not written it."""
    problem: str


class LogLine(msgspec.Struct):
    """A line of the daemon's output, as `logs --json` prints it."""

    line: str


class Stopped(msgspec.Struct, tag_field="type", tag="stopped"):
    """Result of `stop --json`; `was_running` is false if there was no daemon to stop."""

    was_running: bool


def run(arguments: Namespace) -> int:
    """Run one action on the daemon."""
    places = my_places()
    match arguments.verb:
        case "run":
            return _run(arguments)
        case "start":
            return _status(places, json=arguments.json, may_start=True, link=arguments.link)
        case "stop":
            if not _may_stop(places, arguments, "stopped"):
                return 1
            was_running = stop(places, drain=arguments.drain)
            if arguments.json:
                print_json(Stopped(was_running))
            else:
                say("stopped" if was_running else "no daemon is running")
            return 0
        case "status":
            return _status(places, json=arguments.json, may_start=False, link=arguments.link)
        case "restart":
            _check_successor()
            if not _may_stop(places, arguments, "restarted"):
                return 1
            stop(places, drain=arguments.drain)
            return _status(places, json=arguments.json, may_start=True)
        case "backup":
            return _backup(places, Path(arguments.file), json=arguments.json)
        case "logs":
            return _logs(places, arguments)
        case verb:
            raise AssertionError(f"there is no verb {verb} here")


def stop(places: Places, *, drain: bool) -> bool:
    """Stop the daemon and wait until its lock is free; returns false if none was running.

    With `drain` the wait has no limit, as turns may take long; Ctrl-C ends only the wait.
    """
    if not is_running(places):
        return False
    try:
        with DaemonConnection(places, NAME, may_start=False) as connection:
            connection.submit(Shutdown("drain" if drain else "now"))
    except NoDaemon:
        pass  # it has stopped before it answered, or is stopping
    except NotPrivate:
        raise
    except TillerError as error:
        # The daemon's socket was removed, it hangs, or it speaks another version of the protocol.
        if drain and not isinstance(error, NoAnswer):
            raise TillerError(
                f"{error}. The daemon can't be asked to wait for its turns; without --drain, "
                "they are interrupted"
            ) from error
        _kill(places, signal.SIGTERM)
        drain = False
    begun = time.monotonic()
    told = not drain
    deadline = None if drain else begun + STOP_DEADLINE_S
    while is_running(places):
        if not told and time.monotonic() > begun + SAID_AFTER_S:
            complain("waiting for the running turns to end; Ctrl-C stops only this wait")
            told = True
        if deadline and time.monotonic() > deadline:
            complain(f"the daemon did not end within {STOP_DEADLINE_S:g} s, so it was killed")
            _kill(places, signal.SIGKILL)
            deadline = None
        time.sleep(POLL_S)
    DaemonConnection.latest = None
    return True


def _check_successor() -> None:
    """Raise `TillerError` if a daemon that is started now would fail before it listens.

    The check runs the daemon's program until it has imported everything and read the configuration.
    """
    checked = ask_program("--check-config")
    if not checked.good:
        problem = "\n".join(checked.message.splitlines()[-OUTPUT_LINES_SHOWN:])
        raise TillerError(f"nothing was stopped, because a new daemon could not start: {problem}")


def _may_stop(places: Places, arguments: Namespace, done: str) -> bool:
    """Ask whether to interrupt the running turns, unless the options say it; or say it was not."""
    may = arguments.drain or arguments.yes or _may_interrupt(places, done)
    if not may:
        say(f"nothing was {done}")
    return may


def _may_interrupt(places: Places, done: str) -> bool:
    """Ask whether to interrupt the running turns, if there are any; raises `UsageError`.

    A daemon that does not answer, or speaks another version of the protocol, can't say, and a
    stop may be what it needs.
    """
    try:
        with DaemonConnection(places, NAME, may_start=False) as connection:
            running = connection.ask(DaemonStatus(), DaemonStatusResult).turns_running
    except NotPrivate:
        raise
    except TillerError:
        return True
    if not running:
        return True
    turns = counted(running, "turn")
    if not sys.stdin.isatty():
        raise UsageError(
            f"{turns} would be interrupted, so nothing was {done}; to let running turns end "
            "first, add --drain; to interrupt them, add --yes"
        )
    return confirm(f"Interrupt {turns}? (With --drain, running turns end first.)")


def _kill(places: Places, number: signal.Signals) -> None:
    if pid := daemon_pid(places):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _run(arguments: Namespace) -> NoReturn:
    """Replace this process with the daemon."""
    command = list(DAEMON_COMMAND)
    if arguments.config:
        command += ["--config", arguments.config]
    if arguments.json or arguments.log_format:
        command += ["--log-format", arguments.log_format or "json"]
    os.execv(command[0], command)  # noqa: S606 - no shell is wanted


def _status(places: Places, *, json: bool, may_start: bool, link: bool = False) -> int:
    try:
        with DaemonConnection(places, NAME, may_start=may_start) as connection:
            status = connection.ask(DaemonStatus(), DaemonStatusResult)
            places = places._replace(runtime=runtime_of(places))
    except NoDaemon as error:
        if json:
            print_json(_with_places(NotRunning(), places))
        else:
            say(str(error))
            _say_service(None)
        return 1
    except (StartFailed, NotPrivate):
        raise
    except TillerError as error:
        _say_unreachable(places, str(error), json=json)
        return 1
    if json:
        print_json(_with_places(status, places) | (_link(places) if link else {}))
        return 0
    memory = f", {status.rss_bytes / 1024 / 1024:.0f} MiB" if status.rss_bytes else ""
    say(
        f"tillerd {status.daemon_version}, pid {status.pid}, up {seconds(status.uptime_s)}{memory}"
        f"{', draining' if status.draining else ''}"
    )
    say(
        f"turns running {status.turns_running}, sessions {status.sessions}, "
        f"loaded sessions {status.sessions_loaded}"
    )
    say(f"log      {one_line(status.log_path)}")
    for problem in status.problems:
        complain(problem)
    say(f"runtime  {one_line(str(places.runtime))}")
    _say_service(status.pid)
    return 0


def _say_unreachable(places: Places, problem: str, *, json: bool) -> None:
    """Say what is known about a daemon that can't be asked, as it speaks another protocol."""
    pid, version = daemon_pid(places), daemon_version(places)
    if json:
        used = places._replace(runtime=runtime_of(places))
        print_json(_with_places(Unreachable(pid, version, problem), used))
        return
    say(f"tillerd {one_line(version) or 'of unknown version'}, pid {pid or 'unknown'}")
    complain(problem)
    say(f"runtime  {one_line(str(runtime_of(places)))}")
    _say_service(pid)


def _with_places(struct: msgspec.Struct, places: Places) -> dict[str, object]:
    """Return a result with the paths that a frontend needs to connect."""
    return {
        **msgspec.to_builtins(struct),
        "ops_socket": str(places.runtime / OPS_SOCKET),
        "events_socket": str(places.runtime / EVENTS_SOCKET),
        "token_file": str(places.runtime / TOKEN_FILE),
    }


def _link(places: Places) -> dict[str, object]:
    """Return what `--host` on another machine needs besides the paths."""
    return {"home": str(Path.home()), "token": read_token(places.runtime)}


def _say_service(pid: int | None) -> None:
    if state := service_state(pid):
        say(f"service  {state.text}")


def _backup(places: Places, file: Path, *, json: bool) -> int:
    with DaemonConnection(places, NAME) as connection:
        made = connection.ask(Backup(str(file.absolute())), BackupResult)
    if json:
        print_json(made)
    else:
        say(f"{one_line(made.path)}: all sessions, {count(made.size_bytes)}B")
    return 0


def _logs(places: Places, arguments: Namespace) -> int:
    path = places.state / DAEMON_OUTPUT_FILE
    if not path.exists():
        raise TillerError(
            f"{path} does not exist: no daemon has run in the background; `tiller daemon run` "
            "writes its log to stderr"
        )
    offset = path.stat().st_size
    _print_lines(last_lines(path, arguments.lines), json=arguments.json)
    while arguments.follow:
        time.sleep(FOLLOW_S)
        size = path.stat().st_size
        offset = min(offset, size)
        with path.open("rb") as file:
            file.seek(offset)
            data = file.read(size - offset)
        whole, end, _ = data.rpartition(b"\n")
        offset += len(whole + end)
        _print_lines(whole.decode(errors="replace"), json=arguments.json)
    return 0


def _print_lines(text: str, *, json: bool) -> None:
    for line in text.splitlines():
        if json:
            print_json(LogLine(line))
        else:
            say(sanitized(line))
    flush()
