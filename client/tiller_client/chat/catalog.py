"""What there is to choose from, which is loaded after the first frame."""

from collections.abc import Callable

from tiller_protocol.answers import AgentSummary, CatalogResult, CommandSummary, ModelSummary


class LoadedCatalog:
    """The daemon's catalog for the workspace; empty until it is loaded."""

    def __init__(self) -> None:
        self.models: tuple[ModelSummary, ...] = ()
        self.agents: tuple[AgentSummary, ...] = ()
        self.commands: tuple[CommandSummary, ...] = ()
        self._is_loaded = False
        self._waiting: list[Callable[[], None]] = []

    def load(self, catalog: CatalogResult) -> None:
        """Take the catalog, and call what waits for it."""
        self.models, self.agents = catalog.models, catalog.agents
        self.commands = catalog.commands
        self._is_loaded = True
        waiting, self._waiting = self._waiting, []
        for call in waiting:
            call()

    def then(self, call: Callable[[], None]) -> None:
        """Call this once the catalog is loaded."""
        if self._is_loaded:
            call()
        else:
            self._waiting.append(call)
