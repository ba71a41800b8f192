"""Whole sessions through the two SDKs of the protocol, whose clients check what they get.

A terminal watches one of them: it sees the same, and nothing else.
"""

import base64
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import trio

from e2e.clients import Tillers
from e2e.words import bash, calls, hang, read, said_in, text
from support.daemon import Daemon
from support.editor import NODE, Json, needs_node
from support.frontend import TIMEOUT_S, Frontend
from support.pictures import picture
from tiller_daemon.models.scripted import CallPart, ScriptStep
from tiller_protocol.events import Event, ItemCompleted, TurnEnded
from tiller_protocol.items import AssistantMessage, ToolCall, UserMessage
from tiller_protocol.ops import SessionCreate

ACP = (sys.executable, "-m", "tiller_client", "acp", "--approve", "ask")


def script(daemon: Daemon, workspace: Path) -> str:
    """A model that reads and edits files, waits at a gate, answers, and then hangs."""
    os.mkfifo(workspace / "gate")
    beside = workspace.parent / "beside.txt"
    beside.write_text("beside")
    edit = CallPart("edit", arguments={"path": "greeting.txt", "old": "hello", "new": "hi"})
    plan = CallPart("plan", arguments={"items": [{"text": "greet", "state": "in_progress"}]})
    steps: tuple[ScriptStep, ...] = (
        calls(read("greeting.txt"), read(str(beside)), plan),
        calls(edit),
        calls(bash("cat gate")),
        text("All done.", pieces=3),
        hang("so"),
    )
    return daemon.script(*steps)


@pytest.mark.peer
async def test_the_client_of_the_typescript_sdk_runs_a_whole_session(
    daemon: Daemon, workspace: Path
) -> None:
    needs_node()
    model = script(daemon, workspace)
    image = base64.b64encode(picture()).decode()
    command = ("node", NODE / "client.mjs", workspace, model, image, *ACP)
    with trio.fail_after(2 * TIMEOUT_S):
        done = await trio.run_process(
            [str(word) for word in command], env=daemon.variables, capture_stdout=True
        )
    report: Json = json.loads(done.stdout)
    assert report["initialize"]["protocolVersion"] == 1
    assert report["turn"]["stopReason"] == "end_turn"
    assert report["cancelled"]["stopReason"] == "cancelled"
    assert report["turn"]["_meta"]["tiller"]["turnId"] == report["steered"]["turnId"]
    assert (workspace / "greeting.txt").read_text() == "hi\n"
    [asked] = report["asked"]  # not about the file in the additional directory
    path = str(workspace / "greeting.txt")
    diff = {"type": "diff", "path": path, "oldText": "hello\n", "newText": "hi\n"}
    assert asked["toolCall"]["content"] == [diff]
    assert [error["code"] for error in report["errors"]] == [-32602, -32602, -32002]
    assert report["options"]["configOptions"][1]["currentValue"] == model
    kinds = {update["sessionUpdate"] for update in report["updates"]}
    assert kinds == {
        *("available_commands_update", "config_option_update"),
        *("session_info_update", "tool_call", "tool_call_update", "plan"),
        *("user_message_chunk", "agent_message_chunk"),
    }
    said = [one for one in report["loaded"] if one["sessionUpdate"] == "agent_message_chunk"]
    assert "".join(one["content"]["text"] for one in said) == "All done.so"
    assert report["sessionId"] in [one["sessionId"] for one in report["list"]["sessions"]]
    assert report["fork"]["sessionId"] != report["sessionId"]
    assert report["status"] == 0
    items = daemon.requests(report["sessionId"])[-1].items
    assert report["queued"]["position"] == 1
    *typed, last = [item for item in items if isinstance(item, UserMessage)]
    assert [one.text for one in typed] == ["greet shorter", "to the left"]
    assert last.text.startswith("and now greeting.txt")
    assert "an open buffer" in last.text
    assert last.files == ("greeting.txt",)
    assert [one.media_type for one in last.images] == ["image/png"]


PYTHON_CLIENT = Path(__file__).with_name("sdk_client.py")


@pytest.mark.nightly
async def test_a_terminal_sees_what_the_client_of_the_python_sdk_does(
    daemon: Daemon, frontend: Frontend, tillers: Tillers, workspace: Path
) -> None:
    model = script(daemon, workspace)
    created = await frontend.must(SessionCreate(str(workspace), model=model))
    session_id: str = created.session_id  # type: ignore[union-attr]
    frontend.follow(session_id)
    terminal = await tillers(daemon, "attach", "--json", session_id)
    command = (sys.executable, PYTHON_CLIENT, workspace, session_id, *ACP)
    with trio.fail_after(2 * TIMEOUT_S):
        done = await trio.run_process(
            [str(word) for word in command],
            env=daemon.variables,
            capture_stdout=True,
            stdin=b"",
        )
    report: Json = json.loads(done.stdout)
    assert report["stops"] == ["end_turn", "cancelled"]
    await frontend.turn_ended(session_id, 2)
    log = await frontend.log(session_id)
    await terminal.until(log[-1].seq)
    assert terminal.seen == log, "what the terminal saw is the log"
    assert shown(report["updates"]) == happened(log)
    assert said_in(daemon.requests(session_id)[-1].items) == ["one", "to the left", "two"]


def shown(updates: list[Json]) -> list[tuple[str, ...]]:
    """What a client was shown, in the order in which it began."""
    found: dict[str, list[str]] = {}
    for update in updates:
        match update["sessionUpdate"]:
            case "agent_message_chunk" | "user_message_chunk" as kind:
                entry = found.setdefault(update["messageId"], [kind, ""])
                entry[1] += update["content"]["text"]
            case "tool_call":
                found[update["toolCallId"]] = ["call", ""]
            case "tool_call_update":
                found[update["toolCallId"]][1] = update.get("status", "")
            case _:
                pass
    return sorted((item_id, *entry) for item_id, entry in found.items())


def happened(events: list[Event]) -> list[tuple[str, ...]]:
    """The same from the events; the client's own prompts are left out, as it shows them itself."""
    found: list[tuple[str, ...]] = []
    for event in events:
        if not isinstance(event.body, ItemCompleted):
            continue
        match event.body.item:
            case AssistantMessage() as item:
                found.append((item.id, "agent_message_chunk", item.text))
            case UserMessage(delivery="steer") as item:
                found.append((item.id, "user_message_chunk", item.text))
            case ToolCall() as item:
                state = "completed" if item.state == "completed" else "failed"
                found.append((item.id, "call", state))
            case _:
                pass
    assert any(isinstance(event.body, TurnEnded) for event in events)
    return sorted(found)


def test_every_version_of_the_sdks_is_fixed() -> None:
    package: Any = json.loads((NODE / "package.json").read_text())
    assert all(version[0].isdigit() for version in package["devDependencies"].values())
    assert '"resolved"' not in (NODE / "package-lock.json").read_text(), "no host of a registry"
