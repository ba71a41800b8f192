"""What is told with a result beside what the tool says itself."""

from collections.abc import Awaitable, Callable
from pathlib import Path

from tiller_daemon.tools.base import Requirement, ToolResult


async def or_keep(
    more: Callable[[], Awaitable[str]],
    result: ToolResult,
    output: Callable[[str], Awaitable[None]],
) -> str:
    """What more there is to tell of a result; interrupted, the result itself is told as output.

    The work has been done: the model has to know of it though the call counts as aborted.
    """
    try:
        return await more()
    except BaseException:
        await output(result.output)
        raise


def to_be_written(
    requirements: tuple[Requirement, ...], workspace: Path
) -> tuple[Path, list[Path]]:
    """The workspace, links followed, and the files in it that are to be written."""
    wanted = [need for need in requirements if need.permission == "write" and need.kind == "path"]
    inside = [s for need in wanted for s in need.subjects if not s.startswith("/")]
    root = workspace.resolve() if inside else workspace
    return root, [root / subject for subject in inside]
