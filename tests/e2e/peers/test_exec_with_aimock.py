"""`tiller exec` as a person would use it, against a third-party fake provider."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from e2e.peers.home import Home, bodies, check_whole, git
from support.dialect import check_chat_messages
from support.peers import Aimock
from tiller_protocol.events import ItemCompleted, ItemDelta, StatusChanged, TurnEnded
from tiller_protocol.items import AssistantMessage, ToolCall

pytestmark = pytest.mark.peer

CONFIG = """\
model = "aimock/gpt-5"

[providers.aimock]
api = "{api}"
base_url = "{url}"
api_key_env = "PEER_KEY"
"""

KEY = "sk-peer-0123456789abcdef"

SAID = "Fixed: add() now adds. 😀"


@pytest.fixture(autouse=True)
def title(aimock: Aimock) -> None:
    """Give title requests their own answer, so that they use up no other answer."""
    aimock.answer({"systemMessage": "name sessions"}, {"content": "A title"})


def asked(aimock: Aimock) -> list[list[dict[str, Any]]]:
    """Return the messages of each turn request; title requests, without tools, are left out."""
    bodies = [entry["body"] for entry in aimock.journal()]
    return [body["messages"] for body in bodies if body.get("tools")]


def config_for(aimock: Aimock, api: str = "openai_chat") -> str:
    return CONFIG.format(api=api, url=aimock.base_url)


@pytest.fixture
def home(new_home: Callable[..., Home], aimock: Aimock) -> Home:
    return new_home(config_for(aimock), PEER_KEY=KEY)


def call(name: str, call_id: str, **arguments: Any) -> dict[str, Any]:
    return {"name": name, "id": call_id, "arguments": arguments}


def plan_a_repair(aimock: Aimock) -> list[str]:
    """Plan calls that read and grep together, edit, and run; return the calls' ids in order."""
    looks = [call("read", "call_read", path="add.py"), call("grep", "call_grep", pattern="hello")]
    edit = call("edit", "call_edit", path="add.py", old="a - b", new="a + b")
    run = call("bash", "call_run", command="python3 -Bc 'import add; print(add.add(20, 22))'")
    aimock.answer(
        {"userMessage": "fix add", "hasToolResult": False},
        {"content": "Let me look.", "toolCalls": looks},
    )
    aimock.answer({"toolCallId": "call_grep"}, {"toolCalls": [edit]})
    aimock.answer({"toolCallId": "call_edit"}, {"content": "Now run it.", "toolCalls": [run]})
    counted = {"input_tokens": 9, "output_tokens": 9, "prompt_tokens": 9, "completion_tokens": 9}
    aimock.answer({"toolCallId": "call_run"}, {"content": SAID, "usage": counted})
    return ["call_read", "call_grep", "call_edit", "call_run"]


@pytest.mark.parametrize("api", ["openai_chat", "anthropic_messages"])
def test_a_repair_of_several_calls_changes_the_repository_and_nothing_else(
    new_home: Callable[..., Home], aimock: Aimock, project: Path, api: str
) -> None:
    """B2, G2, G4, G7: checked in the events, in the repository, and in the provider's requests.

    On every wire, the provider records its requests in the form of Chat Completions.
    """
    home = new_home(config_for(aimock, api), PEER_KEY=KEY)
    ids = plan_a_repair(aimock)
    said = home.tiller("exec", "-C", str(project), "--approve", "always", "--json", "fix add")
    assert (said.status, said.err) == (0, "")
    check_whole(said.events)
    assert home.tiller("log", "--json").out.startswith(said.out)

    completed = [body.item for body in bodies(said.events, ItemCompleted)]
    calls = [item for item in completed if isinstance(item, ToolCall)]
    assert {(one.call_id, one.state) for one in calls} == {(id_, "completed") for id_ in ids}
    outputs = {str(one.call_id): one.output for one in calls}
    assert "return a - b" in outputs["call_read"]
    assert "greeting.txt" in outputs["call_grep"]
    assert outputs["call_run"] == "42\n"
    (end,) = bodies(said.events, TurnEnded)
    assert (end.outcome, end.steps, end.last_message) == ("completed", 4, SAID)
    assert end.usage.input_tokens > 0 < end.usage.output_tokens

    assert git(project, "status", "--porcelain") == " M add.py\n"
    changed = git(project, "diff", "--unified=0").splitlines()[-2:]
    assert changed == ["-    return a - b", "+    return a + b"]

    requests = asked(aimock)
    assert len(requests) == 4
    for before, after in zip(requests, [*requests[1:], None], strict=True):
        check_chat_messages(before)
        assert after is None or after[: len(before)] == before
    results = [message for message in requests[-1] if message["role"] == "tool"]
    assert [result["tool_call_id"] for result in results] == ids
    assert [result["content"] for result in results] == [outputs[id_] for id_ in ids]


