"""A recorded session played again: the same workspace and inputs give the same events."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio

from e2e.provider import call_frames, config_for, frame, text_frames
from support.daemon import Daemon
from support.frontend import Frontend
from support.http_server import events, hanging, serving, status
from tiller_protocol.events import Event, ItemDelta, TurnEnded
from tiller_protocol.ops import Interrupt

KEY = "sk-canary-0123456789abcdef"
RECORD = 'record = "{}/recordings"\n'
REPLAY = """\
model = "play/{name}"
small_model = "scripted/untitled"

[providers.play]
api = "scripted"
scripts = "{directory}"

[providers.scripted]
api = "scripted"
scripts = "../scripts"
record = "../requests.jsonl"
"""

INPUTS = ("fix it", "go on", "and more", "too much", "stop here")
TIMES = frozenset(
    {"time", "started_at", "duration_s", "time_to_first_token_s", "delay_s", "system_prompt"}
)
USAGE = {"prompt_tokens": 900, "completion_tokens": 80}


def counted(*frames: bytes) -> tuple[bytes, ...]:
    """The frames of an answer, with its tokens before the end."""
    usage = b"data: " + json.dumps({"choices": [], "usage": USAGE}).encode() + b"\n\n"
    return (*frames[:-1], usage, frames[-1])


ANSWERS = (
    status(500, {"error": {"message": f"oops {KEY}"}}, retry_after_ms="10"),
    events(frame({"content": "ha"}), end=False),
    events(
        *counted(
            frame({"reasoning_content": "Let me "}),
            frame({"reasoning_content": "think."}),
            *call_frames(
                ("bash", {"command": "echo one >>made; cat made; false"}),
                ("read", {"path": "greeting.txt"}),
                ("bash", {"command": "no json"}),
            ),
        )
    ),
    events(*counted(*text_frames("It is ", "fixed ", "now: 😀."))),
    events(*text_frames("cut"), end=True),
    status(400, {"error": {"message": "no such field"}}),
    status(429, {"error": {"message": "x", "code": "insufficient_quota"}}),
    hanging(frame({"content": "so fa"}), frame({"content": "r"})),
)


@pytest.mark.nightly
async def test_a_recorded_session_is_played_back_event_for_event(
    new_daemon: Callable[..., Daemon],
    workspace: Path,
    tmp_path: Path,
    nursery: trio.Nursery,
) -> None:
    """The session has failures that were retried, calls that ran, a refusal, and an interrupt."""
    async with serving(*ANSWERS) as server:
        config = RECORD.format(tmp_path) + config_for(server.base_url).replace(
            "[providers.scripted", 'api_key_env = "K"\n\n[providers.scripted'
        )
        daemon = new_daemon(config)
        daemon.start(K=KEY)
        session_id, first = await play(daemon, workspace, "local/m", nursery)
    (file,) = (tmp_path / "recordings").iterdir()
    assert file.name == f"{session_id}.jsonl"
    assert file.stat().st_mode & 0o077 == 0
    assert KEY.encode() not in file.read_bytes()

    (workspace / "made").unlink()
    again = new_daemon(REPLAY.format(name=session_id, directory=file.parent))
    again.start()
    _, second = await play(again, workspace, f"play/{session_id}", nursery)
    assert [e.body.outcome for e in first if isinstance(e.body, TurnEnded)] == [
        "completed",
        "completed",
        "failed",
        "failed",
        "interrupted",
    ]
    assert comparable(second, {f"play/{session_id}": "local/m"}) == comparable(first, {})


async def play(
    daemon: Daemon, workspace: Path, model: str, nursery: trio.Nursery
) -> tuple[str, list[Event]]:
    """Send every input in its own turn, and interrupt the last turn."""
    frontend = await Frontend.connect(daemon, nursery)
    session_id = await frontend.session(workspace, model=model)
    for number, text in enumerate(INPUTS, 1):
        await frontend.say(session_id, text)
        if text == INPUTS[-1]:
            await frontend.until(session_id, lambda e: is_said(frontend, session_id, "so far"))
            await frontend.must(Interrupt(session_id))
        await frontend.turn_ended(session_id, number)
    seen = list(frontend.events(session_id))
    await frontend.close()
    return session_id, seen


def is_said(frontend: Frontend, session_id: str, text: str) -> bool:
    pieces = [e.body.delta for e in frontend.events(session_id) if isinstance(e.body, ItemDelta)]
    return "".join(pieces).endswith(text)


def comparable(events: list[Event], renamed: dict[str, str]) -> list[Any]:
    """Events without times and with ids by their order; what was streamed, whole, at its end."""
    streamed: dict[str, str] = {}
    known: dict[str, str] = {}

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: plain(v) for k, v in value.items() if k not in TIMES}
        if isinstance(value, list):
            return [plain(one) for one in value]
        if isinstance(value, str) and len(value) == 26 and value.startswith("01"):
            return known.setdefault(value, f"id {len(known)}")
        return renamed.get(value, value) if isinstance(value, str) else value

    told: list[Any] = []
    for event in events:
        if isinstance(event.body, ItemDelta):
            key = plain(event.body.item_id)
            streamed[key] = streamed.get(key, "") + event.body.delta
        else:
            told.append(plain(msgspec.to_builtins(event.body)))
    return [told, streamed]
