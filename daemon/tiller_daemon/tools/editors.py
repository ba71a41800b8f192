"""What a running call may know of the editors in which files are open."""

from typing import Protocol

from tiller_daemon.files.paths import Location


class Editors(Protocol):
    """The editors that lend the session their reading. No method raises when there is none."""

    async def unsaved(self, location: Location) -> bytes | None:
        """Return what a file will be once its editor has saved it; waits a few seconds at most.

        None if no editor has changes of it, or none can tell. An editor that has not yet loaded a
        newer file from the disk has no changes.
        """
        ...

    async def written(self, location: Location) -> None:
        """Note that a call has changed a file on disk."""
        ...
