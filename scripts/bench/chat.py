"""Measures `tiller chat` and `tiller board`: start, keys, CPU time and memory.

Includes typing while an answer streams, a session with 10,000 items, a link that shows everything
300 ms late, and boards with 10 and with 1,000 sessions.

    .venv/bin/python scripts/bench/chat.py

A scripted model streams 1,000 pieces in a second. Meanwhile the script types keys, each as soon as
the previous key is on the screen.
"""

import os
import resource
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests")]

import trio  # noqa: E402

from support.chat import ChatTerminal  # noqa: E402 - found there
from support.daemon import Daemon  # noqa: E402
from tiller_client.chat.terminal.painter import BEGIN  # noqa: E402
from tiller_client.connecting.connection import DaemonConnection  # noqa: E402
from tiller_daemon.models.scripted import ScriptStep, TextPart, WaitPart  # noqa: E402
from tiller_protocol.answers import Created, SessionListResult  # noqa: E402
from tiller_protocol.ops import (  # noqa: E402
    SessionConfigure,
    SessionCreate,
    SessionList,
    UserInput,
)

STARTS = 5
ITEMS = 10_000
LATE_S = 0.3
BLOCKS, PIECES = 60, 17
"""Blocks in an answer, and pieces in a block; a block is a paragraph, and 60 take a second."""

KEYS_AT_ONCE = 20
"""After this many keys the text is cleared, so that it stays on one row."""

BOARDS = (10, 1_000)
"""Numbers of sessions on a board."""

BOARD_KEYS = 60
"""Keys that are pressed on a board, each of which moves to another session."""

BOARD_READY, DOWN, UP = "? keys", "\x1b[B", "\x1b[A"
READY, CLEAR = "write a message", "\x15"
PARAGRAPH = "Lorem ipsum dolor **sit** amet, `code` and more words here. " * 3 + "\n\n"


def cpu_s(pid: int) -> float:
    """Return the CPU seconds that a process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_mb(pid: int) -> float:
    """Return the resident memory of a process in megabytes."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


async def start(daemon: Daemon, *arguments: str) -> tuple[ChatTerminal, float, float]:
    """Open a chat; return it, the seconds until it is drawn, and those until it shows a key.

    The terminal emulator draws nothing meanwhile, as many lines would take it longer than tiller.
    """
    began = time.perf_counter()
    chat = ChatTerminal.start(daemon, "chat", *arguments)
    drawn, typed = await chat.takes(READY, "~")
    chat.press(CLEAR)
    await chat.shows(READY)
    return chat, drawn - began, typed - began


async def starts(daemon: Daemon, *arguments: str) -> str:
    """Open a chat several times and describe how long it takes."""
    drawn: list[float] = []
    typed: list[float] = []
    cpu: list[float] = []
    for _ in range(STARTS):
        before = _children_cpu_s()
        chat, first_frame, first_key = await start(daemon, *arguments)
        chat.press("\x04")
        await chat.end()
        chat.close()
        drawn.append(first_frame)
        typed.append(first_key)
        cpu.append(_children_cpu_s() - before)
    frame, key = median(drawn) * 1000, median(typed) * 1000
    return f"{frame:8.0f} ms, first key {key:.0f} ms, {median(cpu):.2f} s CPU"


