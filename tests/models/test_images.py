"""A model that takes no images gets none, and is told so."""

import pytest

from support.dialect import check_chat_messages
from support.each import each
from support.narrowing import of_kind
from support.scripts import ModelInMemory
from tiller_daemon.models.base import ModelError, ModelErrorKind, ModelRequest
from tiller_daemon.models.dialects.openai_chat.request import build_messages
from tiller_daemon.models.images import AcceptedInput, LimitedModel
from tiller_daemon.models.scripted import Script, ScriptStep, TextPart
from tiller_daemon.turn.image_refusal import HINT, images_hint
from tiller_protocol.ids import CallId, ItemId
from tiller_protocol.items import (
    PDF,
    AssistantMessage,
    Image,
    Item,
    ToolCall,
    UserMessage,
)

LEFT_OUT = "[An image is left out here: you can't view images.]"
PIXEL = Image("image/png", b"\x89PNG")
SAID = UserMessage(ItemId("u"), "look", "start", images=(PIXEL,))
SILENT = UserMessage(ItemId("v"), "", "start", images=(PIXEL, PIXEL))
CALL = ToolCall(
    ItemId("c"), CallId("c"), "read", "{}", "completed", output="It is here.", images=(PIXEL,)
)
WORD = AssistantMessage(ItemId("a"), "hm", "completed")


class Sent:
    """Keeps what a model is sent."""

    def __init__(self) -> None:
        self.items: tuple[Item, ...] = ()
        self._model = ModelInMemory(lambda _: Script((ScriptStep(parts=(TextPart("x"),)),)))

    async def stream(self, request):
        self.items = request.items
        async for event in self._model.stream(request):
            yield event


def request(*items) -> ModelRequest:
    return ModelRequest("m", "", items, (), "s", 0)


async def test_images_become_a_sentence_and_everything_else_stays() -> None:
    sent = Sent()
    asked = request(SAID, CALL, WORD, SILENT)
    model = LimitedModel(sent, AcceptedInput(images=False, documents=False))
    events = [event async for event in model.stream(asked)]
    assert len(events) == 2
    said, call, word, silent = sent.items
    assert (
        of_kind(UserMessage, said).text
        == "look\n\n[An image is left out here: you can't view images.]"
    )
    assert (
        of_kind(ToolCall, call).output
        == "It is here.\n[An image is left out here: you can't view images.]"
    )
    assert word is WORD
    assert (
        of_kind(UserMessage, silent).text == "[2 images are left out here: you can't view images.]"
    )
    built = build_messages(request(*sent.items))
    check_chat_messages(built)
    assert "image_url" not in str(built)


async def test_a_document_becomes_its_text_for_a_model_that_takes_none() -> None:
    sent = Sent()
    document = Image(PDF, b"%PDF-", "[Page 1]\nHello\n", 1)
    scan = Image(PDF, b"%PDF-", "", 3)
    asked = request(UserMessage(ItemId("u"), "look", "start", images=(document, PIXEL, scan)))
    model = LimitedModel(sent, AcceptedInput(documents=False))
    assert len([event async for event in model.stream(asked)]) == 2
    (said,) = sent.items
    assert of_kind(UserMessage, said).images == (PIXEL,)
    assert of_kind(UserMessage, said).text == (
        "look\n\n"
        "[A PDF document of 1 page. You get only its text:]\n\n[Page 1]\nHello\n\n\n"
        "[A PDF document of 3 pages is left out here: it has no text and may be a scan.]"
    )


class Refusing(Sent):
    """Refuses images with a server's own words."""

    def __init__(self, error: ModelError) -> None:
        super().__init__()
        self.requests = 0
        self._error = error

    async def stream(self, request):
        self.requests += 1
        if any(image for item in request.items for image in getattr(item, "images", ())):
            raise self._error
        async for event in super().stream(request):
            yield event


@each(
    ("kind", "words"),
    [
        ("server", "image input is not supported - hint: you may need to provide the mmproj"),
        ("not_found", "No endpoints found that support image input"),
        ("bad_request", "qwen3 is not a multimodal model"),
        ("bad_request", "unknown variant `image_url`, expected `text`"),
        ("bad_request", "This model does not support images."),
        ("bad_request", "messages[3].content must be a string"),
    ],
)
async def test_a_request_is_made_once_more_without_images_that_the_server_refuses(
    kind: ModelErrorKind, words: str
) -> None:
    server = Refusing(ModelError(kind, f"Provider local failed. It said: {words}", status=500))
    model = LimitedModel(server, AcceptedInput())
    assert len([event async for event in model.stream(request(SAID, CALL))]) == 2
    assert server.requests == 2
    said, call = server.items
    assert of_kind(UserMessage, said).text.endswith(LEFT_OUT)
    assert of_kind(ToolCall, call).output.endswith(LEFT_OUT)


async def test_another_error_is_no_reason_to_leave_images_out() -> None:
    server = Refusing(ModelError("server", "boom"))
    with pytest.raises(ModelError, match="boom"):
        [event async for event in LimitedModel(server, AcceptedInput()).stream(request(SAID))]
    assert server.requests == 1


def test_the_hint_is_for_refusals_of_requests_with_images() -> None:
    refused = ModelError("bad_request", "No.")
    assert (
        images_hint(refused, [SAID]) == images_hint(refused, [CALL]) == HINT.format(kind="images")
    )
    document = Image(PDF, b"%PDF-", "", 1)
    given = UserMessage(ItemId("u"), "look", "start", images=(document,))
    assert images_hint(refused, [given]) == HINT.format(kind="documents")
    assert images_hint(refused, [WORD]) == ""
    assert images_hint(ModelError("quota", "No."), [SAID]) == ""
