"""Connects the search tools `sourcegraph` and `web_search` to their configuration and their keys.

The layers of tools and models do not import each other, so this module joins them.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Generic, TypeVar

from tiller_daemon.config import Configuration, Sourcegraph, WebSearch
from tiller_daemon.models.keys import Key, KeyUnavailable, NoKey, find_key
from tiller_daemon.tools.base import Tool, ToolFailure
from tiller_daemon.tools.web.keyed_server import Access
from tiller_daemon.tools.web.sourcegraph import make_sourcegraph
from tiller_daemon.tools.web.web_search import make_web_search

_Settings = TypeVar("_Settings", Sourcegraph, WebSearch)


class SearchTools:
    """The search tools that are currently configured."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._sourcegraph = _SearchTool(environ, Sourcegraph(), "Sourcegraph", _sourcegraph)
        self._web = _SearchTool(environ, WebSearch(), "The web", _web_search)

    def configure(self, configuration: Configuration, provider_names: Collection[str]) -> None:
        """Apply the configuration; a key is fetched again only if its settings have changed.

        `provider_names` are the environment variables with providers' keys.
        """
        self._sourcegraph.configure(configuration.sourcegraph, provider_names)
        self._web.configure(configuration.web_search, provider_names)

    def tools(self) -> Mapping[str, Tool]:
        """Return the tools with a configured server, by name."""
        return {tool.name: tool for one in (self._sourcegraph, self._web) if (tool := one.tool)}

    def secrets(self) -> tuple[str, ...]:
        """Return the keys to redact; empty until a key has been fetched."""
        return (*self._sourcegraph.key.secrets, *self._web.key.secrets)


class _SearchTool(Generic[_Settings]):
    """A search tool, its settings and its key. `searched` names what the tool searches."""

    def __init__(
        self,
        environ: Mapping[str, str],
        settings: _Settings,
        searched: str,
        make: Callable[[_Settings, Access], Tool | None],
    ) -> None:
        self._environ = environ
        self._settings = settings
        self._searched = searched
        self._make = make
        self.key: Key = NoKey()
        self.tool: Tool | None = None

    def configure(self, settings: _Settings, provider_names: Collection[str]) -> None:
        if settings == self._settings:
            return
        self._settings = settings
        self.key = find_key(settings, self._environ, provider_names) or NoKey()
        self.tool = self._make(settings, _KeyAccess(self.key, self._searched))


def _sourcegraph(settings: Sourcegraph, access: Access) -> Tool | None:
    return make_sourcegraph(settings.endpoint, access) if settings.endpoint else None


def _web_search(settings: WebSearch, access: Access) -> Tool | None:
    return make_web_search(settings.engine, settings.endpoint, access) if settings.engine else None


class _KeyAccess:
    """Gives a tool access to its key, and turns errors into `ToolFailure`s."""

    def __init__(self, key: Key, searched: str) -> None:
        self._key = key
        self._searched = searched

    async def read(self) -> str:
        try:
            return await self._key.read()
        except KeyUnavailable as problem:
            raise ToolFailure(f"{self._searched} can't be searched. {problem}") from None

    async def renew(self, refused: str) -> bool:
        return await self._key.refresh(refused)

    @property
    def advice(self) -> str:
        return f"The user can fix this: {self._key.advice}"