def test_a_pipe_gets_the_final_message_alone(home: Home, aimock: Aimock, project: Path) -> None:
    plan_a_repair(aimock)
    said = home.tiller("exec", "-C", str(project), "--approve", "always", "fix add")
    assert (said.status, said.out) == (0, SAID + "\n")
    assert "Let me look." in said.err
    assert "\x1b" not in said.err


def test_a_limit_with_retry_after_is_waited_for(home: Home, aimock: Aimock, project: Path) -> None:
    """B46."""
    limit = {"error": {"message": "slow down", "type": "rate_limit_error"}, "status": 429}
    aimock.answer({"userMessage": "hello", "sequenceIndex": 0}, limit | {"retryAfter": 1})
    aimock.answer({"userMessage": "hello", "sequenceIndex": 1}, {"content": "Here."})
    said = home.tiller("exec", "-C", str(project), "--json", "hello")
    assert said.status == 0
    check_whole(said.events)
    waits = [body for body in bodies(said.events, StatusChanged) if body.status == "retry"]
    assert [(wait.attempt, wait.delay_s) for wait in waits] == [(2, 1.0)]
    assert "slow down" in waits[0].cause
    (end,) = bodies(said.events, TurnEnded)
    assert (end.outcome, end.last_message, end.steps) == ("completed", "Here.", 1)


def test_a_stream_that_breaks_is_asked_for_again_and_its_piece_is_told_apart(
    home: Home, aimock: Aimock, project: Path
) -> None:
    """B47."""
    words = "one two three four five six"
    aimock.answer(
        {"userMessage": "count", "sequenceIndex": 0},
        {"content": words},
        chunkSize=5,
        truncateAfterChunks=4,
        latency=50,
    )
    aimock.answer({"userMessage": "count", "sequenceIndex": 1}, {"content": words})
    said = home.tiller("exec", "-C", str(project), "--json", "count")
    assert said.status == 0
    check_whole(said.events)
    messages = [body.item for body in bodies(said.events, ItemCompleted)]
    void, good = [item for item in messages if isinstance(item, AssistantMessage)]
    assert (void.state, good.state, good.text) == ("discarded", "completed", words)
    assert void.text
    assert words.startswith(void.text)
    for item in (void, good):
        deltas = [d.delta for d in bodies(said.events, ItemDelta) if d.item_id == item.id]
        assert "".join(deltas) == item.text
    first, second = asked(aimock)
    assert first == second

    shown = home.tiller("show")
    assert f"{void.text}\n(discarded)" in shown.out
    aimock.answer({"userMessage": "go on"}, {"content": "seven"})
    assert home.tiller("exec", "-C", str(project), "--session", "last", "go on").out == "seven\n"
    last = asked(aimock)[-1]
    check_chat_messages(last)
    assert [message["content"] for message in last if message["role"] == "assistant"] == [words]


def test_a_refused_key_is_one_sentence_that_names_its_variable(
    home: Home, aimock: Aimock, project: Path
) -> None:
    """B46, G13: no retry; and tiller does not repeat the key that the server repeats."""
    error = {"message": f"Incorrect API key provided: {KEY}", "type": "invalid_request_error"}
    aimock.answer({"userMessage": "hello"}, {"error": error, "status": 401})
    said = home.tiller("exec", "-C", str(project), "hello")
    assert (said.status, said.out) == (1, "")
    (sentence,) = [line for line in said.err.splitlines() if "PEER_KEY" in line]
    assert "requires a valid key" in sentence
    assert len(asked(aimock)) == 1
    assert KEY not in said.err
    assert home.files_with(KEY) == []


