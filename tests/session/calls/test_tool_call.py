"""Messages that go with a tool's result, even when an interrupt cuts them short."""

from pathlib import Path

import pytest
import trio

from tiller_daemon.session.calls.tool_call import or_send_result
from tiller_daemon.tools.base import Requirement, ToolResult
from tiller_daemon.tools.path_access import to_be_written


async def test_an_interrupt_while_more_is_found_out_keeps_the_result_as_output() -> None:
    """The model must know that the file was changed, though the call counts as aborted."""
    told: list[str] = []

    async def output(piece: str) -> None:
        told.append(piece)

    async def for_ever() -> str:
        async with trio.open_nursery():
            await trio.sleep_forever()
        return "never"

    async def more() -> str:
        return "more"

    with trio.move_on_after(0) as scope:
        await or_send_result(for_ever, ToolResult("Made a.py"), output)
    assert scope.cancelled_caught
    assert told == ["Made a.py"]
    assert await or_send_result(more, ToolResult("Made b.py"), output) == "more"
    assert told == ["Made a.py"]


@pytest.mark.parametrize(
    ("permission", "kind", "subject", "found"),
    [
        ("write", "path", "a/b.py", ["a/b.py"]),
        ("write", "path", "/elsewhere/b.py", []),
        ("read", "path", "a/b.py", []),
        ("write", "plain", "a/b.py", []),
    ],
)
def test_only_files_in_the_workspace_that_a_call_writes_are_looked_at(
    tmp_path: Path, permission: str, kind: str, subject: str, found: list[str]
) -> None:
    need = Requirement(permission, (subject,), kind=kind)  # pyright: ignore[reportArgumentType]
    locations = to_be_written((need,), tmp_path)
    assert [one.path for one in locations] == [tmp_path / one for one in found]
    assert [one.text for one in locations] == found
