"""`tiller exec` over the Responses wire, with a third-party fake provider and a real model."""

import json
import os
import signal
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from e2e.peers.home import Home, bodies, check_whole, git
from support.peers import Aimock, Llama, Llmock
from tiller_protocol.events import ItemCompleted, ItemDelta, StatusChanged, StepEnded, TurnEnded
from tiller_protocol.items import AssistantMessage, Reasoning, ToolCall

pytestmark = pytest.mark.peer

CONFIG = """\
model = "peer/{model}"

[providers.peer]
api = "openai_responses"
base_url = "{url}"

[models."peer/{model}"]
context_window = {window}
max_output = {tokens}
"""

TOKENS = 24
TOKENS_ENDLESS = 3000


@pytest.fixture
def home(new_home: Callable[..., Home], aimock: Aimock) -> Home:
    aimock.answer({"systemMessage": "name sessions"}, {"content": "A title"})
    return new_home(CONFIG.format(url=aimock.base_url, model="gpt-5", window=200_000, tokens=9_000))


def new_llama_home(new_home: Callable[..., Home], llama: Llama, tokens: int) -> Home:
    config = CONFIG.format(url=llama.base_url, model="smollm2", window=8192, tokens=tokens)
    return new_home(config)


def asked(aimock: Aimock) -> list[dict[str, Any]]:
    """Return the requests of turns; title requests, without tools, are left out."""
    return [entry["body"] for entry in aimock.journal() if entry["body"].get("tools")]


def call(name: str, call_id: str, **arguments: Any) -> dict[str, Any]:
    return {"name": name, "id": call_id, "arguments": arguments}


def test_a_repair_with_thinking_that_goes_back(home: Home, aimock: Aimock, project: Path) -> None:
    """B2, G2, G4, G7: checked in the events, in the repository, and in the provider's requests."""
    looks = [call("read", "call_read", path="add.py"), call("grep", "call_grep", pattern="hello")]
    edit = call("edit", "call_edit", path="add.py", old="a - b", new="a + b")
    aimock.answer(
        {"userMessage": "fix add", "hasToolResult": False},
        {
            "content": "Let me look.",
            "toolCalls": looks,
            "reasoning": "Hm.",
            "webSearches": ["adding"],
        },
    )
    aimock.answer({"toolCallId": "call_grep"}, {"toolCalls": [edit], "reasoning": "A minus."})
    aimock.answer({"toolCallId": "call_edit"}, {"content": "Fixed. 😀"})

    said = home.tiller("exec", "-C", str(project), "--approve", "always", "--json", "fix add")
    assert (said.status, said.err) == (0, "")
    check_whole(said.events)
    items = [body.item for body in bodies(said.events, ItemCompleted)]
    called = [one for one in items if isinstance(one, ToolCall)]
    assert [one.name for one in called if one.by_provider] == ["web_search"]
    calls = {str(one.call_id): one for one in called if not one.by_provider}
    assert set(calls) == {"call_read", "call_grep", "call_edit"}
    assert {one.state for one in calls.values()} == {"completed"}
    thoughts = [one for one in items if isinstance(one, Reasoning)]
    assert [one.text for one in thoughts] == ["Hm.", "", "A minus.", ""]
    kept = [json.loads(one.opaque.partition("\n")[2]) for one in thoughts[:3]]
    types = [[one["type"] for one in each] for each in kept]
    assert types == [["reasoning"], ["web_search_call"], ["reasoning"]]
    (end,) = bodies(said.events, TurnEnded)
    assert (end.outcome, end.steps, end.last_message) == ("completed", 3, "Fixed. 😀")
    assert git(project, "diff", "--unified=0").splitlines()[-1] == "+    return a + b"

    requests = asked(aimock)
    assert len(requests) == 3
    for before, after in pairwise(requests):
        assert after["messages"][: len(before["messages"])] == before["messages"]
    results = [m["tool_call_id"] for m in requests[-1]["messages"] if m["role"] == "tool"]
    assert results == ["call_read", "call_grep", "call_edit"]

    shown = home.tiller("show").out
    assert "∴ Thought\n  Hm." in shown
    assert shown.count("∴ Thought\n") == shown.count("∴ Thought\n  "), "no empty one is shown"


