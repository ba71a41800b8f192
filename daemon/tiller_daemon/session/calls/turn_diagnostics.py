"""What language servers tell a turn: no more than what the turn's commands could see."""

from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from tiller_daemon.session.calls.turn_sandboxes import TurnSandboxes
from tiller_daemon.session.services import LanguageServers
from tiller_daemon.tools.base import FileCheck


class TurnDiagnostics(Struct, frozen=True):
    """The language servers in a sandbox of one turn; see `tools.base.Diagnostics`."""

    servers: LanguageServers
    sandboxes: TurnSandboxes

    async def before_change(self, workspace: Path, files: Sequence[Path]) -> FileCheck | None:
        """Record the state of files that a call will change; None if no server handles them."""
        return await self.servers.before_change(workspace, files, self.sandboxes.make_for_reader)

    async def report(self, workspace: Path, path: Path | None) -> str:
        """Return the errors in a file, or in all files opened so far if `path` is None."""
        return await self.servers.report(workspace, path, self.sandboxes.make_for_reader)
