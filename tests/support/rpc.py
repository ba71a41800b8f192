"""Runs `tiller rpc` as a separate process, and reads its lines as they come."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import trio

from support.daemon import Home
from support.frontend import TIMEOUT_S

Object = dict[str, Any]


class Rpc:
    """A `tiller rpc` process and the lines read from it; `close` ends the process."""

    def __init__(self, process: trio.Process) -> None:
        self.process = process
        self.seen: list[Object] = []
        self._rest = b""

    @classmethod
    async def start(cls, home: Home, *arguments: str, before: tuple[str, ...] = ()) -> "Rpc":
        """Start the process, with options `before` the verb; the caller ends it."""
        process = await trio.lowlevel.open_process(
            [sys.executable, "-m", "tiller_client", *before, "rpc", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=home.variables,
        )
        return cls(process)

    async def send(self, *lines: Object) -> None:
        """Write lines."""
        await self.write(b"".join(json.dumps(line).encode() + b"\n" for line in lines))

    async def write(self, data: bytes) -> None:
        """Write bytes."""
        assert self.process.stdin
        with trio.fail_after(TIMEOUT_S):
            await self.process.stdin.send_all(data)

    async def until(self, wanted: Callable[[Object], object], number: int = 1) -> Object:
        """Read until `number` wanted lines have come; return the last of them."""
        with trio.fail_after(TIMEOUT_S):
            while len(found := [line for line in self.seen if wanted(line)]) < number:
                assert await self.read(), f"it ended; it said {self.seen[-5:]}"
        return found[number - 1]

    async def read(self) -> bool:
        """Read some output; return False at its end."""
        assert self.process.stdout
        piece = await self.process.stdout.receive_some()
        *lines, self._rest = (self._rest + piece).split(b"\n")
        self.seen += [json.loads(line) for line in lines]
        return bool(piece)

    async def answer(self, tag: object) -> Object:
        """Wait for the answer to the line with this tag."""
        line = await self.until(lambda line: "answer" in line and line.get("tag") == tag)
        return line["answer"]

    async def submit(self, tag: object, op_type: str, **fields: Any) -> Object:
        """Submit an op that must be accepted; returns its result."""
        await self.send({"submit": {"op": {"type": op_type, **fields}}, "tag": tag})
        answer = await self.answer(tag)
        assert answer["type"] == "accepted", answer
        return answer.get("result", {})

    async def session(self, workspace: Path, model: str) -> str:
        """Create a session in which no call needs approval."""
        result = await self.submit(
            f"create {len(self.seen)}",
            "session_create",
            workspace=str(workspace),
            model=model,
            settings={"approve": "always"},
        )
        return result["session_id"]

    async def turn(self, session_id: str, number: int = 1) -> None:
        """Wait for the end of the session's `number`-th turn."""
        await self.until(
            lambda line: (
                (event := line.get("event"))
                and event["session_id"] == session_id
                and event["body"]["type"] == "turn_ended"
            ),
            number,
        )

    def events(self, session_id: str) -> list[Object]:
        """The events of a session so far."""
        events = (line["event"] for line in self.seen if "event" in line)
        return [event for event in events if event["session_id"] == session_id]

    async def end(self) -> int:
        """Close stdin, read the remaining output, and return the exit status."""
        assert self.process.stdin
        await self.process.stdin.aclose()
        with trio.fail_after(TIMEOUT_S):
            while await self.read():
                pass
            return await self.process.wait()

    async def close(self) -> None:
        """Kill the process if it still runs."""
        if self.process.returncode is None:
            self.process.kill()
            await self.process.wait()
        assert self.process.stdout
        assert self.process.stdin
        await self.process.stdout.aclose()
        await self.process.stdin.aclose()


def seqs(events: Iterable[Object]) -> list[int]:
    """Return the `seq` of each event."""
    return [event["seq"] for event in events]
