"""The tool `apply_patch`: changes several files with a patch in codex's format, all or none."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Final, assert_never

import trio
from msgspec import Meta, Struct

from tiller_daemon.files.changes import Change
from tiller_daemon.files.paths import Location
from tiller_daemon.tools.base import (
    FileVersions,
    Requirement,
    Tool,
    ToolEnvironment,
    ToolFailure,
    ToolPermission,
    ToolResult,
)
from tiller_daemon.tools.editing.file_change import (
    encoding_failures,
    keep_url_secrets,
    read_for_preview,
    read_unchanged,
    show_change,
    store,
)
from tiller_daemon.tools.editing.patch_format import (
    AddFile,
    DeleteFile,
    FileChange,
    UpdateFile,
    parse_patch,
)
from tiller_daemon.tools.editing.patch_lines import MissingHunk, apply_hunks, explain_missing_hunk
from tiller_daemon.tools.encoding import encode_like
from tiller_daemon.tools.path_access import file_requirements, resolve_approved_path, resolve_path
from tiller_daemon.tools.suggestions import did_you_mean_path
from tiller_daemon.tools.truncation import truncate

FILES_MAX: Final = 200
"""How many files one patch may change. During the change, the directories of the old and the new
name of each file are open: at worst two fifths of the 1,024 files that a process may usually have
open."""

TIMEOUT_S: Final = 60.0

DESCRIPTION: Final = """\
Change several files in one step, all or none. Existing files must have been read before. `patch` \
is text like this:

*** Begin Patch
*** Update File: src/shop.py
@@ class Shop:
@@     def open(self):
-        self.door = None
+        self.door = Door()
         self.lamp.light()
*** Update File: src/old_name.py
*** Move to: src/new_name.py
@@
-VALUE = 1
+VALUE = 2
*** Add File: docs/shop.md
+# The shop
*** Delete File: src/unused.py
*** End Patch

