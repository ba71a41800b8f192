"""Items as Messages: valid whatever the history, and the same bytes for the same prefix."""

import json
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.dialect_anthropic import check_messages_body, spoken
from support.each import each
from support.messages_history import (
    NEW,
    OLD,
    OTHER,
    PIXEL,
    PLACE,
    READ,
    USER,
    call,
    items,
    reply,
    request,
    texts,
    thought,
)
from tiller_daemon.models.base import ToolSpec
from tiller_daemon.models.dialects.anthropic_messages.history import IMAGE_BASE64_BYTES_MAX
from tiller_daemon.models.dialects.anthropic_messages.opaque_blocks import origin_of, seal_blocks
from tiller_daemon.models.dialects.anthropic_messages.request import build_body
from tiller_daemon.models.history_cache import HistoryCache
from tiller_protocol.ids import ItemId
from tiller_protocol.items import (
    PDF,
    Compaction,
    Image,
    Item,
    Notice,
    Reasoning,
    ToolCall,
    UserMessage,
)


def body(*items: Item, **fields: Any) -> dict[str, Any]:
    return check_messages_body(build_body(request(*items, **fields), PLACE).body)


def messages(*items: Item, **fields: Any) -> list[dict[str, Any]]:
    built: list[dict[str, Any]] = body(*items, **fields)["messages"]
    for message in built:
        for block in message["content"]:
            block.pop("cache_control", None)
    return built


def shape(built: list[dict[str, Any]]) -> list[str]:
    return [f"{m['role']}: {' '.join(b['type'] for b in m['content'])}" for m in built]


def prefix_of(*items: Item, **fields: Any) -> str:
    return build_body(request(*items, **fields), PLACE).prefix


def test_calls_of_one_response_are_followed_by_all_their_results_in_call_order() -> None:
    """B2, G4."""
    built = messages(
        USER, reply("Let me look."), call("c1"), call("c2", output="two"), reply("Done")
    )
    assert shape(built) == [
        "user: text",
        "assistant: text tool_use tool_use",
        "user: tool_result tool_result",
        "assistant: text",
        "user: text",
    ]
    assert built[1]["content"][1] == {
        "type": "tool_use",
        "id": "c1",
        "name": "read",
        "input": {"path": "a"},
    }
    results = [(b["tool_use_id"], b["content"][0]["text"]) for b in built[2]["content"]]
    assert results == [("c1", "text"), ("c2", "two")]


def test_text_between_calls_of_one_response_stays_between_them() -> None:
    built = messages(USER, call("c1"), reply("And"), call("c2"), reply("So"), call("c3", ordinal=1))
    assert shape(built) == [
        "user: text",
        "assistant: tool_use text tool_use",
        "user: tool_result tool_result",
        "assistant: text tool_use",
        "user: tool_result",
    ]


def test_steering_follows_the_results_in_the_same_message() -> None:
    """B16."""
    notice = Notice(ItemId("n"), "steered", "The user steered.")
    built = messages(USER, call("c1"), call("c2"), notice, USER, reply("Yes"), USER)
    assert shape(built)[2] == "user: tool_result tool_result text text"


def test_a_conversation_begins_and_ends_with_the_user() -> None:
    for history in ((), (reply("Hi"),), (USER, reply("Hi")), (USER, thought("hm"))):
        built = messages(*history)
        assert built[0]["role"] == built[-1]["role"] == "user"


