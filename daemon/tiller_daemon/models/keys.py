"""Where a provider's key comes from. The key itself goes into a header and nowhere else.

A key says what may be told to people about it (`advice`), and holds what must never be told
(`secrets`). What sends it, and what takes it out of a server's words, is in `http_client`.
"""

from collections.abc import Mapping
from typing import Protocol

import trio


class KeyProblem(Exception):
    """There is no key; the message is half a sentence that says why and what to do."""


class Key(Protocol):
    """One provider's key.

    `secrets` are the keys that were read so far. `advice` is a sentence for when a server does not
    accept the key.
    """

    @property
    def secrets(self) -> tuple[str, ...]: ...  # noqa: D102 - said above

    @property
    def advice(self) -> str: ...  # noqa: D102 - said above

    def problem(self) -> str:
        """Why there is no key, as far as can be seen at once; empty when nothing is wrong."""
        ...

    async def read(self) -> str:
        """The key; raises `KeyProblem`."""
        ...


class NoKey:
    """For servers that want none."""

    secrets: tuple[str, ...] = ()
    advice = "Name the variable that holds it with `api_key_env`."

    def problem(self) -> str:
        """Nothing is wrong."""
        return ""

    async def read(self) -> str:
        """No key."""
        await trio.lowlevel.checkpoint()
        return ""


class KeyVariable:
    """A key in the environment of the daemon."""

    def __init__(self, name: str, environ: Mapping[str, str]) -> None:
        self._name = name
        self._key = environ.get(name, "").strip()

    @property
    def secrets(self) -> tuple[str, ...]:
        """The key, if there is one."""
        return (self._key,) if self._key else ()

    @property
    def advice(self) -> str:
        """What to look at."""
        return f"{'Check' if self._key else 'Set'} the variable {self._name}."

    def problem(self) -> str:
        """Whether the variable is set."""
        if self._key:
            return ""
        return (
            f"its key is expected in the variable {self._name}, which is not set where the "
            "daemon was started; set it and run `tiller daemon restart`"
        )

    async def read(self) -> str:
        """The key, as it was when the daemon started."""
        await trio.lowlevel.checkpoint()
        if not self._key:
            raise KeyProblem(self.problem())
        return self._key
