"""Runs the daemon and counts what it does; used in place of `-m tiller_daemon`.

On SIGUSR2 it writes the counts so far, as JSON, to the file named by `TILLER_COUNTS`. Counts do not
depend on how fast or how busy the machine is.
"""

import json
import os
import signal
import sqlite3
import sys
from collections import Counter
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import trio
import trio.abc

AUDITED = {
    "open": "files opened",
    "os.listdir": "directories listed",
    "os.scandir": "directories listed",
    "subprocess.Popen": "processes",
    "os.posix_spawn": "processes",
    "os.fork": "processes",
    "_thread.start_new_thread": "threads",
    "import": "imports",
    "socket.connect": "connections",
}

counts: Counter[str] = Counter()

connections: list[sqlite3.Connection] = []
"""Connections whose statements are counted from the next report on; they are not ready yet."""


class Steps(trio.abc.Instrument):
    """Counts how often a task runs, and how often the loop waits or looks for input."""

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        """Count a step of a task."""
        counts["task steps"] += 1

    def before_io_wait(self, timeout: float) -> None:
        """Count a round of the loop."""
        counts["loop rounds"] += 1


def audit(event: str, arguments: tuple[object, ...]) -> None:
    """Count an event of the interpreter."""
    if event == "sqlite3.connect/handle":
        connection = arguments[0]
        assert isinstance(connection, sqlite3.Connection)
        connections.append(connection)
    elif (name := AUDITED.get(event)) is not None:
        counts[name] += 1


def count_statement(statement: str) -> None:
    """Count a statement of SQL."""
    counts["statements"] += 1
    counts["commits"] += statement == "COMMIT"


def report(*_: object) -> None:
    """Write the counts to their file, in one step."""
    while connections:
        with suppress(sqlite3.ProgrammingError):  # closed already, after one look at the log
            connections.pop().set_trace_callback(count_statement)
    counts["context switches"] = _context_switches()
    place = Path(os.environ["TILLER_COUNTS"])
    draft = place.with_suffix(".new")
    draft.write_text(json.dumps(counts))
    draft.rename(place)


def _context_switches() -> int:
    """How often threads of this process have gone to sleep."""
    total = 0
    for status in Path("/proc/self/task").glob("*/status"):
        for line in status.read_text().splitlines():
            if line.startswith("voluntary_ctxt_switches"):
                total += int(line.split()[1])
    return total


def main() -> None:
    """Run the daemon."""
    from tiller_daemon import program
    from tiller_daemon.idle_imports import IDLE_IMPORTS

    # Otherwise the machine's load decides between which two reports these modules are imported.
    for name in IDLE_IMPORTS:
        import_module(name)
    run = trio.run
    trio.run = lambda *arguments: run(*arguments, instruments=[Steps()])
    signal.signal(signal.SIGUSR2, report)
    sys.addaudithook(audit)
    sys.exit(program.run(sys.argv[1:]))


if __name__ == "__main__":
    main()