@pytest.mark.parametrize("model", [OLD, NEW, OTHER])
def test_what_was_sent_is_sent_again_as_it_was(model: str) -> None:
    """B44: step by step of a turn, and of the next one, so that the provider's cache holds."""
    fields: dict[str, Any] = {"model": model, "system": "be brief", "tools": (READ,)}
    fields["variant"] = "high"
    history: list[Item] = [USER]
    sent: list[list[str]] = []
    for step in range(6):
        built = build_body(request(*history, **fields), PLACE)
        sent.append(spoken(check_messages_body(built.body)))
        history += [
            thought(f"hm {step}", model, built.prefix),
            reply(f"Step {step}"),
            call(f"c{step}", ordinal=step, images=(PIXEL,)),
            call(f"d{step}", ordinal=step, arguments="{", error_kind="invalid", state="error"),
        ]
        if step == 3:
            history += [reply("Done."), USER, Notice(ItemId("n"), "interrupted", "It was.")]
    for shorter, longer in pairwise(sent):
        assert longer[: len(shorter)] == shorter
    assert sum("sign hm" in piece for piece in sent[-1]) == 5


def test_cache_points_are_where_the_last_request_ended_and_where_this_one_does() -> None:
    """Never more than four, each at the end of something that does not change any more."""
    history: list[Item] = [USER]
    ends: list[set[int]] = []
    for step in range(5):
        sent = body(*history, tools=(READ, ToolSpec("ls", "Lists.", {})), system="be brief")
        assert [("cache_control" in tool) for tool in sent["tools"]] == [False, True]
        assert "cache_control" in sent["system"][-1]
        blocks = [block for message in sent["messages"] for block in message["content"]]
        ends.append({n for n, block in enumerate(blocks) if "cache_control" in block})
        assert len(blocks) - 1 in ends[-1]
        history += [call(f"c{step}{n}", ordinal=step) for n in range(30)]
    assert all(max(before) in after for before, after in pairwise(ends))


def test_a_side_task_pays_for_no_cache() -> None:
    for purpose in ("title", "compaction"):
        sent = json.dumps(body(USER, call(), system="x", tools=(READ,), purpose=purpose))
        assert "cache_control" not in sent


def test_a_call_without_a_result_is_given_one() -> None:
    """G4."""
    built = messages(USER, call(state="running", output="so far"), call("c2", state="pending"))
    assert "no result" in built[2]["content"][0]["content"][0]["text"]
    assert "so far" in built[2]["content"][0]["content"][0]["text"]
    assert "no result" in built[2]["content"][1]["content"][0]["text"]


@each(
    ("arguments", "input_"),
    [
        ("", {}),
        ("{", {}),
        ("[1]", {}),
        ("null", {}),
        ('{"a":NaN}', {}),
        ("[" * 100_000, {}),
        ('{"a":' * 100_000, {}),
        ('{"a":"\\ud83d"}', {"a": "\ufffd"}),
        ('{"a":"\\ud83d\\ude00","n":123456789012345678901234567890}', None),
        (' {"a": [1, {"b": null}]} ', {"a": [1, {"b": None}]}),
    ],
)
def test_arguments_become_an_object_that_every_server_can_read(
    arguments: str, input_: dict[str, Any] | None
) -> None:
    """B6: the error result says what was wrong."""
    bad = call(arguments=arguments, state="error", error_kind="invalid", output="no JSON: …")
    built = messages(USER, bad)
    sent = built[1]["content"][0]["input"]
    assert sent == input_ if input_ is not None else sent["a"] == "😀"
    assert built[2]["content"][0]["is_error"] is True


def test_call_ids_are_kept_where_they_can_be_and_unique_in_any_case() -> None:
    ids = ["toolu_01", "functions.read:0", "", "a b", "toolu_01", "call_1"]
    built = messages(USER, *(call(id_) for id_ in ids))
    sent = [block["id"] for block in built[1]["content"]]
    assert sent == ["toolu_01", "call_1", "call_2", "call_3", "call_4", "call_5"]


def test_discarded_items_are_not_sent() -> None:
    """B33, B47: what a failed stream left is not history."""
    gone = thought("hm", OLD, state="discarded")
    half = reply("half", state="discarded")
    built = messages(USER, gone, half, call(discarded=True), reply("all"), USER)
    assert [m["content"][0]["text"] for m in built] == ["hello", "all", "hello"]


