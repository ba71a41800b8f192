"""Answers of servers as results: text, images, notes, failures, and long output."""

import base64
from pathlib import Path
from typing import Any

import mcp_types as types
import msgspec
import pytest
from msgspec.structs import replace

from mcp_servers.conftest import McpTestbed
from support.pictures import SIZE, decode, noise, picture
from tiller_daemon.mcp.results import IMAGES_BYTES_MAX, IMAGES_MAX, make_result
from tiller_daemon.tools.truncation import BYTES_MAX
from tiller_daemon.turn.response_limits import RESPONSE_TEXT_BYTES_MAX
from tiller_protocol.codec import MESSAGE_BYTES_MAX
from tiller_protocol.ids import CallId, ItemId
from tiller_protocol.items import ToolCall


def text(words: str) -> types.TextContent:
    return types.TextContent(text=words)


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def image(data: bytes) -> types.ImageContent:
    return types.ImageContent(data=encoded(data), mime_type="image/png")


def resource(**fields: Any) -> types.EmbeddedResource:
    made = types.TextResourceContents if "text" in fields else types.BlobResourceContents
    return types.EmbeddedResource(resource=made(uri="file:///a", **fields))


@pytest.fixture
def result_of(testbed: McpTestbed):
    async def made(*content: types.ContentBlock, **fields: Any):
        answer = types.CallToolResult(content=list(content), **fields)
        return await make_result(answer, testbed.environment())

    return made


async def test_texts_are_joined(result_of):
    result = await result_of(text("one"), text(""), text("two"))
    assert (result.output, result.failed, result.images) == ("one\ntwo", False, ())


async def test_an_error_result_fails_the_call(result_of):
    assert (await result_of(text("no such file"), is_error=True)).failed


async def test_images_are_checked_and_shown(result_of):
    result = await result_of(text("look:"), image(picture()))
    assert result.output == "look:"
    assert decode(result.images[0].data).size == SIZE
    assert (await result_of(image(picture()))).output == "(An image.)"


async def test_a_large_image_is_made_smaller(result_of):
    (shown,) = (await result_of(image(picture(size=(4000, 2000))))).images
    assert decode(shown.data).size == (2000, 1000)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ("%%%", "It is not valid base64."),
        (encoded(b"GIF89a"), "It is broken"),
        ("", "It is not a PNG"),
    ],
)
async def test_an_invalid_image_is_reported(result_of, data: str, why: str):
    result = await result_of(types.ImageContent(data=data, mime_type="image/png"))
    assert result.output.startswith(f"[An image can't be shown. {why}")
    assert result.images == ()


async def test_images_over_the_limit_are_left_out(result_of):
    result = await result_of(*[image(picture(size=(2, 2)))] * (IMAGES_MAX + 1))
    assert len(result.images) == IMAGES_MAX
    assert "One more image is not shown" in result.output


async def test_resources_become_text_or_images_or_notes(result_of):
    result = await result_of(
        resource(text="inside"),
        resource(blob=encoded(picture()), mime_type="image/png"),
        resource(blob=encoded(b"abc"), mime_type="x/y"),
        types.ResourceLink(uri="file:///l", name="l", mime_type="text/plain", description="more"),
        types.AudioContent(data="", mime_type="audio/wav"),
    )
    assert result.output.splitlines() == [
        "file:///a:",
        "inside",
        "file:///a: an image",
        "[file:///a: 3 bytes of type x/y that can't be shown]",
        "file:///l (l, text/plain, more)",
        "[audio (audio/wav) that can't be shown]",
    ]
    assert len(result.images) == 1


async def test_data_is_shown_when_there_is_no_text(result_of):
    assert '"answer": 42' in (await result_of(structured_content={"answer": 42})).output
    assert '"a": 1' in (await result_of(text("so"), structured_content={"a": 1})).output
    assert (await result_of()).output == "(No output.)"


@pytest.mark.parametrize(
    ("texts", "data"),
    [
        (['{"a": [1, 2]}'], {"a": [1, 2]}),
        (['{\n  "a": 1\n}', "Done."], {"a": 1}),
        (["5"], {"result": 5}),
        (["hello"], {"result": "hello"}),
        (["hello"], {"content": "hello"}),
        (["one", "two"], {"result": ["one", "two"]}),
        (['{"id": 1}', '{"id": 2}'], {"result": [{"id": 1}, {"id": 2}]}),
        (["a", "b"], {"result": "a\nb"}),
    ],
)
async def test_data_that_the_text_repeats_is_shown_once(result_of, texts, data):
    result = await result_of(*map(text, texts), structured_content=data)
    assert result.output == "\n".join(texts)


@pytest.mark.parametrize("data", [{"evidence": "E-77"}, {"result": 7}, {"result": "so", "more": 1}])
async def test_data_that_the_text_does_not_repeat_is_shown_too(result_of, data):
    output = (await result_of(text("so"), structured_content=data)).output
    assert output.startswith("so\n{")
    assert msgspec.json.decode(output.removeprefix("so\n")) == data


@pytest.mark.parametrize(
    ("content", "shown"),
    [
        (
            [{"type": "hologram", "data": "x"}],
            "[content of the type 'hologram' that can't be shown]",
        ),
        ([{"type": "text"}], "[content of the type 'text' that can't be shown]"),
        (["plain"], "[content of the type 'None' that can't be shown]"),
        ([{"type": "text", "text": "more", "annotations": "none", "_meta": 3}], "more"),
    ],
)
async def test_a_block_that_can_not_be_read_costs_no_other_block(
    testbed: McpTestbed, content: list[Any], shown: str
):
    await testbed.start_tiny()
    given = {"content": [{"type": "text", "text": "first"}, *content], "structuredContent": [1]}
    line = msgspec.json.encode({"jsonrpc": "2.0", "id": 0, "result": given}).decode()
    result = await testbed.call("raw", text=line.replace('"id":0', '"id": ID'))
    assert result.output.startswith(f"first\n{shown}\n")
    assert msgspec.json.decode(result.output.partition(shown)[2]) == {"result": [1]}


@pytest.mark.promise("G13")
async def test_what_is_too_long_is_cut_and_kept_whole_without_secrets(testbed: McpTestbed):
    words = "\n".join(f"line {number} secret-123" for number in range(20_000))
    environment = replace(testbed.environment(), secrets=("secret-123",))
    result = await make_result(types.CallToolResult(content=[text(words)]), environment)
    assert len(result.output.encode()) <= BYTES_MAX
    assert result.output.startswith("line 0 ")
    assert "line 19999" in result.output
    assert result.spill_path in result.output
    assert Path(result.spill_path).parent == testbed.directory / "spills"
    assert _kept(result.spill_path) == words.replace("secret-123", "[secret]")


def _kept(path: str) -> str:
    return Path(path).read_text()


@pytest.mark.parametrize(
    "made", [image, lambda data: resource(blob=encoded(data), mime_type="image/png")]
)
@pytest.mark.parametrize("count", [1, 3, IMAGES_MAX, IMAGES_MAX + 5])
async def test_the_images_of_a_result_fit_into_a_message(result_of, made, count: int):
    result = await result_of(*[made(noise("PNG", (1050, 1050)))] * count)
    data = sum(len(one.data) for one in result.images)
    assert len(result.images) == min(count, 2)
    assert data <= IMAGES_BYTES_MAX
    assert result.output.count("[One more image is not shown") == max(0, count - 2)
    call = ToolCall(ItemId("i"), CallId("c"), "t", "", "completed", images=result.images)
    assert len(msgspec.json.encode(call)) + RESPONSE_TEXT_BYTES_MAX < MESSAGE_BYTES_MAX
