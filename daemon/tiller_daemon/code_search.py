"""Connects the tool `sourcegraph` to its configuration and its key.

Tools and models are in layers that do not import each other, so this module joins them.
"""

from collections.abc import Collection, Mapping

from tiller_daemon.config import Sourcegraph
from tiller_daemon.models.keys import Key, KeyUnavailable, NoKey, find_key
from tiller_daemon.tools.base import Tool, ToolFailure
from tiller_daemon.tools.web.sourcegraph import make_sourcegraph


class CodeSearch:
    """The code search tool that is currently configured, if any."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._settings = Sourcegraph()
        self._key: Key = NoKey()
        self._tools: dict[str, Tool] = {}

    def configure(self, settings: Sourcegraph, provider_names: Collection[str]) -> None:
        """Apply `settings`; the key is fetched again only if they have changed.

        `provider_names` are the environment variables with the keys of providers.
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
        """The tool by its name; empty if no server is configured."""
        return self._tools

    def secrets(self) -> tuple[str, ...]:
        """The keys to redact; empty until a key has been fetched."""
        return self._key.secrets


class _Access:
    """Gives the tool access to the key, with errors as `ToolFailure`s."""

    def __init__(self, key: Key) -> None:
        self._key = key

    async def read(self) -> str:
        try:
            return await self._key.read()
        except KeyUnavailable as problem:
            raise ToolFailure(f"Sourcegraph can't be searched. {problem}") from None

    async def renew(self, refused: str) -> bool:
        return await self._key.refresh(refused)

    @property
    def advice(self) -> str:
        return f"The user can fix this: {self._key.advice}"
