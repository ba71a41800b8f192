"""The program `tillerd`: parses arguments, loads the configuration, sets up logging, and runs."""

import logging
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TextIO, cast

import structlog
import trio

from tiller_daemon.app import serve
from tiller_daemon.arguments import parser
from tiller_daemon.config import Configuration, ConfigurationError, load_configuration
from tiller_daemon.isolation import untrusted_entries
from tiller_daemon.options import Options
from tiller_daemon.sandbox_setup import run_sandboxed
from tiller_daemon.service_manager import EXIT_TAKEN, has_service_manager, notify_service_manager
from tiller_daemon.store.base import LogError
from tiller_daemon.store.checking import check_log
from tiller_daemon.transport.nng import TransportError
from tiller_daemon.transport.runtime import AlreadyRunning, NotNeeded, RuntimeDirectoryError
from tiller_protocol.places import CONFIG_FILE, LOG_FILE, find_places

EXIT_FAILED = 1
EXIT_USAGE = 2


def run(arguments: Sequence[str]) -> int:
    """Run the daemon with these arguments and return the exit status.

    0 means that the daemon was stopped, or that another daemon is already running.
    """
    parsed = parser().parse_args(arguments)
    if home := os.environ.get("TILLER_HOME"):
        # Hooks and commands inherit it, and run in other directories.
        os.environ["TILLER_HOME"] = str(Path(home).absolute())
    places = find_places(
        os.environ, sys.platform, os.getuid(), state=parsed.state, runtime=parsed.runtime
    )

    def load(project: Path | None = None) -> Configuration:
        overrides, trusted = parsed.override, project is not None
        return load_configuration(
            places, os.environ, overrides, project, trusted=trusted, file=parsed.config
        )

    try:
        configuration = load()
    except ConfigurationError as error:
        return _fail(error, EXIT_USAGE)
    file = parsed.config or places.config / CONFIG_FILE
    if parsed.check_log:
        return _check_log(places.state / LOG_FILE)
    if parsed.check_config:
        where = file if file.exists() else "there is no file, so the defaults apply"
        print(f"The configuration is valid: {where}")
        return 0
    if parsed.sandboxed is not None:
        return run_sandboxed(places, configuration, parsed.sandboxed)
    log_format = parsed.log_format or ("console" if sys.stderr.isatty() else "json")
    _set_up_logging(configuration, console=log_format == "console")
    if left_out := untrusted_entries():
        structlog.get_logger().info("path_entries_not_trusted", entries=left_out)
    try:
        options = Options(places, configuration, load, load, file, parsed.after_crash)
        trio.run(serve, options)
    except (AlreadyRunning, NotNeeded) as error:
        # This is no failure: two frontends may each start a daemon, and one daemon is enough.
        return _fail(error, EXIT_TAKEN if has_service_manager() else 0)
    except (LogError, RuntimeDirectoryError, TransportError) as error:
        return _fail(error, EXIT_FAILED)
    except BaseExceptionGroup as group:
        cause = _cause(group)
        if cause is None:
            raise
        return _fail(cause, EXIT_FAILED)
    return 0


def _check_log(path: Path) -> int:
    try:
        check_log(path)
    except LogError as error:
        return _fail(error, EXIT_FAILED)
    print(f"{path} can be read and written" if path.exists() else f"{path} does not exist yet")
    return 0


def _cause(group: BaseExceptionGroup[BaseException]) -> LogError | None:
    """Return the log's failure that ended all tasks, if nothing else went wrong."""
    failed, rest = group.split(LogError)
    while isinstance(failed, BaseExceptionGroup):
        failed = failed.exceptions[0]
    return failed if rest is None else None


_TRACEBACKS = structlog.processors.ExceptionRenderer(
    structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
)
"""Formats tracebacks without the values of local variables, which may hold keys."""


class _StandardError:
    """Writes log lines to stderr. A line that can't be written (full disk, closed pipe) is lost."""

    def write(self, text: str) -> None:
        with suppress(OSError):
            os.write(2, text.encode(errors="replace"))

    def flush(self) -> None:
        """Do nothing: lines are not buffered."""


def _fail(error: Exception, status: int) -> int:
    """Say why the daemon ends, also to systemd, whose `status` command then shows it."""
    notify_service_manager(f"STATUS={' '.join(str(error).split())}")
    sys.stderr.write(f"tillerd: {error}\n")
    return status


def _set_up_logging(configuration: Configuration, *, console: bool) -> None:
    """Log to stderr: text for a `console`, otherwise one JSON object per line."""
    level = logging.getLevelNamesMapping()[configuration.log_level.upper()]
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *(
                [
                    structlog.dev.ConsoleRenderer(
                        colors=sys.stderr.isatty(),
                        exception_formatter=structlog.dev.plain_traceback,
                    )
                ]
                if console
                else [_TRACEBACKS, structlog.processors.JSONRenderer()]
            ),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(file=cast("TextIO", _StandardError())),
        cache_logger_on_first_use=True,
    )