def test_a_stream_that_breaks_is_asked_for_again_and_its_piece_is_told_apart(
    new_home: Callable[..., Home], llmock: Llmock, project: Path
) -> None:
    """B46, B47: the server, which judges its client, reports no problem."""
    config = CONFIG.format(url=llmock.base_url, model="gpt-5", window=99_000, tokens=99)
    home = new_home('small_model = "peer/titles"\n' + config)
    llmock.behave("reply", text="one two three four five six", times=None)
    turns = {"model": "gpt-5", "stream": True}
    llmock.behave("stream_fault", kind="truncate", after_chunks=6, match=turns)
    said = home.tiller("exec", "-C", str(project), "--json", "count")
    assert said.status == 0, said
    check_whole(said.events)
    messages = [body.item for body in bodies(said.events, ItemCompleted)]
    void, good = [item for item in messages if isinstance(item, AssistantMessage)]
    assert (void.state, good.state) == ("discarded", "completed")
    assert good.text == "one two three four five six"
    assert good.text.startswith(void.text)
    (wait,) = [body for body in bodies(said.events, StatusChanged) if body.status == "retry"]
    assert "before the response was complete" in wait.cause
    assert llmock.verdict()["passed"], llmock.verdict()


@pytest.mark.nightly
def test_a_real_answer_streams_and_its_usage_is_reported(
    new_home: Callable[..., Home], llama: Llama, workspace: Path
) -> None:
    home = new_llama_home(new_home, llama, TOKENS)
    said = home.tiller("exec", "-C", str(workspace), "--json", "Say hello.")
    # The model rarely ends its answer by itself; if it does not, it is asked twice to continue.
    assert said.status in (0, 4), said
    check_whole(said.events)
    (end,) = bodies(said.events, TurnEnded)
    assert end.usage.input_tokens > 100, "the tools alone take more"
    assert 0 < end.usage.output_tokens <= TOKENS * end.steps
    steps = bodies(said.events, StepEnded)
    assert {step.finish_reason for step in steps} <= {"stop", "length"}
    deltas = "".join(body.delta for body in bodies(said.events, ItemDelta))
    items = [body.item for body in bodies(said.events, ItemCompleted)]
    parts = [item.text for item in items if isinstance(item, AssistantMessage)]
    assert "".join(parts) == deltas


@pytest.mark.nightly
def test_an_interrupt_from_elsewhere_ends_a_real_stream_and_the_session_goes_on(
    new_home: Callable[..., Home], llama: Llama, workspace: Path
) -> None:
    """B28, G4. The server is stopped in mid-stream, so that the stream can't end by itself."""
    home = new_llama_home(new_home, llama, TOKENS_ENDLESS)
    home.directory = workspace
    turn = home.start("exec", "-C", str(workspace), "--json", "Count from 1 to 1000 in words.")
    turn.until('"item_delta"')
    try:
        os.kill(llama.pid, signal.SIGSTOP)
        assert home.tiller("interrupt", "last").status == 0
        said = turn.ended()
    finally:
        os.kill(llama.pid, signal.SIGCONT)
    assert said.status == 130
    check_whole(said.events)
    (end,) = bodies(said.events, TurnEnded)
    assert end.outcome == "interrupted"

    again = home.start("exec", "-C", str(workspace), "--json", "--session", "last", "Say hello.")
    again.until('"item_delta"')
    try:
        os.kill(llama.pid, signal.SIGSTOP)
        again.process.send_signal(signal.SIGINT)
        assert again.ended().status == 130
    finally:
        os.kill(llama.pid, signal.SIGCONT)
    check_whole(home.tiller("log", "--json").events)
