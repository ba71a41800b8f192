"""Resolves the paths in a call's arguments, and returns the permissions needed to use them."""

import re
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tiller_daemon.files.paths import Location, PathProblem, locate, printable
from tiller_daemon.processes.command import CommandProblem
from tiller_daemon.tools.base import Requirement, ToolEnvironment, ToolFailure


@contextmanager
def tool_failures() -> Generator[None]:
    """Turn refused paths and commands that can't start into failures for the model."""
    try:
        yield
    except (PathProblem, CommandProblem) as problem:
        raise ToolFailure(str(problem)) from problem


def resolve_path(workspace: Path, path: str) -> Location:
    """Return where `path` leads. Raises `ToolFailure` for text that is not a path.

    A path never begins with `~`: only a shell would expand it, so it would be a directory here.
    """
    if path.startswith("~"):
        raise ToolFailure(
            f"The path {path} begins with `~`, which is not expanded here. Give the absolute path, "
            f"or ./{path} if this is the name of a file in the workspace."
        )
    with tool_failures():
        return locate(workspace, path)


def resolve_approved_path(environment: ToolEnvironment, path: str) -> Location:
    """Return where `path` leads, for a running call; only a place that was approved is allowed.

    Raises `ToolFailure` if a link has changed since the requirements of the call were judged.
    """
    location = resolve_path(environment.workspace, path)
    if all(location.text not in requirement.subjects for requirement in environment.requirements):
        raise ToolFailure(
            f"{path} no longer leads where it did when this call was approved, so nothing was "
            "done. Look at the path again, then repeat the call."
        )
    return location


def file_requirements(
    permission: str, *locations: Location, title: str, detail: str = ""
) -> tuple[Requirement, ...]:
    """Return the permissions needed to use files, as one question; `detail` is a diff of them."""
    places = [(location, printable(location.path.parent)) for location in locations]
    return _requirements(permission, places, title, detail)


def directory_requirements(location: Location, *, title: str) -> tuple[Requirement, ...]:
    """Return the permissions needed to search a directory or a single file."""
    return _requirements("read", [(location, printable(location.path))], title, "")


def to_be_written(requirements: Sequence[Requirement], root: Path) -> list[Location]:
    """Return the files that a call will write in a workspace; `root` has its links resolved."""
    writes = [r for r in requirements if r.permission == "write" and r.kind == "path"]
    inside = [text for r in writes for text in r.subjects if not text.startswith("/")]
    return [Location(root / text, inside=True, text=text) for text in inside]


def _requirements(
    permission: str, places: Sequence[tuple[Location, str]], title: str, detail: str
) -> tuple[Requirement, ...]:
    subjects = tuple(location.text for location, _ in places)
    wanted = Requirement(
        permission,
        subjects,
        # A question about reading is about this one file, so `always` allows no other.
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
        title=title,
        warning="Outside the workspace",
    )
    return (wanted, outside)


def _exactly(text: str) -> str:
    """Return the rule pattern that matches only this text; a backslash escapes a wildcard."""
    return re.sub(r"([*?\\])", r"\\\1", text)
