#!/usr/bin/env python3
"""Measures how long a call waits for a hook that says nothing, and for an interrupt to end a hook.

    .venv/bin/python scripts/bench/hooks.py [--count 200]

Hooks run as they do in a session, but from this process.
"""

import argparse
import os
import sys
import time
from pathlib import Path

import trio
from table import Row, print_rows

from tiller_daemon.config import Hook, ProjectHook, SandboxPolicy
from tiller_daemon.hooks.runner import HookRunner
from tiller_daemon.processes.environment import child_environment
from tiller_daemon.sandbox.detect import find_sandbox
from tiller_daemon.sandbox.level import SandboxLevel
from tiller_daemon.sandbox.sandboxes import Sandboxes
from tiller_daemon.session.hooks import HookInput, HookSandbox, HookToolCall

HOOKS = {
    "words, without a shell": Hook("tool_before", ("/bin/true",)),
    "text for the shell": Hook("tool_before", "true"),
    "text that reads what it is told": Hook("tool_before", "cat >/dev/null"),
    "of a project, in a sandbox": ProjectHook("tool_before", ("/bin/true",)),
}
TOLD = HookInput(
    "tool_before",
    "session",
    "turn",
    "/",
    "build",
    "bench/model",
    tool=HookToolCall("bash", {"command": "ls"}, "call", "read"),
)


async def main(count: int) -> None:
    """Measure each hook, then interrupts of a hook that hangs."""
    runner = HookRunner(lambda call_id: child_environment(os.environ, (), "bench", call_id))
    sandboxes = Sandboxes(lambda: find_sandbox(sys.platform), Path.home(), os.environ)
    sandbox = sandboxes.make(SandboxLevel.SESSION, SandboxPolicy(), Path.cwd(), Path.cwd())
    rows: list[Row] = []
    for name, hook in HOOKS.items():
        if isinstance(hook, ProjectHook) and sandbox is None:
            continue
        taken = [await _one_ms(runner, hook, HookSandbox(sandbox)) for _ in range(count)]
        rows.append(Row(f"a hook: {name}", "ms", tuple(taken)))
    ended = [await _end_ms(runner) for _ in range(count // 4)]
    rows.append(Row("interrupt of a hook to its death", "ms", tuple(ended)))
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    print_rows(rows)


async def _one_ms(runner: HookRunner, hook: Hook, sandbox: HookSandbox) -> float:
    began = time.monotonic()
    heard = await runner.ask((hook,), TOLD, "call", sandbox)
    assert not heard.problems, heard
    return (time.monotonic() - began) * 1000


async def _end_ms(runner: HookRunner) -> float:
    hook = Hook("tool_before", "sleep 100")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(runner.ask, (hook,), TOLD, "call", HookSandbox())
        await trio.sleep(0.02)
        began = time.monotonic()
        nursery.cancel_scope.cancel()
    return (time.monotonic() - began) * 1000


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Measure hooks.")
    parser.add_argument("--count", type=int, default=200, help="how often to run each hook")
    trio.run(main, parser.parse_args().count)
