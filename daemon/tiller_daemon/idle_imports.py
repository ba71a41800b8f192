"""Imports what some turns need and a start does not, once the daemon has nothing else to do."""

from importlib import import_module

import trio

IDLE_AFTER_S = 0.5
"""Time after the start until the imports; a frontend that has started the daemon comes first."""

IDLE_IMPORTS = ("encodings.idna", "yaml")
"""Modules for which the first turn that needs one of them would wait: 12 ms together."""


async def import_when_idle() -> None:
    """Import in a thread, so that the loop goes on."""
    await trio.sleep(IDLE_AFTER_S)
    for name in IDLE_IMPORTS:
        await trio.to_thread.run_sync(import_module, name)
