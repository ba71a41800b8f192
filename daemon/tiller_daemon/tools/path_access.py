"""Where the path of a call leads, and which permissions it takes to go there."""

import re
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tiller_daemon.files.paths import Location, PathProblem, locate, printable
from tiller_daemon.processes.command import CommandProblem
from tiller_daemon.tools.base import Requirement, ToolEnvironment, ToolFailure


@contextmanager
def tool_failures() -> Generator[None]:
    """Turn the workspace's refusals into failures that the model is told."""
    try:
        yield
    except (PathProblem, CommandProblem) as problem:
        raise ToolFailure(str(problem)) from problem


def resolve_path(workspace: Path, path: str) -> Location:
    """Return where `path` leads; raises `ToolFailure` for text that is no path."""
    with tool_failures():
        return locate(workspace, path)


def resolve_approved_path(environment: ToolEnvironment, path: str) -> Location:
    """Return where `path` leads, of a call that runs: only to what was judged before it ran."""
    location = resolve_path(environment.workspace, path)
    if all(location.text not in requirement.subjects for requirement in environment.requirements):
        raise ToolFailure(
            f"{path} leads somewhere else than when this call was judged, and was left alone. "
            "Look again, then call it again."
        )
    return location


def file_requirements(
    permission: str, location: Location, *, title: str, detail: str = ""
) -> tuple[Requirement, ...]:
    """Return what it takes to use a file; `detail` is the diff of a change."""
    return files_requirements(permission, (location,), title=title, detail=detail)


def files_requirements(
    permission: str, locations: Sequence[Location], *, title: str, detail: str = ""
) -> tuple[Requirement, ...]:
    """Return what it takes to use several files: they are asked about in one go."""
    places = [(location, printable(location.path.parent)) for location in locations]
    return _requirements(permission, places, title, detail)


def directory_requirements(
    permission: str, location: Location, *, title: str
) -> tuple[Requirement, ...]:
    """Return what it takes to look through a directory (or the one file that is named)."""
    return _requirements(permission, [(location, printable(location.path))], title, "")


def _requirements(
    permission: str, places: Sequence[tuple[Location, str]], title: str, detail: str
) -> tuple[Requirement, ...]:
    subjects = tuple(location.text for location, _ in places)
    wanted = Requirement(
        permission,
        subjects,
        # Reading is only asked about for the file's own sake, so no other is allowed with it.
        always=tuple(map(_exactly, subjects)) if permission == "read" else ("*",),
        kind="path",
        title=title,
        detail=detail,
        detail_kind="diff" if detail else "text",
    )
    beyond = tuple(
        dict.fromkeys(directory for location, directory in places if not location.inside)
    )
    if not beyond:
        return (wanted,)
    patterns = [_exactly(directory) for directory in beyond]
    outside = Requirement(
        "external_directory",
        beyond,
        always=tuple(one for pattern in patterns for one in (pattern, f"{pattern.rstrip('/')}/*")),
        kind="path",
        title=f"Leave the workspace: {title}",
    )
    return (wanted, outside)


def _exactly(text: str) -> str:
    """The pattern that matches this and nothing else: a backslash takes the meaning from a sign."""
    return re.sub(r"([*?\\])", r"\\\1", text)
