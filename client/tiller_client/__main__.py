"""`tiller`: parses the command line, runs the verb, and reports each failure in a sentence.

To start quickly, it imports only the module of the verb that runs.
"""

import gc
import os
import signal
import sys
from argparse import Namespace
from collections.abc import Sequence

from tiller_client import streams
from tiller_client.command_line.arguments import parse
from tiller_client.errors import STATUS_INTERRUPTED, RejectedError, TillerError, UnwritableOutput

MACHINE = "machine."
"""Prefix of families of verbs that work on a machine's files and processes. With `--host`, these
verbs run on that machine."""

HERE = ("schema", "completions", "demo")
"""Families of verbs that don't use the user's daemon."""

STATUS_BROKEN_PIPE = 128 + signal.SIGPIPE


def program() -> None:
    """Run one verb from `sys.argv`, and exit with its status."""
    try:
        sys.exit(main())
    finally:
        gc.freeze()  # else the interpreter's end looks for garbage, for a tenth of a verb's time


def main(command_line: Sequence[str] | None = None) -> int:
    """Run one verb, by default from `sys.argv`, and return the exit status.

    Tracebacks are shown only if TILLER_DEBUG is set.
    """
    gc.disable()  # nothing that is imported is garbage
    streams.open_streams()
    try:
        return _main(command_line)
    except BrokenPipeError:
        return STATUS_BROKEN_PIPE
    except UnwritableOutput as error:
        _complain(str(error))
        return error.status


def _main(command_line: Sequence[str] | None) -> int:
    """Run one verb and report its failure; raises only errors of writing the output."""
    arguments: Namespace | None = None
    try:
        arguments = _parse(command_line)
        status = run(arguments)
        streams.flush(sys.stdout)
    except RejectedError as error:
        if arguments and arguments.json:
            from tiller_client.console import print_json

            print_json(error.answer)
        _complain(str(error))
        return error.status
    except TillerError as error:
        _complain(str(error))
        return error.status
    except KeyboardInterrupt:
        return STATUS_INTERRUPTED
    except BrokenPipeError:
        raise
    except OSError as error:
        _complain(f"{error.filename or 'the system'}: {error.strerror or error}")
        return 1
    except Exception as error:
        return _report_bug(error)
    finally:
        if arguments:
            # Differences concern only a daemon that this shell could restart on this machine.
            _tell_differences(unwanted=arguments.json or arguments.quiet or bool(arguments.host))
    return status


def _parse(command_line: Sequence[str] | None) -> Namespace:
    """Parse the command line; flush what argparse has printed, even if it exits."""
    try:
        return parse(command_line)
    finally:
        streams.flush(sys.stderr)
        streams.flush(sys.stdout)


def run(arguments: Namespace) -> int:
    """Run the verb that `arguments` names; raises `TillerError`."""
    if arguments.host:
        if arguments.family.startswith(MACHINE):
            return _run_there(arguments)
        _choose_host(arguments)
    elif arguments.verb == "exec" and _is_sound(arguments):
        _begin_daemon()
    _import_msgspec()
    name = f"tiller_client.verbs.{arguments.family}"
    __import__(name)  # importlib would be one more module that every start imports
    gc.enable()
    _tell_silence()
    return sys.modules[name].run(arguments)


def _run_there(arguments: Namespace) -> int:
    from tiller_client.connecting.hosts import remote_daemon

    return remote_daemon(arguments.host).run_there(arguments.words)


def _choose_host(arguments: Namespace) -> None:
    """Let the verb use the daemon on `--host`; raises `UsageError` if the verb uses no daemon."""
    from tiller_client.connecting.hosts import remote_daemon
    from tiller_client.connecting.runtime import choose_remote
    from tiller_client.errors import UsageError

    if arguments.family in HERE:
        raise UsageError(f"tiller {arguments.verb} works only on this machine; leave out --host")
    choose_remote(remote_daemon(arguments.host, only_label=arguments.has_label))


def _is_sound(arguments: Namespace) -> bool:
    """Whether it is already certain that `exec` will need the daemon: its arguments are valid."""
    checked_later = (arguments.image, arguments.output_schema, arguments.worktree, arguments.base)
    if any(checked_later) or not (arguments.prompt or "").strip(" -"):
        return False
    from tiller_client.connecting.runtime import stdin_is_piped

    if stdin_is_piped():
        return False
    return os.path.isdir(arguments.directory)  # noqa: PTH112 - pathlib is not imported yet


def _begin_daemon() -> None:
    """Start the daemon if it is not running, while this process imports the verb."""
    from tiller_client.connecting.runtime import my_places
    from tiller_client.connecting.starting import begin

    begin(my_places(), os.environ)


def _import_msgspec() -> None:
    """Import msgspec without typing_extensions, which saves a tenth of a verb's start-up time.

    msgspec prefers an installed typing_extensions to `typing`, but needs it only on older Pythons.
    """
    name = "typing_extensions"
    if name in sys.modules:
        return
    sys.modules[name] = None  # type: ignore[assignment] - documented: it can't be imported
    try:
        import msgspec

        assert msgspec
    finally:
        del sys.modules[name]


def _complain(text: str) -> None:
    from tiller_client.console import complain

    complain(text)


def _tell_silence() -> None:
    """Let a verb that uses the daemon tell the user when the daemon is silent."""
    if "tiller_client.connecting.silence" in sys.modules:
        from tiller_client.connecting.silence import Silence

        Silence.say = _complain


def _tell_differences(*, unwanted: bool) -> None:
    """After the verb, tell a user at a terminal what a restart of the daemon would change."""
    if unwanted or "tiller_client.connecting.connection" not in sys.modules:
        return
    if not (os.isatty(sys.stdout.fileno()) and os.isatty(sys.stderr.fileno())):
        return
    from tiller_client.connecting.connection import DaemonConnection
    from tiller_client.differences import differences

    if latest := DaemonConnection.latest:
        for sentence in differences(latest.hello, latest.environ):
            _complain(sentence)


def _report_bug(error: Exception) -> int:
    import traceback

    if os.environ.get("TILLER_DEBUG"):
        _complain("".join(traceback.format_exception(error)))
        return 1
    place = traceback.extract_tb(error.__traceback__)[-1]
    _complain(
        f"this is a bug: {type(error).__name__}: {error} ({place.filename}:{place.lineno}); "
        "set TILLER_DEBUG=1 to see the traceback"
    )
    return 1


if __name__ == "__main__":
    program()
