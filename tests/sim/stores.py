"""A tool that changes one file, as `write` does but in virtual time; who changed what, and when."""

from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import NamedTuple

import trio
from msgspec import Struct

from tiller_daemon.tools.base import Requirement, Tool, ToolEnvironment, ToolResult


class StoreArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """Arguments of `store`: a path in the workspace, and how long it takes."""

    path: str
    seconds: float = 0.0


class Stored(NamedTuple):
    """A call of `store`; `began` and `ended` count beginnings and ends of all of them."""

    session_id: str
    call_id: str
    path: str
    began: int
    ended: int


@dataclass
class Stores:
    """What the calls of `store` did, including those that were cancelled."""

    done: list[Stored] = field(default_factory=list)
    numbers: "count[int]" = field(default_factory=count)

    def tool(self) -> Tool:
        return Tool("store", "for tests", StoreArguments, "write", 60.0, _requirements, self._run)

    async def _run(self, arguments: StoreArguments, environment: ToolEnvironment) -> ToolResult:
        began = next(self.numbers)
        try:
            await trio.sleep(arguments.seconds)
        finally:
            session_id, call_id = environment.session_id, environment.call_id
            ended = next(self.numbers)
            self.done.append(Stored(session_id, call_id, arguments.path, began, ended))
        return ToolResult("stored")


def _requirements(arguments: StoreArguments, workspace: Path) -> tuple[Requirement, ...]:
    return (Requirement("write", (arguments.path,), kind="path", title=f"Store {arguments.path}"),)
