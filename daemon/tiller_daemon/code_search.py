"""The tool `sourcegraph` as it is configured: made for its server, with its key.

Composition: the tool knows no place for keys, and what finds keys knows no tool.
"""

from collections.abc import Collection, Mapping

from tiller_daemon.config import Sourcegraph
from tiller_daemon.models.keys import Key, KeyUnavailable, NoKey, find_key
from tiller_daemon.tools.base import Tool, ToolFailure
from tiller_daemon.tools.web.sourcegraph import make_sourcegraph


class CodeSearch:
    """The search that is configured now, if any."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._settings = Sourcegraph()
        self._key: Key = NoKey()
        self._tools: dict[str, Tool] = {}

    def configure(self, settings: Sourcegraph, provider_names: Collection[str]) -> None:
        """Take over a configuration; a key is got anew only when that is another one.

        `provider_names` are the variables that keys of providers are in.
        """
        if settings == self._settings:
            return
        self._settings = settings
        self._key = find_key(settings, self._environ, provider_names) or NoKey()
        self._tools = {}
        if settings.endpoint:
            tool = make_sourcegraph(settings.endpoint, _Access(self._key))
            self._tools = {tool.name: tool}

    def tools(self) -> Mapping[str, Tool]:
        """The tool, by its name; nothing without a server."""
        return self._tools

    def secrets(self) -> tuple[str, ...]:
        """The key, so far as it is known."""
        return self._key.secrets


class _Access:
    """The tool's way to the key."""

    def __init__(self, key: Key) -> None:
        self._key = key

    async def read(self) -> str:
        try:
            return await self._key.read()
        except KeyUnavailable as problem:
            raise ToolFailure(f"Sourcegraph can't be searched: {problem}.") from None

    async def renew(self, refused: str) -> bool:
        return await self._key.refresh(refused)

    @property
    def advice(self) -> str:
        return f"The user can see to it: {self._key.advice}"