def _children_cpu_s() -> float:
    """Return the CPU seconds of the child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def fill(daemon: Daemon) -> str:
    """Make a session with many items; return its id."""
    with DaemonConnection(daemon.places, "bench") as connection:
        created = connection.ask(SessionCreate(str(daemon.scripts)), Created)
        for number in range(ITEMS):
            text = f"{number}: {PARAGRAPH}"
            connection.submit(UserInput(created.session_id, text, no_reply=True))
    return created.session_id


async def type_late(chat: ChatTerminal) -> tuple[float, int]:
    """Type on a link that delays everything.

    Return the median seconds from key to screen, and the most frames that were under way at once.
    """
    chat.press("go\r")
    taken: list[float] = []
    frames = 0
    while "completed" not in chat.text:
        began = time.perf_counter()
        row = chat.cursor
        chat.press("x")
        while chat.cursor == row and "completed" not in chat.text:
            seen = len(chat.written)
            await trio.sleep(LATE_S)
            await chat.read()
            frames = max(frames, chat.written.count(BEGIN, seen))
        taken.append(time.perf_counter() - began)
    return median(taken), frames


async def type_while_streaming(chat: ChatTerminal) -> list[float]:
    """Type keys until the turn has ended; return the seconds from each key to its echo."""
    chat.press("go\r")
    await chat.shows("steer with Enter")
    taken: list[float] = []
    while "completed" not in chat.text:
        number = len(taken) % KEYS_AT_ONCE
        if number == 0 and taken:
            chat.press(CLEAR)
            await chat.until(lambda: chat.cursor[1] == 2)
        began = time.perf_counter()
        chat.press("x")
        await chat.until(lambda number=number: chat.cursor[1] >= 3 + number)
        taken.append(time.perf_counter() - began)
    return taken


async def measure_board(daemon: Daemon, sessions: int) -> str:
    """Describe how long a board takes to its first frame, and keys until their effect is shown."""
    drawn: list[float] = []
    keyed: list[float] = []
    first: list[float] = []
    for _ in range(STARTS):
        began = time.perf_counter()
        board = ChatTerminal.start(daemon, "board", size=(120, 40))
        await board.sees(BOARD_READY, f"{sessions} sessions")
        drawn.append(board.read_at - began)
        before = cpu_s(board.pid)
        for number in range(BOARD_KEYS):
            row = board.rows[board.cursor[0]]
            pressed = time.perf_counter()
            board.press(DOWN if number // 8 % 2 == 0 else UP)
            await board.until(lambda board=board, row=row: board.rows[board.cursor[0]] != row)
            (keyed if number else first).append(board.read_at - pressed)
        cpu_ms = (cpu_s(board.pid) - before) * 1000 / BOARD_KEYS
        memory = memory_mb(board.pid)
        board.press("q")
        await board.end()
        board.close()
    keyed.sort()
    slowest = keyed[int(len(keyed) * 0.99)]
    keys = f"key {median(keyed) * 1000:.1f} ms, p99 {slowest * 1000:.1f} ms, {cpu_ms:.1f} ms CPU"
    start = f"{median(drawn) * 1000:8.0f} ms, first key {median(first) * 1000:.0f} ms"
    return f"{start}, {keys}, {memory:.0f} MB"


def fill_board(daemon: Daemon, sessions: int) -> None:
    """Make sessions until there are so many, of which every tenth has run a turn."""
    with DaemonConnection(daemon.places, "bench") as connection:
        have = len(connection.ask(SessionList(limit=1_000), SessionListResult).sessions)
        model = daemon.script(ScriptStep(parts=(TextPart("All done."),), repeat=True))
        for number in range(have, sessions):
            create = SessionCreate(str(daemon.scripts), model=model)
            created = connection.ask(create, Created)
            title = f"The task with number {number}, in a few words"
            connection.submit(SessionConfigure(created.session_id, title=title))
            if number % 10 == 0:
                connection.submit(UserInput(created.session_id, "go"))


def script(daemon: Daemon) -> str:
    """Write the script of a model that streams for a second; return the model's name."""
    pause = WaitPart(1 / BLOCKS)
    parts = tuple(p for _ in range(BLOCKS) for p in (TextPart(PARAGRAPH, pieces=PIECES), pause))
    return daemon.script(ScriptStep(parts=parts))


async def measure() -> None:
    """Print every figure."""
    with tempfile.TemporaryDirectory() as home, Daemon(Path(home)) as daemon:
        workspace = daemon.scripts
        model = script(daemon)
        new = ("-C", str(workspace), "-m", model)
        print(f"start to first frame     {await starts(daemon, *new)}")
        filled = await trio.to_thread.run_sync(fill, daemon)
        print(f"the same, {ITEMS:,} items   {await starts(daemon, filled)}")
        chat, _, _ = await start(daemon, *new)
        late, frames = await type_late(chat)
        chat.close()
        print(f"key to screen, 300 ms late {late * 1000:6.0f} ms, {frames} frames on the way")
        chat, _, _ = await start(daemon, "-C", str(workspace), "-m", script(daemon))
        before = cpu_s(chat.process.pid)
        taken = sorted(await type_while_streaming(chat))
        used = cpu_s(chat.process.pid) - before
        memory = memory_mb(chat.process.pid)
        chat.close()
        print(f"key to screen, median    {median(taken) * 1000:8.1f} ms, {len(taken)} keys")
        print(f"key to screen, p99       {taken[int(len(taken) * 0.99)] * 1000:8.1f} ms")
        print(f"CPU of 1,000 pieces      {used * 1e6 / (BLOCKS * PIECES):8.0f} ms, keys included")
        print(f"memory                   {memory:8.1f} MB")
    with tempfile.TemporaryDirectory() as home, Daemon(Path(home)) as daemon:
        for sessions in BOARDS:
            await trio.to_thread.run_sync(fill_board, daemon, sessions)
            print(f"board, {sessions:5,} sessions    {await measure_board(daemon, sessions)}")


if __name__ == "__main__":
    trio.run(measure)
