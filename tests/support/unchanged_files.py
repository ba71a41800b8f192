"""Snapshots of workspaces whose files nobody changes, for sessions without any file."""

from collections.abc import Sequence
from pathlib import Path

import trio

from tiller_daemon.snapshots.snapshots import Snapshots


class UnchangedFiles(Snapshots):
    """All snapshots are the same, so turns have no patches, and a revert puts no file back."""

    def __init__(self) -> None:
        super().__init__(Path("/nonexistent"), {}, lambda *_: False, tuple, _never)

    async def take(self, workspace: str, session_id: str, *, thorough: bool = True) -> str:
        await trio.lowlevel.checkpoint()
        return "tree"

    async def missed(self, workspace: str, session_id: str) -> None:
        await trio.lowlevel.checkpoint()

    async def restore(
        self, workspace: str, restores: Sequence[object], submission_id: str
    ) -> tuple[str, ...]:
        assert not restores
        await trio.lowlevel.checkpoint()
        return ()

    def confirm_restore(self, workspace: str) -> None:
        pass


async def _never(submission_id: str) -> bool:
    await trio.lowlevel.checkpoint()
    return False