@pytest.mark.parametrize("given", [{}, {"PEER_KEY": ""}], ids=["unset", "empty"])
def test_a_key_that_is_not_there_is_said_before_anything_is_sent(
    new_home: Callable[..., Home], aimock: Aimock, project: Path, given: dict[str, str]
) -> None:
    home = new_home(config_for(aimock), **given)
    said = home.tiller("exec", "-C", str(project), "hello")
    assert (said.status, said.out) == (1, "")
    assert "PEER_KEY" in said.err
    assert "tiller daemon restart" in said.err
    assert len(said.err.splitlines()) == 1
    assert aimock.journal() == []
    assert home.tiller("ls").out.startswith("no sessions")


@pytest.mark.promise("G13")
def test_the_key_reaches_the_provider_and_nothing_else(
    new_home: Callable[..., Home], aimock: Aimock, project: Path
) -> None:
    """The key is in no log, event, output, spill file, argument, or environment of a command."""
    home = new_home(
        f'env_keep = ["PLAIN", "CURL_OPTIONS"]\n{config_for(aimock)}',
        PEER_KEY=KEY,
        CURL_OPTIONS=f"-H 'Authorization: Bearer {KEY}'",
        PLAIN="is seen",
    )
    noise = "env; seq 30000; env; cat /proc/self/environ | tr '\\0' '\\n'; cat /proc/$PPID/cmdline"
    aimock.answer(
        {"userMessage": "look", "hasToolResult": False},
        {"toolCalls": [call("bash", "call_env", command=noise)]},
    )
    aimock.answer({"toolCallId": "call_env"}, {"content": "Seen."})
    said = home.tiller("exec", "-C", str(project), "--approve", "always", "--json", "look")
    assert said.status == 0, said
    (one,) = [b.item for b in bodies(said.events, ItemCompleted) if isinstance(b.item, ToolCall)]
    spilled = Path(one.spill_path).read_text()
    assert spilled.count("PLAIN=is seen") == 3, "the command did not show its environment"
    assert KEY not in said.out + said.err + home.daemon_output + spilled
    assert home.files_with(KEY) == []
    assert KEY not in json.dumps([entry["body"] for entry in aimock.journal()])
    assert aimock.journal()[0]["headers"]["authorization"] == "[REDACTED]", "no key was sent"
    for verb in (("show", "--json"), ("models", "--json"), ("daemon", "status", "--json")):
        assert KEY not in home.tiller(*verb).out


@pytest.mark.promise("G13")
def test_a_key_in_the_daemons_own_environment_is_out_of_reach_or_taken_out(
    new_home: Callable[..., Home], aimock: Aimock, project: Path
) -> None:
    """A command of the same user can't read the key; from root's output, the key is removed."""
    home = new_home(config_for(aimock), PEER_KEY=KEY)
    command = "cat /proc/$PPID/environ | tr '\\0' '\\n' | grep PEER_KEY"
    aimock.answer(
        {"userMessage": "pry", "hasToolResult": False},
        {"toolCalls": [call("bash", "call_pry", command=command)]},
    )
    aimock.answer({"toolCallId": "call_pry"}, {"content": "Seen."})
    said = home.tiller("exec", "-C", str(project), "--approve", "always", "--json", "pry")
    assert said.status == 0, said
    (one,) = [b.item for b in bodies(said.events, ItemCompleted) if isinstance(b.item, ToolCall)]
    assert one.output.startswith("PEER_KEY=[secret]") or one.exit_status == 1
    assert KEY not in said.out + said.err + home.daemon_output
    assert home.files_with(KEY) == []
    assert KEY not in json.dumps([entry["body"] for entry in aimock.journal()])
