"""Responses requests that a ChatGPT plan pays for: they have nothing that OpenAI refuses then."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.each import each
from support.login_service import call, frames, message, plan_problem
from support.responses_history import PLACE, USER, items, request
from support.responses_history import call as past_call
from tiller_daemon.models.base import ToolCallStarted, ToolSpec
from tiller_daemon.models.dialects.openai_responses.request import build_body
from tiller_daemon.models.dialects.openai_responses.stream import ResponsesDecoder
from tiller_daemon.models.http.failure import Endpoint
from tiller_protocol.items import Item

TOOL = ToolSpec("read", "Reads.", {"type": "object", "properties": {"path": {"type": "string"}}})


def plan_body(*history: Item, **fields: Any) -> bytes:
    return build_body(request(*history, **fields), PLACE, for_openai=True, for_plan=True)


@given(history=st.lists(items, max_size=8), system=st.text(max_size=5))
def test_any_history_makes_a_request_that_a_plan_pays_for(history: list[Item], system: str) -> None:
    for tools in ((), (TOOL,)):
        body = plan_body(*history, system=system, tools=tools, max_output_tokens=99, variant="high")
        assert plan_problem(body) == ""


def test_the_tools_are_in_one_namespace_as_are_their_calls() -> None:
    body = json.loads(plan_body(USER, past_call("c1"), tools=(TOOL,)))
    (space,) = body["tools"]
    assert (space["type"], space["name"]) == ("namespace", "tiller")
    assert [tool["name"] for tool in space["tools"]] == ["read"]
    calls = [one for one in body["input"] if one["type"] == "function_call"]
    assert [one["namespace"] for one in calls] == ["tiller"]
    assert json.loads(plan_body(USER)).get("tools") is None


def test_a_hosted_tool_stands_beside_the_namespace() -> None:
    asked = plan_body(USER, tools=(TOOL,), hosted_tools={"web_search": {}}, purpose="turn")
    assert [one["type"] for one in json.loads(asked)["tools"]] == ["web_search", "namespace"]
    assert plan_problem(asked) == ""


def test_configured_options_that_would_be_refused_are_left_out() -> None:
    options = {"temperature": 1, "truncation": "auto", "service_tier": "flex"}
    body = json.loads(plan_body(USER, options=options, max_output_tokens=9))
    assert body["service_tier"] == "flex"
    assert not {*options, "max_output_tokens"} & {*body} - {"service_tier"}


@each(
    ("change", "problem"),
    [
        ({"max_output_tokens": 16}, "max_output_tokens"),
        ({"temperature": 0}, "temperature"),
        ({"store": True}, "store or stream"),
        ({"input": "hello"}, "input"),
        ({"input": [{"type": "message", "role": "system", "content": "x"}]}, "a system message"),
        ({"tools": [{"type": "function", "name": "read"}]}, "tools: function"),
        ({"tools": [{"type": "image_generation"}]}, "tools: image_generation"),
    ],
)
def test_the_strict_api_of_the_tests_refuses_what_it_should(
    change: dict[str, Any], problem: str
) -> None:
    body = json.loads(plan_body(USER, tools=(TOOL,)))
    assert plan_problem(json.dumps(body | change).encode()) == problem


@pytest.mark.parametrize(("namespace", "name"), [("tiller", "read"), ("other", "other.read")])
def test_only_calls_in_our_namespace_are_calls_of_our_tools(namespace: str, name: str) -> None:
    decoder = ResponsesDecoder(Endpoint("p", "http://h/v1"), "m", 0)
    events = [
        event
        for frame in frames(message("I read."), call("read", namespace, path="a"))
        for event in decoder.feed(frame)
    ]
    assert [one.name for one in events if isinstance(one, ToolCallStarted)] == [name]
