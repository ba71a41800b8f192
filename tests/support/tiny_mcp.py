"""An MCP server written by hand, which starts at once and can misbehave in many ways.

Run as `python -SEs tiny_mcp.py [MODE …]`. Modes: `refuse` exits at once; `mute` answers nothing;
`modern` does not know the old handshake; `garbled` greets with nonsense; `chatty` prints lines that
are no messages; `endless` lists tools on endless pages; `odd` lists tools that no provider would
accept; `hostile` lists schemas whose validation takes years; `toolless` has no tools; `content` has
prompts and resources.
"""

import json
import os
import signal
import sys
from typing import Any

MODES = sys.argv[1:]
ANY: dict[str, Any] = {"type": "object"}
TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
READS = {"annotations": {"readOnlyHint": True}}

TOOLS: list[dict[str, Any]] = [
    {"name": "echo", "description": "Says it again.", "inputSchema": TEXT, **READS},
    {"name": "pid", "inputSchema": ANY, "title": "Which process", **READS},
    {"name": "cancelled", "inputSchema": ANY, **READS},
    {"name": "hang", "inputSchema": ANY},
    {"name": "die", "inputSchema": ANY},
    {"name": "grow", "inputSchema": TEXT},
    {"name": "raw", "inputSchema": TEXT},
    {"name": "refuse", "inputSchema": ANY},
    {"name": "stop", "inputSchema": ANY},
    {"name": "oversized", "inputSchema": TEXT},
    {"name": "flood", "inputSchema": ANY},
]
ODD: list[dict[str, Any]] = [
    {"name": "read.file", "inputSchema": ANY},
    {"name": "read/file", "inputSchema": ANY},
    {"name": "x" * 80, "inputSchema": ANY},
    {"name": "bad", "inputSchema": {"type": "object", "properties": {"a": {"type": 7}}}},
    {"name": "task", "inputSchema": ANY, "execution": {"taskSupport": "required"}},
    {"name": "long", "inputSchema": ANY, "description": "so " * 10_000},
    {
        "name": "wrong",
        "inputSchema": ANY,
        "description": 7,
        "annotations": [],
        "icons": "none",
        "outputSchema": {"type": "array"},
    },
]
ODD_USABLE: dict[str, Any] = {
    "unsaid": None,
    "empty": {},
    "untyped": {"properties": {"a": {"type": "string"}}},
    "required_inside": {
        "type": "object",
        "properties": {"coin": {"type": "string"}, "required": ["coin"]},
    },
    "choice": {
        "anyOf": [
            {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
            {"type": "object", "properties": {"b": {"type": "string"}}},
        ]
    },
    "odd_lists": {"type": ["object", "null"], "required": True, "properties": []},
    "dollar": {
        "type": "object",
        "properties": {
            "$filter": {"type": "string"},
            "rows": {"type": "array"},
            "x" * 80: {"type": "string"},
        },
        "required": ["$filter"],
    },
}
"""Schemas that some provider or the MCP package refuses, but that can be mended."""

ODD_UNUSABLE: list[Any] = [
    {"name": "listing", "inputSchema": {"type": "array", "items": {"type": "string"}}},
    {"inputSchema": ANY},
    "not a tool",
]

LAUGHS = {
    f"laugh{number}": {"allOf": [{"$ref": f"#/$defs/laugh{number + 1}"}] * 2}
    for number in range(40)
}
HOSTILE: list[dict[str, Any]] = [
    {
        "name": "heavy",
        "inputSchema": ANY,
        "outputSchema": {"type": "object", "properties": {"a": {"pattern": "^(a+)+$"}}},
    },
    {
        "name": "laughs",
        "inputSchema": {
            "type": "object",
            "$defs": {**LAUGHS, "laugh40": {}},
            "$ref": "#/$defs/laugh0",
        },
    },
    {"name": "huge", "inputSchema": {"type": "object", "description": "so " * 200_000}},
    {"name": "behind", "inputSchema": ANY},
]

PROMPTS: list[dict[str, Any]] = [
    {
        "name": "review",
        "description": "Reviews a file.",
        "arguments": [{"name": "file", "required": True}, {"name": "how"}],
    },
    {"name": "evil"},
]
UNUSABLE: list[dict[str, Any]] = [
    {"name": "red\x1b[31m"},
    {"name": "two words"},
    {"name": "x" * 101},
    {"name": "turned\u202e"},
    {"name": "quiet", "arguments": [{"name": "a\nb"}]},
]
PICTURE = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADU"
    "lEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)

cancelled: list[Any] = []
counted: list[str] = []
seen: list[str] = []


def send(**message: Any) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def answer(request: Any, *said: str, **more: Any) -> None:
    content = [{"type": "text", "text": text} for text in said]
    send(id=request, result={"content": content, **more})


def greet(request: Any) -> None:
    if "modern" in MODES:
        send(id=request, error={"code": -32601, "message": "no such method"})
        return
    if "garbled" in MODES:
        send(id=request, result={"protocolVersion": 7})
        return
    if "chatty" in MODES:
        print("Welcome!\n\nnot json\n[]\n" + "x" * 100_000, flush=True)
        print("a complaint\n" * 2_000, file=sys.stderr, flush=True)
    about = {"name": "tiny", "version": "1"}
    capabilities: dict[str, Any] = {} if "toolless" in MODES else {"tools": {"listChanged": True}}
    if "content" in MODES:
        capabilities |= {"prompts": {"listChanged": True}, "resources": {}}
    result = {"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": about}
    send(id=request, result=result)


def discover(request: Any) -> None:
    if "modern" not in MODES:
        send(id=request, error={"code": -32601, "message": "no such method"})
        return
    result = {
        "resultType": "complete",
        "supportedVersions": ["2026-07-28"],
        "capabilities": {"tools": {}},
        "ttlMs": 0,
        "cacheScope": "private",
    }
    send(id=request, result=result)


def list_tools(request: Any) -> None:
    mendable = [{"name": name, "inputSchema": one} for name, one in ODD_USABLE.items()]
    odd = [*ODD, *mendable, *ODD_UNUSABLE]
    more = [*(odd if "odd" in MODES else ()), *(HOSTILE if "hostile" in MODES else ())]
    listed: dict[str, Any] = {"tools": [*TOOLS, *more]}
    if "modern" in MODES:
        listed |= {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
    if "endless" in MODES:
        listed["nextCursor"] = "more"
    if "toolless" in MODES:
        send(id=request, error={"code": -32601, "message": "no such method"})
    else:
        send(id=request, result=listed)


def call(request: Any, name: str, arguments: dict[str, Any], meta: dict[str, Any]) -> None:
    match name:
        case "echo":
            answer(request, arguments["text"], **({"resultType": "complete"} if MODES else {}))
        case "pid":
            answer(request, str(os.getpid()))
        case "cancelled":
            answer(request, str(len(cancelled)))
        case "hang":
            token = meta.get("progressToken")
            send(method="notifications/progress", params={"progressToken": token, "progress": 1})
        case "die":
            os.kill(os.getpid(), signal.SIGKILL)
        case "grow":
            TOOLS.append({"name": arguments["text"], "inputSchema": ANY})
            answer(request, "grown")
            send(method="notifications/tools/list_changed")
        case "dollar":
            answer(request, json.dumps(arguments))
        case "raw":
            print(arguments["text"].replace("ID", json.dumps(request)), flush=True)
        case "heavy":
            answer(request, "heavy", structuredContent={"a": "a" * 60 + "!"})
        case "refuse":
            send(id=request, error={"code": -32000, "message": "Not today."})
        case "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        case "oversized":
            before, after = arguments["text"].split("HUGE")
            line = before + "x" * (33 * 1024 * 1024) + after
            print(line.replace("ID", json.dumps(request)), flush=True)
        case "flood":
            while True:
                sys.stdout.write("x" * 1_000_000)
        case _:
            answer(request, f"I am {name}")


def prompt(request: Any, name: str, arguments: dict[str, str]) -> None:
    said = {"review": f"Review {arguments}.", "evil": "/deploy @general now"}[name]
    if arguments.get("how") == "grow":
        PROMPTS.append({"name": "grown"})
        send(method="notifications/prompts/list_changed")
    content = {"type": "text", "text": said}
    send(id=request, result={"messages": [{"role": "user", "content": content}]})


def resource(request: Any, uri: str) -> None:
    match uri:
        case "note://one":
            contents = {"uri": uri, "text": "the note says @general"}
        case "note://picture":
            contents = {"uri": uri, "mimeType": "image/png", "blob": PICTURE}
        case "note://long":
            contents = {"uri": uri, "text": "so " * 100_000}
        case "note://counted":
            counted.append(uri)
            contents = {"uri": uri, "text": f"read {len(counted)} times"}
        case "note://silent":
            return
        case _:
            send(id=request, error={"code": -32002, "message": "No such note"})
            return
    send(id=request, result={"contents": [contents]})


def main() -> None:
    if "refuse" in MODES:
        sys.exit("no configuration found")
    for line in sys.stdin:
        message = json.loads(line)
        request, params = message.get("id"), message.get("params") or {}
        match message["method"]:
            case _ if "mute" in MODES:
                pass
            case "initialize":
                greet(request)
            case "server/discover":
                discover(request)
            case "tools/list":
                list_tools(request)
            case "tools/call":
                meta = params.get("_meta") or {}
                call(request, params["name"], params.get("arguments") or {}, meta)
            case "prompts/list":
                send(id=request, result={"prompts": [*UNUSABLE, *PROMPTS]})
            case "prompts/get":
                prompt(request, params["name"], params.get("arguments") or {})
            case "resources/read":
                resource(request, params["uri"])
            case "notifications/cancelled":
                cancelled.append(params["requestId"])
            case "ping":
                send(id=request, result={})
            case _:
                pass


if __name__ == "__main__":
    main()
