"""Keeps modules out of the process that libraries import but this daemon never uses.

structlog imports rich where that is installed, and asyncio, as does pynng; msgspec imports
typing_extensions. Together these take a third of the time until the daemon is ready, and 5 MB.
"""

import importlib
import sys
from collections.abc import Generator
from contextlib import contextmanager
from types import ModuleType

OPTIONAL = ("rich", "better_exceptions", "typing_extensions")
"""What structlog and msgspec do without where it is not installed."""

UNUSED = ("asyncio",)
"""What structlog and pynng import for functions that nobody here calls."""


@contextmanager
def without_unused() -> Generator[None]:
    """While entered, `OPTIONAL` modules can't be imported, and `UNUSED` ones are not loaded.

    Modules that are loaded already are left as they are.
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
    """Stands for a module until somebody uses it; `importlib` has a class that any import loads."""

    def __getattr__(self, name: str) -> object:
        """Load the module, for good, at the first use of one of its names."""
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(importlib.import_module(self.__name__), name)
