"""`tiller exec` against a provider that fails on purpose and judges how its client reacts."""

from collections.abc import Callable
from pathlib import Path

import pytest

from e2e.peers.home import Home, bodies, check_whole
from support.peers import Llmock
from tiller_protocol.events import ItemCompleted, StatusChanged, TurnEnded
from tiller_protocol.items import AssistantMessage, ToolCall

pytestmark = pytest.mark.peer

CONFIG = """\
model = "llmock/claude-opus-4-8"
small_model = "untitled/none"

[providers.llmock]
api = "{api}"
base_url = "{url}"

[models."llmock/claude-opus-4-8"]
context_window = 200_000

[providers.untitled]
api = "scripted"
scripts = "plays"
"""
"""Title requests go to another provider, and the model's window need not be asked for, so that
llmock gets only the requests of turns."""

WIRES = ("openai_chat", "openai_responses", "anthropic_messages")
WIRE_NOW = (WIRES[0], *(pytest.param(wire, marks=pytest.mark.nightly) for wire in WIRES[1:]))
"""By day, one wire is enough here: each dialect has tests of its own for faults and limits."""

RACES = {"malformed_chunk_ignored"}
"""Findings that a provider reports if it sent everything before it saw that the client had left."""

SAID = "one two three four five six"

Making = Callable[[str], Home]


@pytest.fixture
def home(new_home: Callable[..., Home], llmock: Llmock) -> Making:
    """Return a function that makes a home whose provider speaks the given wire."""

    def make(api: str) -> Home:
        url = llmock.anthropic_base_url if api == "anthropic_messages" else llmock.base_url
        made = new_home(CONFIG.format(api=api, url=url))
        (made.places.config / "plays").mkdir()
        return made

    return make


@pytest.mark.parametrize("api", WIRE_NOW)
@pytest.mark.parametrize("fault", ["disconnect", "truncate", "malformed", "stall"])
def test_a_stream_that_fails_is_asked_for_again_and_the_turn_completes(
    home: Making, llmock: Llmock, workspace: Path, api: str, fault: str
) -> None:
    """B47: text before the fault is discarded; a pause alone has no effect."""
    llmock.behave("reply", text=SAID, times=9)
    llmock.behave("stream_fault", kind=fault, after_chunks=4, stall_seconds=0.3)
    said = home(api).tiller("exec", "-C", str(workspace), "--json", "count")
    assert (said.status, said.err) == (0, "")
    check_whole(said.events)
    (end,) = bodies(said.events, TurnEnded)
    assert (end.outcome, end.last_message) == ("completed", SAID)
    waits = [body for body in bodies(said.events, StatusChanged) if body.status == "retry"]
    assert len(waits) == (0 if fault == "stall" else 1)
    items = [body.item for body in bodies(said.events, ItemCompleted)]
    void = [i for i in items if isinstance(i, AssistantMessage) and i.state == "discarded"]
    assert all(item.text and SAID.startswith(item.text) for item in void)
    verdict = llmock.verdict()
    assert verdict["passed"], verdict
    assert {found["code"] for found in verdict["findings"]} <= RACES
    assert verdict["attempts"] == len(waits) + 1


@pytest.mark.parametrize("api", WIRE_NOW)
def test_a_limit_with_retry_after_is_waited_for(
    home: Making, llmock: Llmock, workspace: Path, api: str
) -> None:
    """B46: the provider sees whether the wait was as long as requested."""
    llmock.behave("fail", status=429, retry_after=1)
    llmock.behave("reply", text=SAID)
    said = home(api).tiller("exec", "-C", str(workspace), "count")
    assert said.out == SAID + "\n"
    verdict = llmock.verdict()
    assert (verdict["passed"], verdict["attempts"]) == (True, 2), verdict


@pytest.mark.parametrize("api", WIRE_NOW)
@pytest.mark.parametrize("fault", ["malformed_arguments", "unknown_tool"])
def test_a_broken_call_is_told_to_the_model_and_the_turn_goes_on(
    home: Making, llmock: Llmock, workspace: Path, api: str, fault: str
) -> None:
    """B5, B6, G4: the next request has the call in a form that the provider accepts."""
    llmock.behave("tool_fault", kind=fault)
    said = home(api).tiller("exec", "-C", str(workspace), "--json", "look")
    assert said.status == 0, said
    check_whole(said.events)
    items = [body.item for body in bodies(said.events, ItemCompleted)]
    (call,) = [item for item in items if isinstance(item, ToolCall)]
    assert (call.state, call.error_kind) == ("error", "invalid")
    assert bodies(said.events, TurnEnded)[0].steps == 2
    assert llmock.verdict()["passed"]


@pytest.mark.parametrize("api", WIRES)
@pytest.mark.nightly
def test_a_refusal_is_not_asked_for_again(
    home: Making, llmock: Llmock, workspace: Path, api: str
) -> None:
    """B46."""
    for status in (400, 401, 403, 404):
        llmock.reset()
        llmock.behave("fail", status=status, times=9)
        said = home(api).tiller("exec", "-C", str(workspace), "count")
        assert (said.status, said.out) == (1, "")
        assert llmock.verdict()["attempts"] == 1
