"""Effort and model families on every wire, in requests that the providers' packages understand."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from e2e.provider import said
from support.daemon import Daemon
from support.frontend import Frontend
from support.http_server import serving, status
from support.vendor_types import check_chat_typed, check_messages_typed, check_responses_typed
from tiller_protocol.events import TurnStarted

CONFIG = """\
model = "there/{model}"
small_model = "scripted/untitled"
variant = "low"

[agents.build]
variant = "{variant}"

[providers.there]
api = "{api}"
base_url = "{url}"
prompt_header = "You are a guest."

[providers.scripted]
api = "scripted"
scripts = "../scripts"
"""

CHECKS: dict[str, Callable[[bytes], None]] = {
    "openai_chat": check_chat_typed,
    "openai_responses": check_responses_typed,
    "anthropic_messages": check_messages_typed,
}


def tools_in(body: dict[str, Any]) -> set[str]:
    return {tool.get("function", tool)["name"] for tool in body["tools"]}


def system_in(body: dict[str, Any]) -> str:
    if "instructions" in body:
        return body["instructions"]
    system = body.get("system") or body["messages"][0]["content"]
    return system if isinstance(system, str) else system[0]["text"]


@pytest.mark.parametrize(
    ("api", "model", "variant", "effort", "tool", "line"),
    [
        ("openai_responses", "gpt-5", "high", {"reasoning": {"effort": "high"}}, "apply_patch", 1),
        ("openai_chat", "gpt-5-codex", "high", {"reasoning_effort": "high"}, "apply_patch", 1),
        ("openai_chat", "qwen3", "none", {"reasoning_effort": "none"}, "edit", 0),
        (
            "anthropic_messages",
            "claude-opus-4-8",
            "max",
            {"output_config": {"effort": "max"}},
            *("edit", 2),
        ),
        (
            "anthropic_messages",
            "claude-haiku-4-5",
            "high",
            {"thinking": {"type": "enabled", "budget_tokens": 20_000}},
            *("edit", 2),
        ),
    ],
)
async def test_the_request_has_the_effort_the_prompt_and_the_tool_of_the_model(
    new_daemon: Callable[..., Daemon],
    workspace: Path,
    nursery: trio.Nursery,
    api: str,
    model: str,
    variant: str,
    effort: dict[str, Any],
    tool: str,
    line: int,
) -> None:
    lines = ("", "Keep going until the task is done", "nothing beyond it")
    answer = said("Hello.") if api == "openai_chat" else status(400)
    async with serving(answer) as server:
        url = server.base_url
        daemon = new_daemon(CONFIG.format(api=api, model=model, variant=variant, url=url))
        daemon.start()
        frontend = await Frontend.connect(daemon, nursery)
        session_id = await frontend.session(workspace, model=f"there/{model}")
        await frontend.say(session_id, system="Speak Latin.")
        await frontend.turn_ended(session_id)
        (received,) = server.received[:1]
        bodies = [event.body for event in frontend.events(session_id)]
        await frontend.close()
    CHECKS[api](received.data)
    body = received.body
    assert effort.items() <= body.items()
    assert {"edit", "apply_patch"} & tools_in(body) == {tool}
    system = system_in(body)
    assert system.startswith("You are a guest.\n\nYou are a coding agent.")
    assert system.endswith("\n\nSpeak Latin.")
    assert lines[line] in system
    assert all(other not in system for n, other in enumerate(lines) if n not in (0, line))
    (started,) = [one.context for one in bodies if isinstance(one, TurnStarted)]
    assert (started.variant, started.system_prompt) == (variant, system)
