"""The editors of a session to which no frontend lends files."""

from tiller_daemon.files.paths import Location


class NoEditors:
    """Implements `tools.editors.Editors`: no file is open."""

    async def unsaved(self, location: Location) -> bytes | None:
        return None

    async def written(self, location: Location) -> None:
        pass
