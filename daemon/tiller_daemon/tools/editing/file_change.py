"""Common parts of the tools that change files: the check before, the change, and its diff."""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Final, TypeVar

import trio
from msgspec import Meta, Struct

from tiller_daemon.files.changes import Change, change_all
from tiller_daemon.files.paths import Location, PathProblem
from tiller_daemon.files.whole_files import fingerprint, read_whole, state_of
from tiller_daemon.redaction.urls import SECRET_PLACEHOLDER
from tiller_daemon.tools.base import FileVersions, ToolEnvironment, ToolFailure, ToolResult
from tiller_daemon.tools.editing.diff import unified_diff
from tiller_daemon.tools.encoding import EncodingProblem, decode_text, printable_text
from tiller_daemon.tools.path_access import resolve_approved_path, resolve_path
from tiller_daemon.tools.truncation import truncate

PREVIEW_BYTES_MAX: Final = 1024**2
"""The largest file whose change is shown before it is approved, at a cost of some 10 ms."""

_URL_SECRET: Final = f"{SECRET_PLACEHOLDER}@".encode()


class FileArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """The arguments of a tool that changes one file."""

    path: Annotated[str, Meta(description="The file, relative to the workspace or absolute")]


Arguments = TypeVar("Arguments", bound=FileArguments)

OneChange = Callable[[Arguments, Location, FileVersions], tuple[Change, str]]
"""Returns the change of a file, and a message for the model."""


def check_change(
    change: OneChange[Arguments], arguments: Arguments, workspace: Path, files: FileVersions
) -> None:
    """Raise `ToolFailure` or `PathProblem` if the change can't be made now."""
    made, _ = change(arguments, resolve_path(workspace, arguments.path), files)
    keep_url_secrets([made])


async def make_change(
    change: OneChange[Arguments], arguments: Arguments, environment: ToolEnvironment
) -> ToolResult:
    """Change the file, and return the result with a diff; raises `ToolFailure`, `PathProblem`."""
    location = resolve_approved_path(environment, arguments.path)

    def make() -> tuple[str, str]:
        made, done = change(arguments, location, environment.files.versions)
        store(environment, [made])
        return done, show_change(location, made.before, made.after)

    done, diff = await trio.to_thread.run_sync(make)
    return ToolResult(done, title=location.text, diff=truncate(diff))


def read_unchanged(files: FileVersions, location: Location) -> bytes | None:
    """Return the bytes of a file; None if there is no file.

    Raises `ToolFailure` if the model has not read this version of the file, and `PathProblem`.
    """
    try:
        data = read_whole(location)
    except PathProblem as problem:
        if isinstance(problem.__cause__, FileNotFoundError):
            return None
        raise
    digest = files.fingerprints.get(location.path)
    if digest is None:
        raise ToolFailure(f"{location.text} exists and has not been read yet. Read it first.")
    if digest != fingerprint(data):
        raise ToolFailure(
            f"{location.text} has changed since it was last read, so this call left it as it is. "
            "Read it again, then repeat the change."
        )
    return data


def read_for_preview(location: Location) -> bytes | None:
    """Return the bytes of a file that exists and is small enough for a preview, else None."""
    with suppress(PathProblem):
        state = state_of(location)
        if state is not None and state.st_size <= PREVIEW_BYTES_MAX:
            return read_whole(location)
    return None


@contextmanager
def encoding_failures(location: Location) -> Generator[None]:
    """Turn an `EncodingProblem` into a failure that names the file."""
    try:
        yield
    except EncodingProblem as problem:
        raise ToolFailure(
            f"{location.text} can't be changed like this. {problem} No file was changed."
        ) from problem


def keep_url_secrets(changes: Sequence[Change]) -> None:
    """Raise `ToolFailure` if changes would replace the password in a URL by its placeholder.

    A model that writes a whole file knows the password only as `[secret]`.
    """
    added = {change.location.text: _url_secrets(change) for change in changes}
    if sum(added.values()) > 0:
        raise ToolFailure(
            f"{max(added, key=added.__getitem__)} can't be changed like this. In a URL, "
            f"{SECRET_PLACEHOLDER} stands for a password that you do not see, so leave that part "
            "of the file as it is, and change only other parts. No file was changed."
        )


def _url_secrets(change: Change) -> int:
    """Return how many placeholders of passwords in URLs a change adds."""
    return (change.after or b"").count(_URL_SECRET) - (change.before or b"").count(_URL_SECRET)


def store(environment: ToolEnvironment, changes: Sequence[Change]) -> None:
    """Make all changes or none, and note the new content as known to the model.

    Blocks for as long as the disk takes. Raises `ToolFailure` and `PathProblem`.
    """
    keep_url_secrets(changes)
    change_all(changes, environment.files.journals)
    fingerprints = environment.files.versions.fingerprints
    for change in changes:
        if change.after is None:
            fingerprints.pop(change.location.path, None)
        else:
            fingerprints[change.location.path] = fingerprint(change.after)


def show_change(location: Location, before: bytes | None, after: bytes | None) -> str:
    """Return the whole change as a diff for people; None stands for a missing file."""
    try:
        return unified_diff(_text(before), _text(after), location.text)
    except EncodingProblem:
        return f"The binary content of {location.text} changes.\n"


def _text(data: bytes | None) -> str | None:
    return None if data is None else printable_text(decode_text(data).text)
