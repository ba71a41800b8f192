"""Keeps modules out of the process that libraries import but this daemon never uses.

structlog imports asyncio and, if it is installed, rich; pynng imports asyncio; msgspec imports
typing_extensions. Together these take a third of the time until the daemon is ready, and 5 MB.
"""

import importlib
import sys
from collections.abc import Generator
from contextlib import contextmanager
from types import ModuleType

OPTIONAL = ("rich", "better_exceptions", "typing_extensions")
"""Modules that structlog and msgspec import if they are installed, but do not need."""

UNUSED = ("asyncio",)
"""Modules that structlog and pynng import for functions that nobody here calls."""


@contextmanager
def without_unused() -> Generator[None]:
    """In the block, keep `OPTIONAL` modules from being imported, and `UNUSED` ones from loading.

    Modules that are loaded already are left unchanged.
    """
    absent = [name for name in OPTIONAL if name not in sys.modules]
    sys.modules.update(dict.fromkeys(absent))  # type: ignore[arg-type] - documented: None blocks
    for name in UNUSED:
        sys.modules.setdefault(name, _LoadedOnUse(name))
    try:
        yield
    finally:
        for name in absent:
            del sys.modules[name]


class _LoadedOnUse(ModuleType):
    """Stands for a module until it is used; `importlib`'s own class loads at any import."""

    def __getattr__(self, name: str) -> object:
        """Load the module at the first use of one of its names, and replace this object."""
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(importlib.import_module(self.__name__), name)