def test_a_compaction_is_a_summary_behind_the_words_that_the_user_keeps() -> None:
    summary = Compaction(ItemId("k"), "They said hello.", ItemId("a"), (USER.id,))
    built = messages(USER, summary, reply("Go on"), USER)
    assert shape(built) == ["user: text text", "assistant: text", "user: text"]
    assert built[0]["content"][1]["text"] == "<summary>\nThey said hello.\n</summary>"


def test_a_document_is_a_block_of_its_own() -> None:
    document = Image(PDF, b"%PDF-", "its text", 1)
    (message,) = messages(UserMessage(ItemId("u"), "look", "start", images=(document,)))
    source = {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="}
    assert message["content"][1] == {"type": "document", "source": source}


def test_images_are_base64_blocks_also_in_results() -> None:
    asked = UserMessage(ItemId("u"), "look", "start", images=(PIXEL,), files=("a.py",))
    shown = call("c1", images=(PIXEL,))
    failed = call("c2", images=(PIXEL,), state="error", error_kind="failed")
    built = messages(asked, shown, failed)
    image = {"type": "base64", "media_type": "image/png", "data": "iVBORw=="}
    assert built[0]["content"][1] == {"type": "image", "source": image}
    for result in built[2]["content"]:
        assert [part["type"] for part in result["content"]] == ["text", "image"]
        assert "is_error" not in result, "the API refuses an error with an image"


@pytest.mark.parametrize(
    "image",
    [
        Image("image/bmp", b"BM"),
        Image("image/png", b""),
        Image("image/png", b"x" * (IMAGE_BASE64_BYTES_MAX // 4 * 3 + 1)),
    ],
)
def test_an_image_that_the_api_refuses_is_named_instead(image: Image) -> None:
    """It stays in history: a refusal would be for ever."""
    built = messages(UserMessage(ItemId("u"), "look", "start", images=(image,)))
    assert shape(built) == ["user: text text"]
    assert image.media_type in built[0]["content"][1]["text"]
    largest = Image("image/png", b"x" * (IMAGE_BASE64_BYTES_MAX // 4 * 3))
    built = messages(UserMessage(ItemId("u"), "look", "start", images=(largest,)))
    assert shape(built) == ["user: text image"]


def test_thinking_goes_back_exactly_and_in_its_place() -> None:
    redacted = {"type": "redacted_thinking", "data": "EqQB"}
    first = {"type": "thinking", "thinking": "hé\n", "signature": "s1"}
    second = {"type": "thinking", "thinking": "", "signature": "s2"}
    opaque = seal_blocks(origin_of(PLACE, OLD), "", [first, redacted, second])
    history = (USER, Reasoning(ItemId("r"), "hé\n", "completed", opaque), reply("So"), call())
    built = messages(*history, model=OLD, variant="high")
    assert built[1]["content"][:3] == [first, redacted, second]
    assert shape(built)[1] == "assistant: thinking redacted_thinking thinking text tool_use"
    assert "hé" not in opaque, "the text of thinking is not kept twice"


@each(
    ("fields", "is_sent"),
    [
        ({"model": OLD, "variant": "high"}, True),
        ({"model": OLD}, False),
        ({"model": OLD, "variant": "none"}, False),
        ({"model": OLD, "options": {"thinking": {"type": "disabled"}}}, False),
        (
            {"model": OLD, "options": {"thinking": {"type": "enabled", "budget_tokens": 2048}}},
            True,
        ),
        ({"model": "claude-opus-4-5", "variant": "high"}, False),
    ],
)
def test_thinking_goes_to_the_same_model_when_it_thinks(
    fields: dict[str, Any], *, is_sent: bool
) -> None:
    """A Claude that does not think refuses it; another provider can't read it."""
    history = (USER, thought("hm", OLD), reply("So"), call("c1"))
    assert ("hm" in str(messages(*history, **fields))) == is_sent
    request_elsewhere = request(*history, model=OLD, variant="high")
    assert b"hm" not in build_body(request_elsewhere, "http://127.0.0.1:1/v1").body
    foreign = (USER, thought("hm", OTHER), reply("So"), call("c1"))
    assert "hm" in str(messages(*foreign, model=OTHER)), "others want it back in any case"


@each(
    ("change", "is_sent"),
    [
        ({}, True),
        ({"variant": "low"}, True),
        ({"system": "be brief."}, False),
        ({"tools": (READ,)}, False),
        ({"tools": ()}, False),
    ],
)
def test_thinking_goes_back_only_behind_what_stood_before_it(
    change: dict[str, Any], *, is_sent: bool
) -> None:
    """Newer models refuse a thought behind anything else; the session must go on."""
    fields: dict[str, Any] = {"model": NEW, "system": "be brief", "tools": (READ, READ)}
    fields["tools"] = (READ, ToolSpec("ls", "Lists.", {}))
    first = thought("first", NEW, prefix_of(USER, **fields))
    one = (USER, first, call("c1", ordinal=0))
    second = thought("second", NEW, prefix_of(*one, **fields))
    two = (*one, second, call("c2", ordinal=1))
    sent = str(messages(*two, **(fields | change)))
    assert ("sign first" in sent, "sign second" in sent) == (is_sent, is_sent)
    pruned = (USER, first, call("c1", ordinal=0, output="[gone]"), second, call("c2", ordinal=1))
    sent = str(messages(*pruned, **fields))
    assert ("sign first" in sent, "sign second" in sent) == (True, False)


def test_thinking_after_a_change_is_bound_to_what_was_sent_then() -> None:
    """What was left out once stays out, so that what came later holds."""
    fields: dict[str, Any] = {"model": NEW, "tools": (READ,)}
    first = thought("first", NEW, prefix_of(USER, **fields))
    second = thought("second", NEW, prefix_of(USER, first, call("c1"), **fields))
    pruned = (USER, first, call("c1", output="[gone]"), second, call("c2", ordinal=1))
    third = thought("third", NEW, prefix_of(*pruned, **fields))
    sent = str(messages(*pruned, third, call("c3", ordinal=2), **fields))
    assert [f"sign {name}" in sent for name in ("first", "second", "third")] == [True, False, True]


def test_thinking_that_led_to_nothing_is_not_sent() -> None:
    """The API wants no message to end with it."""
    fields: dict[str, Any] = {"model": OLD, "variant": "high"}
    assert shape(messages(USER, thought("hm", OLD), USER, **fields)) == ["user: text text"]
    built = messages(USER, reply("So"), thought("hm", OLD), USER, **fields)
    assert shape(built) == ["user: text", "assistant: text", "user: text"]
    built = messages(USER, thought("hm", OLD), reply(" \n"), USER, **fields)
    assert shape(built) == ["user: text text"]


def test_an_old_claude_does_not_begin_to_think_amid_calls() -> None:
    """It refuses that; it thinks again when the row of calls has ended."""
    fields: dict[str, Any] = {"model": OLD, "variant": "high"}
    assert "thinking" not in body(USER, reply("So"), call("c1"), **fields)
    assert "thinking" not in body(USER, call("c1"), call("c2", ordinal=1), USER, **fields)
    assert "thinking" in body(USER, call("c1"), reply("Done"), USER, **fields)
    assert "thinking" in body(USER, thought("hm", OLD), call("c1"), call("c2", ordinal=1), **fields)
    assert "thinking" in body(USER, reply("So"), call("c1"), model=NEW)


def test_what_a_servers_tool_did_goes_back_as_it_was() -> None:
    use = {"type": "server_tool_use", "id": "srv1", "name": "web_search", "input": {"query": "x"}}
    result = {"type": "web_search_tool_result", "tool_use_id": "srv1", "content": [{"a": 1}]}
    cited = {"type": "text", "citations": [{"type": "web_search_result_location", "url": "u"}]}
    origin = origin_of(PLACE, OLD)
    history = (
        USER,
        Reasoning(ItemId("r"), "", "completed", seal_blocks(origin, "", [use, result])),
        reply("It is so."),
        Reasoning(ItemId("q"), "", "completed", seal_blocks(origin, "", [cited])),
        USER,
    )
    built = messages(*history)
    text = {"type": "text", "text": "It is so.", "citations": cited["citations"]}
    assert built[1]["content"] == [use, result, text]
    assert shape(messages(*history, model=OTHER))[1] == "assistant: text"
    alone = Reasoning(ItemId("r"), "", "completed", seal_blocks(origin, "", [use]))
    assert shape(messages(USER, alone, reply("So"), USER))[1] == "assistant: text"


@each(
    ("model", "variant", "thinking", "effort"),
    [
        ("claude-3-7-sonnet-20250219", "high", {"type": "enabled", "budget_tokens": 20_000}, None),
        ("claude-sonnet-4-20250514", "low", {"type": "enabled", "budget_tokens": 4_096}, None),
        (
            "claude-opus-4-5-20251101",
            "minimal",
            {"type": "enabled", "budget_tokens": 1_024},
            None,
        ),
        ("claude-haiku-4-5@20251001", "none", {"type": "disabled"}, None),
        ("claude-haiku-4-5", "", None, None),
        ("claude-haiku-4-5", "my-own", None, None),
        (
            "anthropic.claude-opus-4-6-v1",
            "max",
            {"type": "adaptive", "display": "summarized"},
            "max",
        ),
        ("claude-sonnet-5", "xhigh", {"type": "adaptive", "display": "summarized"}, "xhigh"),
        ("claude-opus-4-8", "minimal", {"type": "adaptive", "display": "summarized"}, "low"),
        ("claude-opus-4-8", "", {"type": "adaptive", "display": "summarized"}, None),
        ("claude-mythos-preview", "", {"type": "adaptive", "display": "summarized"}, None),
        ("deepseek-chat", "", None, None),
        ("kimi-k2", "medium", {"type": "enabled", "budget_tokens": 10_000}, None),
    ],
)
def test_each_model_is_asked_to_think_in_its_own_manner(
    model: str, variant: str, thinking: dict[str, Any] | None, effort: str | None
) -> None:
    sent = body(USER, model=model, variant=variant)
    assert sent.get("thinking") == thinking
    assert sent.get("output_config", {}).get("effort") == effort


@each(("max_output", "budget"), [(32_000, 20_000), (8_000, 7_000), (2_024, 1_024), (2_023, None)])
def test_a_budget_leaves_room_for_the_answer(max_output: int, budget: int | None) -> None:
    sent = body(USER, model=OLD, variant="high", max_output_tokens=max_output)
    assert sent["max_tokens"] == max_output
    assert sent.get("thinking", {}).get("budget_tokens") == budget


@pytest.mark.parametrize(("model", "tokens"), [(OLD, 32_000), (NEW, 64_000), (OTHER, 32_000)])
def test_a_limit_of_output_is_always_set(model: str, tokens: int) -> None:
    assert body(USER, model=model)["max_tokens"] == tokens
    assert body(USER, model=model, max_output_tokens=9)["max_tokens"] == 9


def test_every_option_has_its_place_in_the_body() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    sent = body(USER, system="be brief", tools=(READ,), max_output_tokens=9, output_schema=schema)
    point = {"cache_control": {"type": "ephemeral"}}
    assert sent == {
        "model": OLD,
        "max_tokens": 9,
        "stream": True,
        "system": [{"type": "text", "text": "be brief", **point}],
        "tools": [
            {
                "name": "read",
                "description": "Reads.",
                "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}},
                **point,
            }
        ],
        "messages": [{"role": "user", "content": [{"type": "text", "text": "hello", **point}]}],
        "output_config": {
            "format": {"type": "json_schema", "schema": schema | {"additionalProperties": False}}
        },
    }
    plain = body(USER, variant="my-own")
    assert set(plain) == {"model", "max_tokens", "stream", "messages"}


def test_options_go_into_the_body_but_never_in_place_of_the_conversation() -> None:
    options = {
        "temperature": 0.5,
        "max_tokens": 7_000,
        "thinking": {"type": "enabled", "budget_tokens": 2_000},
        "output_config": {"effort": "low", "task_budget": 1},
        "messages": [],
        "model": "other",
        "stream": False,
        "system": "other",
        "tools": [],
    }
    schema = {"type": "object", "properties": {}, "additionalProperties": False}
    asked = request(USER, options=options, max_output_tokens=9, output_schema=schema)
    sent = json.loads(build_body(asked).body)
    plain = json.loads(build_body(request(USER)).body)
    chosen = {name: options[name] for name in ("temperature", "max_tokens", "thinking")}
    form = {"type": "json_schema", "schema": schema}
    assert sent == plain | chosen | {
        "output_config": {"effort": "low", "task_budget": 1, "format": form}
    }
    sent = json.loads(build_body(request(USER, model=NEW, options=options, variant="high")).body)
    assert sent["thinking"] == {"type": "adaptive", "display": "summarized"}
    assert sent["output_config"]["effort"] == "high"


def test_calls_want_definitions_even_when_nothing_can_be_called() -> None:
    """B8: the last step, a summary. Nothing may be called, and the request must still be valid."""
    sent = body(USER, call("c1", name="read"), call("c2", name="ls.x"), USER, tools=())
    assert [tool["name"] for tool in sent["tools"]] == ["ls_x", "read"]
    assert sent["tool_choice"] == {"type": "none"}
    assert "tool_choice" not in body(USER, call(), tools=(READ,))
    assert "tools" not in body(USER, tools=())


@given(
    history=st.lists(items, max_size=12),
    system=texts,
    model=st.sampled_from([OLD, NEW, OTHER]),
    variant=st.sampled_from(["", "none", "high"]),
    tools=st.sampled_from([(), (READ,)]),
)
def test_any_history_cut_anywhere_makes_a_valid_request(
    history: list[Item], system: str, model: str, variant: str, tools: tuple[ToolSpec, ...]
) -> None:
    """G4."""
    for end in range(len(history) + 1):
        asked = request(*history[:end], system=system, model=model, variant=variant, tools=tools)
        check_messages_body(build_body(asked, PLACE).body)


@given(
    histories=st.lists(st.lists(items, max_size=12), min_size=1, max_size=2),
    cuts=st.lists(
        st.tuples(st.integers(0, 1), st.integers(0, 12), st.sampled_from([OLD, NEW])), max_size=4
    ),
    variant=st.sampled_from(["", "high"]),
)
def test_a_history_that_grows_makes_the_same_requests_as_one_that_is_whole(
    histories: list[list[Item]], cuts: list[tuple[int, int, str]], variant: str
) -> None:
    """What is kept for the next request does no harm when that one is of something else."""
    cache = HistoryCache()
    for which, cut, model in cuts:
        sent = histories[which % len(histories)][:cut]
        fields: dict[str, Any] = {"model": model, "variant": variant}
        grown = build_body(request(*sent, history_cache=cache, **fields), PLACE)
        assert grown == build_body(request(*sent, **fields), PLACE)


@given(history=st.lists(items, max_size=12))
def test_every_call_that_counts_is_sent_once_with_its_output(history: list[Item]) -> None:
    calls = [c for c in history if isinstance(c, ToolCall) and not c.discarded]
    blocks = [block for message in messages(*history) for block in message["content"]]
    results = [block for block in blocks if block["type"] == "tool_result"]
    assert len(results) == len(calls)
    for result, made in zip(results, calls, strict=True):
        assert made.output.strip() in result["content"][0]["text"]


def test_what_is_kept_survives_the_log() -> None:
    item = thought("hm", OLD)
    assert msgspec.json.decode(msgspec.json.encode(item), type=Reasoning) == item
