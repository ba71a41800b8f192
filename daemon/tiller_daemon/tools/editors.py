"""The interface through which a running call sees the editors that have files open."""

from typing import Protocol

from tiller_daemon.files.paths import Location


class Editors(Protocol):
    """The editors that show the session their unsaved files. No method raises if there is none."""

    async def unsaved(self, location: Location) -> bytes | None:
        """Return a file's bytes as its editor would save them; waits a few seconds at most.

        None if no editor has unsaved changes to the file, or none can tell. An editor that has not
        yet loaded a newer file from the disk has no changes.
        """
        ...

    async def written(self, location: Location) -> None:
        """Note that a call has changed a file on disk."""
        ...
