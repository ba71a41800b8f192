"""What the tools that change a file share: the check before, the change, and how it is shown."""

from contextlib import suppress
from typing import Final

from tiller_daemon.tools.base import FileVersions, ToolFailure
from tiller_daemon.tools.diff import unified_diff
from tiller_daemon.workspace.files import fingerprint, read_whole, replace, size_of
from tiller_daemon.workspace.paths import Location, PathProblem

PREVIEW_BYTES_MAX: Final = 1024**2
"""The largest file whose change is shown before it is approved: some 10 ms."""


def read_if_there(location: Location) -> bytes | None:
    """Return the bytes of a file; None when there is none. Raises `PathProblem`."""
    return None if size_of(location) is None else read_whole(location)


def read_for_preview(location: Location) -> bytes | None:
    """Return the bytes of a file that is there and small enough for a preview, else None."""
    with suppress(PathProblem):
        size_bytes = size_of(location)
        if size_bytes is not None and size_bytes <= PREVIEW_BYTES_MAX:
            return read_whole(location)
    return None


def require_seen(files: FileVersions, location: Location, data: bytes) -> None:
    """Raise `ToolFailure` unless `data` is what the model last saw of the file."""
    seen = files.seen.get(location.path)
    if seen is None:
        raise ToolFailure(f"{location.text} is there and was not read yet. Read it first.")
    if seen != fingerprint(data):
        raise ToolFailure(
            f"{location.text} has changed since it was last read, and was left as it is. "
            "Read it again, then repeat the change."
        )


def store(files: FileVersions, location: Location, data: bytes) -> None:
    """Make `data` the file's content, and what the model last saw of it. Raises `PathProblem`."""
    replace(location, data)
    files.seen[location.path] = fingerprint(data)


def show_change(location: Location, before: bytes | None, after: bytes | None) -> str:
    """Return the change as a diff for people; None stands for no file."""
    if b"\0" in (before or b"") or b"\0" in (after or b""):
        return f"Binary content of {location.text} changes.\n"
    return unified_diff(_text(before), _text(after), location.text)


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode(errors="replace")
