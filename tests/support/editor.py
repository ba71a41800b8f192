"""An editor for tests, which runs `tiller acp` as a process and exchanges JSON lines with it."""

import functools
import json
import shutil
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import trio

from support.daemon import Home
from support.frontend import TIMEOUT_S

Json = dict[str, Any]

NODE = Path(__file__).parents[1] / "acp/node"
"""The TypeScript SDK, as `scripts/setup` installs it."""

SCHEMA = NODE / "node_modules/@agentclientprotocol/sdk/schema/v1/schema.json"


def needs_node() -> None:
    """Skip the test where the TypeScript SDK can't be used."""
    if shutil.which("node") is None:
        pytest.skip("the TypeScript SDK needs node, which is not installed")
    if not SCHEMA.exists():
        pytest.skip("the TypeScript SDK is not installed; to do so, run scripts/setup with npm")


class RpcError(Exception):
    """Raised when a request is answered with an error."""

    def __init__(self, error: Json) -> None:
        super().__init__(error["message"])
        self.code, self.message, self.data = error["code"], error["message"], error.get("data")


class Editor:
    """An editor that talks to `tiller acp`; `seen` holds every message it received, in order.

    `choose` answers permission requests, and `buffer` answers questions about files. If the
    function returns nothing, the request stays open.
    """

    def __init__(self, process: trio.Process) -> None:
        self.process = process
        self.seen: list[Json] = []
        self.choose: Callable[[Json], Json | None] = lambda _params: None
        self.buffer: Callable[[Json], Json | None] = lambda _params: None
        self._changed = trio.Event()
        self._number = 0

    async def start(self, **capabilities: object) -> Json:
        """Initialize the connection."""
        return await self.ask(
            "initialize",
            protocolVersion=1,
            clientInfo={"name": "test editor", "version": "1"},
            clientCapabilities=capabilities,
        )

    async def new(self, workspace: Path, **fields: object) -> str:
        """Make a session."""
        made = await self.ask("session/new", cwd=str(workspace), mcpServers=[], **fields)
        return made["sessionId"]

    async def prompt(self, session_id: str, text: str = "go") -> Json:
        """Send a prompt, and wait until its turn has ended."""
        return await self.ask("session/prompt", sessionId=session_id, prompt=words(text))

    async def ask(self, method: str, **params: object) -> Json:
        """Send a request and return its result; raise `RpcError` if the answer is an error."""
        result = await self.answer(await self.request(method, **params))
        if kind := RESULTS.get(method):
            check_struct(kind, result)
        return result

    async def request(self, method: str, **params: object) -> int:
        """Send a request and return its id."""
        self._number += 1
        await self.send({"id": self._number, "method": method, "params": params})
        return self._number

    async def notify(self, method: str, **params: object) -> None:
        """Send a notification."""
        await self.send({"method": method, "params": params})

    async def answer(self, number: int) -> Json:
        """Wait for the answer to a request."""
        found = await self.until(lambda one: one.get("id") == number and "method" not in one)
        if "error" in found:
            raise RpcError(found["error"])
        return found["result"]

    async def until(self, wanted: Callable[[Json], bool], number: int = 1) -> Json:
        """Wait for the `number`-th message that is `wanted`."""
        with trio.move_on_after(TIMEOUT_S):
            while True:
                found = [one for one in self.seen if wanted(one)]
                if len(found) >= number:
                    return found[number - 1]
                await self._changed.wait()
        raise AssertionError(f"it did not come; the last are: {self.seen[-8:]}")

    async def asked(self, method: str = "session/request_permission", number: int = 1) -> Json:
        """Wait until the editor is asked something."""
        return await self.until(lambda one: one.get("method") == method, number)

    async def until_update(self, kind: str, number: int = 1, **fields: object) -> Json:
        """Wait for the `number`-th update of a kind with these fields."""

        def is_wanted(message: Json) -> bool:
            update = message.get("params", {}).get("update", {})
            shown = update.get("sessionUpdate") == kind
            return shown and all(update.get(name) == value for name, value in fields.items())

        return (await self.until(is_wanted, number))["params"]["update"]

    def updates(self, kind: str = "") -> Iterator[Json]:
        """Yield the updates so far, or only updates of a kind."""
        for message in self.seen:
            update = message.get("params", {}).get("update", {})
            if message.get("method") == "session/update" and kind in ("", update["sessionUpdate"]):
                yield update

    def said(self, kind: str = "agent_message_chunk") -> str:
        """Return the text of all chunks of a kind."""
        return "".join(update["content"].get("text", "") for update in self.updates(kind))

    async def send(self, message: Json) -> None:
        """Send a message unchanged."""
        await self.send_bytes(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    async def send_bytes(self, data: bytes) -> None:
        """Send bytes."""
        assert self.process.stdin is not None
        await self.process.stdin.send_all(data)

    async def leave(self) -> int:
        """Close the editor's side; return the exit status of `tiller acp`."""
        assert self.process.stdin is not None
        await self.process.stdin.aclose()
        with trio.fail_after(TIMEOUT_S):
            return await self.process.wait()

    async def listen(self) -> None:
        """Receive messages until `tiller acp` ends."""
        assert self.process.stdout is not None
        rest = b""
        async for piece in self.process.stdout:
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                await self._take(json.loads(line))
        assert not rest, f"an unfinished line: {rest!r}"

    async def _take(self, message: Json) -> None:
        self.seen.append(message)
        self._changed.set()
        self._changed = trio.Event()
        method, answer = message.get("method"), None
        if method in ("session/request_permission", "elicitation/create"):
            answer = self.choose(message["params"])
        elif method == "fs/read_text_file":
            answer = self.buffer(message["params"])
        if answer is not None:
            await self.send({"id": message["id"], "result": answer})


def words(text: str) -> list[Json]:
    """A prompt of text."""
    return [{"type": "text", "text": text}]


def selected(option: str) -> Json:
    """The answer to a permission request that chooses an option."""
    return {"outcome": {"outcome": "selected", "optionId": option}}


@asynccontextmanager
async def an_editor(
    home: Home,
    nursery: trio.Nursery,
    *arguments: str,
    before: tuple[str, ...] = (),
    program: tuple[str, ...] = ("-m", "tiller_client"),
    greets: bool = True,
    **capabilities: object,
) -> AsyncGenerator[Editor]:
    """Yield an initialized editor, killed at the end; options `before` go before the verb."""
    process = await trio.lowlevel.open_process(
        [sys.executable, *program, *before, "acp", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=home.variables,
    )
    editor = Editor(process)
    nursery.start_soon(editor.listen)
    try:
        if greets:
            await editor.start(**capabilities)
        yield editor
        for message in editor.seen:
            check(message)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def check(message: Json) -> None:
    """Check a sent message against the protocol's schema, where the schema is installed."""
    kind = {
        "session/update": "SessionNotification",
        "session/request_permission": "RequestPermissionRequest",
        "elicitation/create": "CreateElicitationRequest",
        "fs/read_text_file": "ReadTextFileRequest",
        "$/cancel_request": "CancelRequestNotification",
    }.get(message.get("method", ""))
    if kind:
        check_struct(kind, message["params"])


def check_struct(kind: str, value: Json) -> None:
    """Check a value against the schema of one protocol struct, where the schema is installed."""
    if SCHEMA.exists():
        validator_of(kind).validate(value)


@functools.cache
def validator_of(kind: str) -> jsonschema.Draft202012Validator:
    """Return a validator for one protocol struct."""
    schema = json.loads(SCHEMA.read_text())
    return jsonschema.Draft202012Validator({"$ref": f"#/$defs/{kind}", "$defs": schema["$defs"]})


RESULTS = {
    "authenticate": "AuthenticateResponse",
    "initialize": "InitializeResponse",
    "session/new": "NewSessionResponse",
    "session/load": "LoadSessionResponse",
    "session/resume": "ResumeSessionResponse",
    "session/list": "ListSessionsResponse",
    "session/prompt": "PromptResponse",
    "session/set_config_option": "SetSessionConfigOptionResponse",
}
"""The protocol struct of the result of each method."""
