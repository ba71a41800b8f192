"""A whole session through the Python SDK's client; prints what it saw as one JSON object.

It runs as a process of its own, as the SDK needs asyncio. Arguments: the workspace, the session,
and the command that speaks ACP.
"""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

from acp.schema import AllowedOutcome, RequestPermissionResponse

from acp import PROTOCOL_VERSION, spawn_agent_process, text_block


class Editor:
    """Allows everything once, and keeps the updates."""

    def __init__(self) -> None:
        self.updates: list[dict[str, Any]] = []
        self.at_gate = asyncio.Event()
        self.hangs = asyncio.Event()

    async def request_permission(
        self, session_id: str, tool_call: Any, options: list[Any], **_: Any
    ) -> RequestPermissionResponse:
        outcome = AllowedOutcome(outcome="selected", option_id="once")
        return RequestPermissionResponse(outcome=outcome)

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        shown = update.model_dump(by_alias=True, exclude_none=True, mode="json")
        self.updates.append(shown)
        if (shown.get("title"), shown.get("status")) == ("cat gate", "in_progress"):
            self.at_gate.set()
        if shown.get("content") == {"type": "text", "text": "so"}:
            self.hangs.set()


async def main(workspace: str, session_id: str, command: list[str]) -> None:
    editor: Any = Editor()
    spawned = spawn_agent_process(editor, *command, env=dict(os.environ))
    async with spawned as (agent, _process):
        await agent.initialize(protocol_version=PROTOCOL_VERSION)
        await agent.load_session(cwd=workspace, session_id=session_id, mcp_servers=[])
        await agent.set_config_option(config_id="approve", session_id=session_id, value="ask")
        first = asyncio.create_task(agent.prompt(session_id=session_id, prompt=[text_block("one")]))
        await editor.at_gate.wait()
        steering = {"sessionId": session_id, "prompt": [{"type": "text", "text": "to the left"}]}
        await agent.ext_method("tiller/steer", steering)
        await asyncio.to_thread((Path(workspace) / "gate").write_text, "")
        stops = [(await first).stop_reason]
        second = asyncio.create_task(
            agent.prompt(session_id=session_id, prompt=[text_block("two")])
        )
        await editor.hangs.wait()
        await agent.cancel(session_id=session_id)
        stops.append((await second).stop_reason)
    sys.stdout.write(json.dumps({"stops": stops, "updates": editor.updates}))


asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
