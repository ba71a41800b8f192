"""A Claude as strict as the newest models, which refuses what the Messages API refuses.

Besides the rules in `dialect_anthropic`, it binds each thought to the content before it, and
refuses a thought that comes back after any other content.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import trio

from support.dialect_anthropic import THINKING, Block, check_messages_body, spoken
from support.http_server import LocalServer, events, status
from support.messages_frames import begun, call, ended, started, stopped, text, thought


@dataclass
class StrictClaude:
    """Gives the `answers`, lists of blocks, in order, and repeats the last answer.

    `refused` says why requests were refused; `bodies` are the accepted requests.
    """

    server: LocalServer
    answers: list[list[Block]]
    bodies: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    refused: list[str] = field(default_factory=list[str])
    _bound: dict[str, str] = field(default_factory=dict[str, str])

    async def answer(self, stream: trio.abc.Stream) -> None:
        """Answer the request that has just been received."""
        try:
            body = check_messages_body(self.server.received[-1].data)
            said = [json.loads(piece) for piece in spoken(body)]
            self._check_thoughts(said)
        except AssertionError as error:
            self.refused.append(str(error))
            told = {"type": "invalid_request_error", "message": str(error)}
            await status(400, {"type": "error", "error": told})(stream)
            return
        self.bodies.append(body)
        blocks = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        await events(*self._frames(blocks, said))(stream)

    def _check_thoughts(self, said: Sequence[Any]) -> None:
        for number, (role, block) in enumerate(said):
            if role == "assistant" and block["type"] in THINKING:
                seal = block.get("signature") or block["data"]
                assert seal in self._bound, f"piece {number}: an unknown thought"
                bound = self._bound[seal] == _digest([*said[:number], _unsealed(block)])
                assert bound, f"piece {number}: bound to a different conversation"

    def _frames(self, blocks: Sequence[Block], said: list[Any]) -> list[bytes]:
        frames = [started(input_tokens=len(json.dumps(said)) // 4, output_tokens=1)]
        sent = list(said)
        for index, block in enumerate(blocks):
            match block["type"]:
                case "text":
                    frames.append(text(index, *block["text"].partition(" ")))
                    whole = block
                case "thinking":
                    seal = self._seal([*sent, _unsealed(block)])
                    frames.append(thought(index, seal, *block["thinking"].partition(" ")))
                    whole = block | {"signature": seal}
                case "redacted_thinking":
                    seal = self._seal([*sent, _unsealed(block)])
                    frames.append(begun(index, "redacted_thinking", data=seal) + stopped(index))
                    whole = block | {"data": seal}
                case _:
                    whole = block | {"id": f"toolu_{len(self.bodies)}_{index}"}
                    arguments = json.dumps(block["input"])
                    frames.append(call(index, whole["id"], block["name"], arguments))
            sent.append(["assistant", whole])
        calls = any(block["type"] == "tool_use" for block in blocks)
        return [*frames, ended("tool_use" if calls else "end_turn", output_tokens=9)]

    def _seal(self, pieces: Sequence[Any]) -> str:
        seal = f"sealed-{len(self._bound)}"
        self._bound[seal] = _digest(pieces)
        return seal


def claude(server: LocalServer, *answers: list[Block]) -> StrictClaude:
    """Have a server answer as Claude."""
    made = StrictClaude(server, list(answers))
    server.answers[:] = [made.answer]
    return made


def thinks(said: str) -> Block:
    """A block of thinking."""
    return {"type": "thinking", "thinking": said}


def says(said: str) -> Block:
    """A block of text."""
    return {"type": "text", "text": said}


def uses(name: str, **arguments: Any) -> Block:
    """A call."""
    return {"type": "tool_use", "name": name, "input": arguments}


HIDES: Block = {"type": "redacted_thinking"}


def _unsealed(block: Block) -> list[Any]:
    return ["assistant", {k: v for k, v in block.items() if k not in ("signature", "data")}]


def _digest(pieces: Sequence[Any]) -> str:
    return sha256(json.dumps(pieces).encode()).hexdigest()
