"""The daemon's catalog for the chat; loaded after the first frame, and anew for each menu."""

from pathlib import Path

from tiller_client.chat.files import WorkspaceFiles
from tiller_client.connecting.runtime import chosen_remote
from tiller_protocol.answers import AgentSummary, CatalogResult, CommandSummary, ModelSummary


class LoadedCatalog:
    """The daemon's catalog for the workspace; empty until it is loaded."""

    def __init__(self) -> None:
        self.models: tuple[ModelSummary, ...] = ()
        self.agents: tuple[AgentSummary, ...] = ()
        self.commands: tuple[CommandSummary, ...] = ()
        self.sandbox = ""
        """The sandbox mode, unless the session has its own."""
        self._files: WorkspaceFiles | None = None

    def load(self, catalog: CatalogResult) -> None:
        """Take the catalog."""
        self.models, self.agents = catalog.models, catalog.agents
        self.commands = catalog.commands
        self.sandbox = catalog.sandbox.mode if catalog.sandbox else ""

    async def refresh_files(self, workspace: str) -> None:
        """List the files of the workspace anew, unless they are on another machine."""
        if chosen_remote():
            return
        self._files = self._files or WorkspaceFiles(Path(workspace))
        await self._files.refresh()

    def files(self, typed: str, limit: int) -> list[str]:
        """The files that match the typed text best."""
        return self._files.matches(typed, limit) if self._files else []
