"""A model that takes no images gets none, and is told so."""

from support.dialect import check_chat_messages
from support.narrow import of_kind
from tiller_daemon.models.base import ModelError, ModelRequest
from tiller_daemon.models.dialects.openai_chat.request import build_messages
from tiller_daemon.models.images import TextOnlyModel
from tiller_daemon.models.scripted import Script, ScriptedModel, ScriptStep, TextPart
from tiller_daemon.turn.image_refusal import HINT, images_hint
from tiller_protocol.ids import CallId, ItemId
from tiller_protocol.items import (
    AssistantMessage,
    Image,
    Item,
    ToolCall,
    UserMessage,
)

LEFT_OUT = "[An image is left out here: you can't be shown any.]"
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
        self._model = ScriptedModel.from_script(Script((ScriptStep(parts=(TextPart("x"),)),)))

    async def stream(self, request):
        self.items = request.items
        async for event in self._model.stream(request):
            yield event


def request(*items) -> ModelRequest:
    return ModelRequest("m", "", items, (), "s", 0)


async def test_images_become_a_sentence_and_everything_else_stays() -> None:
    sent = Sent()
    asked = request(SAID, CALL, WORD, SILENT)
    events = [event async for event in TextOnlyModel(sent).stream(asked)]
    assert len(events) == 2
    said, call, word, silent = sent.items
    assert (
        of_kind(UserMessage, said).text
        == "look\n\n[An image is left out here: you can't be shown any.]"
    )
    assert (
        of_kind(ToolCall, call).output
        == "It is here.\n[An image is left out here: you can't be shown any.]"
    )
    assert word is WORD
    assert (
        of_kind(UserMessage, silent).text == "[2 images are left out here: you can't be shown any.]"
    )
    built = build_messages(request(*sent.items))
    check_chat_messages(built)
    assert "image_url" not in str(built)


def test_the_hint_is_for_refusals_of_requests_with_images() -> None:
    refused = ModelError("bad_request", "No.")
    assert images_hint(refused, [SAID]) == images_hint(refused, [CALL]) == HINT
    assert images_hint(refused, [WORD]) == ""
    assert images_hint(ModelError("quota", "No."), [SAID]) == ""