In an update each line begins with a space (it stays), `-` (it is removed) or `+` (it is added). \
Show three lines before and after a change. If those lines occur more than once, name lines above \
them with `@@ LINE`: the search for the change starts after them. Put changes in the order of the \
file; `*** End of File` after a change anchors it to the end. Each line of a new file begins with \
`+`."""


class ApplyPatchArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """The arguments of `apply_patch`."""

    patch: Annotated[
        str,
        Meta(
            description="The patch, from `*** Begin Patch` to `*** End Patch`; paths as for `read`"
        ),
    ]


def _requirements(arguments: ApplyPatchArguments, workspace: Path) -> tuple[Requirement, ...]:
    changes = parse_patch(arguments.patch)
    if len(changes) > FILES_MAX:
        raise ToolFailure(f"A patch may change at most {FILES_MAX} files. Use several patches.")
    named = [path for change in changes for path in _paths(change)]
    resolved = (resolve_path(workspace, path) for path in named)
    locations = {location.path: location for location in resolved}
    names = ", ".join(one.text for one in locations.values())
    detail = _preview(changes, workspace, arguments.patch)
    return file_requirements("write", *locations.values(), title=f"Patch {names}", detail=detail)


def _check(arguments: ApplyPatchArguments, workspace: Path, files: FileVersions) -> None:
    keep_url_secrets(_patched(arguments, partial(resolve_path, workspace), files).changes())


async def _run(arguments: ApplyPatchArguments, environment: ToolEnvironment) -> ToolResult:
    locate = partial(resolve_approved_path, environment)

    def apply() -> _Files:
        files = _patched(arguments, locate, environment.files.versions)
        store(environment, files.changes())
        return files

    files = await trio.to_thread.run_sync(apply)
    done = "\n".join(files.done)
    return ToolResult(f"Changed:\n{done}", title=files.title(), diff=truncate(files.diff()))


APPLY_PATCH: Final = Tool(
    name="apply_patch",
    description=DESCRIPTION,
    arguments=ApplyPatchArguments,
    effect="write",
    timeout_s=TIMEOUT_S,
    requirements=_requirements,
    permission=ToolPermission("write"),
    check=_check,
    run=_run,
)


def _patched(
    arguments: ApplyPatchArguments, locate: Callable[[str], Location], versions: FileVersions
) -> "_Files":
    """Return the files with the patch applied. Raises `ToolFailure`, `PathProblem`."""
    files = _Files(locate, partial(read_unchanged, versions))
    try:
        for change in parse_patch(arguments.patch):
            files.apply(change)
    except MissingHunk as missing:
        raise ToolFailure(f"{explain_missing_hunk(missing)}\nNo file was changed.") from missing
    return files


@dataclass
class _Files:
    """The files of a patch in memory, to which its parts are applied one after the other."""

    locate: Callable[[str], Location]
    """Resolves a path in the patch."""

    read: Callable[[Location], bytes | None]
    """Returns the bytes of a file; None if there is none."""

    before: dict[Path, tuple[Location, bytes | None]] = field(
        default_factory=dict[Path, tuple[Location, bytes | None]]
    )
    """The files on the disk, before the patch."""

    after: dict[Path, bytes | None] = field(default_factory=dict[Path, bytes | None])
    """The files after the parts applied so far; None for a deleted one."""

    like: dict[Path, Location] = field(default_factory=dict[Path, Location])
    """For a moved file, the file whose mode it takes."""

    done: list[str] = field(default_factory=list[str])
    """A line about each part, for the model."""

    def apply(self, change: FileChange) -> None:
        """Apply one part. Raises `ToolFailure` and `PathProblem`."""
        location = self.locate(change.path)
        match change:
            case AddFile(content=content):
                before = self._read(location)
                with encoding_failures(location):
                    self.after[location.path] = encode_like(before, content)
                self.done.append(f"A {location.text}")
            case DeleteFile():
                self._content(location)
                self.after[location.path] = None
                self.done.append(f"D {location.text}")
            case UpdateFile():
                self._update(change, location)
            case _:
                assert_never(change)

    def changes(self) -> list[Change]:
        """Return the changes to make on the disk."""
        return [
            Change(location, before, self.after[path], self.like.get(path))
            for path, (location, before) in self.before.items()
            if before != self.after[path]
        ]

    def diff(self) -> str:
        """Return the whole changes as a diff for people."""
        return "".join(
            show_change(change.location, change.before, change.after) for change in self.changes()
        )

    def title(self) -> str:
        """Return the names of the files."""
        return " ".join(location.text for location, _ in self.before.values())

    def _update(self, change: UpdateFile, location: Location) -> None:
        before = self._content(location)
        with encoding_failures(location):
            after = apply_hunks(before, change.hunks, location.text)
        target = location if change.move_to is None else self.locate(change.move_to)
        if target.path == location.path:
            self.after[location.path] = after
            self.done.append(f"M {location.text}")
            return
        self._read(target)
        self.after[location.path], self.after[target.path] = None, after
        self.like[target.path] = self.like.get(location.path, location)
        self.done.append(f"M {location.text} -> {target.text}")

    def _content(self, location: Location) -> bytes:
        content = self._read(location)
        if content is None:
            near = did_you_mean_path(location)
            raise ToolFailure(f"{location.text} does not exist.{near} No file was changed.")
        return content

    def _read(self, location: Location) -> bytes | None:
        if location.path not in self.before:
            content = self.read(location)
            self.before[location.path] = location, content
            self.after[location.path] = content
        return self.after[location.path]


def _paths(change: FileChange) -> tuple[str, ...]:
    match change:
        case UpdateFile(path=path, move_to=str(move_to)):
            return path, move_to
        case _:
            return (change.path,)


def _preview(changes: Sequence[FileChange], workspace: Path, patch: str) -> str:
    """Return the diff of the patch; the patch itself if it does not apply now."""
    files = _Files(partial(resolve_path, workspace), read_for_preview)
    try:
        for change in changes:
            files.apply(change)
    except ToolFailure:
        # An earlier call of the same response may still add the missing text.
        return patch
    return files.diff()
