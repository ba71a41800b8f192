"""Where the path of a call leads, and which permissions it takes to go there."""

import re
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from tiller_daemon.tools.base import Need, ToolFailure
from tiller_daemon.workspace.paths import Location, PathProblem, locate, printable
from tiller_daemon.workspace.process import CommandProblem


@contextmanager
def told() -> Generator[None]:
    """Turn the workspace's refusals into failures that the model is told."""
    try:
        yield
    except (PathProblem, CommandProblem) as problem:
        raise ToolFailure(str(problem)) from problem


def reach(workspace: Path, path: str) -> Location:
    """Return where `path` leads; raises `ToolFailure` for text that is no path."""
    with told():
        return locate(workspace, path)


def file_needs(
    permission: str, location: Location, *, title: str, detail: str = ""
) -> tuple[Need, ...]:
    """Return what it takes to use a file."""
    return _needs(permission, location, printable(location.path.parent), title, detail)


def directory_needs(permission: str, location: Location, *, title: str) -> tuple[Need, ...]:
    """Return what it takes to look through a directory (or the one file that is named)."""
    return _needs(permission, location, printable(location.path), title, "")


def _needs(
    permission: str, location: Location, directory: str, title: str, detail: str
) -> tuple[Need, ...]:
    wanted = Need(
        permission, (location.text,), always=("*",), kind="path", title=title, detail=detail
    )
    if location.inside:
        return (wanted,)
    # In the patterns of rules a backslash takes the meaning from a star.
    pattern = re.sub(r"([*?\\])", r"\\\1", directory)
    outside = Need(
        "external_directory",
        (directory,),
        always=(pattern, f"{pattern.rstrip('/')}/*"),
        kind="path",
        title=f"Leave the workspace: {title}",
    )
    return (wanted, outside)
