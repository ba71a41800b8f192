"""An MCP server for tests, made with the MCP package, which behaves as its calls say.

`python mcp_server.py` serves over pipes. `python mcp_server.py PORT` serves over HTTP: it prints
its address, requires the key in `KEY_FILE`, and ends when its standard input ends.
"""

import asyncio
import base64
import io
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Annotated, Literal

import uvicorn
from mcp.server import MCPServer
from mcp.server.mcpserver import Context, Image
from mcp_types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
    ToolAnnotations,
)
from pydantic import BaseModel, Field
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

server = MCPServer("bench")
READS = ToolAnnotations(read_only_hint=True)


def _read(gate: str) -> str:
    return Path(gate).read_text()


def _write(note: str, text: str) -> None:
    """Write a note in one step, as tests watch for it."""
    Path(f"{note}.new").write_text(text)
    Path(f"{note}.new").rename(note)


@server.tool(annotations=READS)
async def look(gate: str) -> str:
    """Only reads: waits at a gate and says what comes through."""
    return await asyncio.to_thread(_read, gate)


@server.tool()
async def change(gate: str) -> str:
    """May write: waits at a gate and says what comes through."""
    return await asyncio.to_thread(_read, gate)


@server.tool(annotations=READS)
async def pid() -> str:
    """Says which process it is."""
    return str(os.getpid())


@server.tool()
async def die(status: int = 3) -> str:
    """Ends the server in the middle of the call."""
    print("about to die", file=sys.stderr, flush=True)
    os._exit(status)


@server.tool(annotations=READS)
async def hang(note: str) -> str:
    """Never answers; says in a file that it began, and that it was cancelled."""
    _write(note, "began")
    try:
        await asyncio.sleep(1000)
    except asyncio.CancelledError:
        _write(note, "cancelled")
        raise
    return "never"


@server.tool()
async def stall(note: str) -> str:
    """Lets the whole server do nothing any more."""
    _write(note, "began")
    time.sleep(1000)  # noqa: ASYNC251 - that is the point
    return "never"


@server.tool(annotations=READS)
async def count(steps: int, ctx: Context) -> str:
    """Says how far it is."""
    for step in range(1, steps + 1):
        await ctx.report_progress(step, steps, f"step {step}")
    return "counted"


@server.tool()
async def grow(name: str, ctx: Context) -> str:
    """Gives the server one more tool."""

    async def more() -> str:
        return f"I am {name}"

    server.add_tool(more, name=name, annotations=READS)
    await ctx.session.send_tool_list_changed()
    await ctx.notify_tools_changed()
    return "grown"


class Order(BaseModel):
    """What the user is asked for."""

    size: Literal["small", "large"]
    amount: Annotated[int, Field(ge=1, le=9)]
    gift: bool
    note: str = ""


@server.tool()
async def order(ctx: Context) -> str:
    """Asks the user for an order."""
    answer = await ctx.elicit("What shall it be?", Order)
    return f"{answer.action}: {getattr(answer, 'data', None)}"


@server.tool()
async def sign_in(ctx: Context) -> str:
    """Asks the user to open a page."""
    answer = await ctx.elicit_url("Please sign in.", "https://example.invalid/sign-in", "e1")
    return answer.action


@server.tool(annotations=READS)
async def picture() -> list[str | Image]:
    """Shows an image."""
    from PIL import Image as pillow  # noqa: N813 - it is the module

    into = io.BytesIO()
    pillow.new("RGB", (3, 2), "red").save(into, "PNG")
    return ["a red one", Image(data=into.getvalue(), format="png")]


@server.tool(annotations=READS)
async def mixture() -> CallToolResult:
    """Says something in every way there is."""
    data = base64.b64encode(b"no image").decode()
    return CallToolResult(
        content=[
            TextContent(text="words"),
            ImageContent(data=data, mime_type="image/png"),
            AudioContent(data=data, mime_type="audio/wav"),
            ResourceLink(uri="file:///a.txt", name="a", description="a file"),
            EmbeddedResource(resource=TextResourceContents(uri="file:///b.txt", text="inside b")),
            EmbeddedResource(
                resource=BlobResourceContents(uri="file:///c", blob=data, mime_type="x/y")
            ),
        ]
    )


@server.tool(annotations=READS)
async def structure() -> CallToolResult:
    """Answers with data and no text."""
    return CallToolResult(content=[], structured_content={"answer": [4, 2]})


@server.tool(annotations=READS)
async def fail() -> str:
    """Fails."""
    raise ValueError("as asked")


@server.tool(annotations=READS)
async def flood(lines: int) -> str:
    """Says much."""
    return "\n".join(f"line {number}" for number in range(lines))


@server.tool(annotations=READS)
async def headers(ctx: Context) -> str:
    """Says what came with the request."""
    return "\n".join(f"{name}: {value}" for name, value in (ctx.headers or {}).items())


@server.tool(annotations=READS)
async def environment() -> str:
    """Says what its variables are."""
    return "\n".join(f"{name}={value}" for name, value in sorted(os.environ.items()))


@server.tool()
def fork() -> str:
    """Starts processes that want to outlive the server; says their pids."""
    stay = "echo $$; exec sleep 1000"
    started = [
        subprocess.Popen(command, stdout=subprocess.PIPE)
        for command in (["sh", "-c", stay], ["setsid", "sh", "-c", f"trap '' TERM HUP; {stay}"])
    ]
    pids = [process.stdout.readline().decode().strip() for process in started if process.stdout]
    return " ".join([str(os.getpid()), *pids])


async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
    """Serve over HTTP to clients that have the key."""
    key = _read(os.environ["KEY_FILE"]).strip()
    if scope["type"] == "http" and Headers(scope=scope).get("authorization") != f"Bearer {key}":
        await PlainTextResponse("no", status_code=401)(scope, receive, send)
    else:
        await app(scope, receive, send)


async def watched(scope: Scope, receive: Receive, send: Send) -> None:
    """Serve over HTTP; write to a file which session was ended, after a delay if asked to."""
    if scope["type"] == "http" and scope["method"] == "DELETE":
        headers = Headers(scope=scope)
        said = f"{headers.get('mcp-session-id')} {headers.get('mcp-protocol-version')}"
        _write(os.environ["GOODBYES"], said)
        await asyncio.sleep(float(os.environ.get("GOODBYE_S", "0")))
    await app(scope, receive, send)


app = server.streamable_http_app()


def main() -> None:
    if not sys.argv[1:]:
        server.run()
        return
    listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
    print(f"http://127.0.0.1:{listener.getsockname()[1]}/mcp", flush=True)
    taken = guarded if "KEY_FILE" in os.environ else app
    taken = watched if "GOODBYES" in os.environ else taken
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
    config = uvicorn.Config(taken, log_level="warning")
    asyncio.run(uvicorn.Server(config).serve([listener]))


if __name__ == "__main__":
    main()
