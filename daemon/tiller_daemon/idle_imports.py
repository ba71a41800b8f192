"""Imports modules that some turns need but a start does not, once the daemon is idle."""

from importlib import import_module

import trio

IDLE_AFTER_S = 0.5
"""How long to wait after the start, because a frontend that started the daemon comes first."""

IDLE_IMPORTS = ("encodings.idna", "yaml")
"""The modules to import; the first turn that needs them would otherwise wait 12 ms."""


async def import_when_idle() -> None:
    """Import the modules in a thread, so that the event loop keeps running."""
    await trio.sleep(IDLE_AFTER_S)
    for name in IDLE_IMPORTS:
        await trio.to_thread.run_sync(import_module, name)
