"""A model server that writes prose at a fixed pace, in Chat Completions and in Responses.

Used by `terminals.py`; a separate process, so that its CPU time does not count. Arguments: pieces
in an answer, and pieces a second. An answer begins with `BEGIN` and ends with `END`. A request
without tools is a side request, such as for a title, and gets one word. The server prints its port.
"""

import asyncio
import json
import signal
import sys
from functools import partial
from typing import Any

BEGIN, END = "Ж", "Ю"
"""Letters that appear nowhere else on the screen."""

PARAGRAPH = "The agent **reads** one more file and `then` it writes a line of text, as asked. " * 3
HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncache-control: no-cache\r\n"
    b"connection: close\r\n\r\n"
)
NOT_FOUND = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


class Chat:
    """The wire of Chat Completions."""

    @staticmethod
    def begin() -> bytes:
        """Return the first event."""
        return _event(_chunk({"role": "assistant", "content": ""}, None))

    @staticmethod
    def piece(text: str) -> bytes:
        """A delta."""
        return _event(_chunk({"content": text}, None))

    @staticmethod
    def end(text: str) -> bytes:  # noqa: ARG004 - the other wire repeats the text
        """Return the last events."""
        return _event(_chunk({}, "stop")) + b"data: [DONE]\n\n"


class Responses:
    """The wire of Responses."""

    @staticmethod
    def begin() -> bytes:
        """Return the events before the first delta."""
        return _typed("response.created", response=_response("in_progress")) + _typed(
            "response.output_item.added", output_index=0, item=_message("")
        )

    @staticmethod
    def piece(text: str) -> bytes:
        """A delta."""
        return _typed(
            "response.output_text.delta",
            item_id="msg_1",
            output_index=0,
            content_index=0,
            delta=text,
        )

    @staticmethod
    def end(text: str) -> bytes:
        """Return the events after the last delta."""
        return _typed("response.output_item.done", output_index=0, item=_message(text)) + _typed(
            "response.completed", response=_response("completed")
        )


def _chunk(delta: dict[str, Any], finish: str | None) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"id": "1", "object": "chat.completion.chunk", "created": 0, "choices": [choice]}


def _message(text: str) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": content,
    }


def _response(status: str) -> dict[str, Any]:
    usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
    return {"id": "resp_1", "object": "response", "status": status, "output": [], "usage": usage}


def _event(data: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(data).encode() + b"\n\n"


def _typed(kind: str, **fields: object) -> bytes:
    return f"event: {kind}\n".encode() + _event({"type": kind, **fields})


def _pieces(count: int) -> list[str]:
    words = [f"{word} " for word in PARAGRAPH.split()]
    words[-1] += "\n\n"
    prose = [words[n % len(words)] for n in range(count)]
    return [f"{BEGIN} ", *prose, f"\n\n{END}\n"]


async def _answer(
    count: int, per_second: float, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        if head.startswith(b"get "):
            writer.write(NOT_FOUND)
            return
        length = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0])
        request = json.loads(await reader.readexactly(length))
        wire = Responses if b"/responses" in head.partition(b"\r\n")[0] else Chat
        pieces = _pieces(count) if request.get("tools") else ["Prose"]
        writer.write(HEAD + wire.begin())
        loop = asyncio.get_running_loop()
        began = loop.time()
        for number, piece in enumerate(pieces):
            await asyncio.sleep(max(0.0, began + number / per_second - loop.time()))
            if writer.is_closing():
                return
            writer.write(wire.piece(piece))
        writer.write(wire.end("".join(pieces)))
        await writer.drain()
    except (ConnectionError, asyncio.IncompleteReadError):
        pass  # the client is gone
    finally:
        writer.close()


async def _serve(count: int, per_second: float) -> None:
    server = await asyncio.start_server(partial(_answer, count, per_second), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    asyncio.run(_serve(int(sys.argv[1]), float(sys.argv[2])))
