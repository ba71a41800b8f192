"""What a client is shown adds up to what happened, also if deltas are lost."""

from hypothesis import given
from hypothesis import strategies as st

from tiller_client.acp.schema import ClientCapabilities, ContentBlock, ImageBlock, ResourceBlock
from tiller_client.acp.updates import AgentChunk, AnyUpdate, ThoughtChunk, UserChunk
from tiller_client.acp.view import SessionView
from tiller_protocol.events import AnyBody, Event, ItemCompleted, ItemDelta, ItemStarted
from tiller_protocol.fold import fold
from tiller_protocol.ids import ItemId
from tiller_protocol.items import PDF, AssistantMessage, Image, Reasoning, UserMessage
from tiller_protocol.snapshot import Snapshot


def shown(bodies: list[AnyBody]) -> tuple[list[AnyUpdate], Snapshot]:
    """The updates for these events, and the session after them."""
    view, snapshot = SessionView(ClientCapabilities()), Snapshot("s", workspace="/w")
    updates: list[AnyUpdate] = []
    for seq, body in enumerate(bodies, 1):
        event = Event(seq, "s", 0.0, body)
        fold(snapshot, event)
        updates += view.updates(event, snapshot, own=False)
    return updates, snapshot


@given(
    pieces=st.lists(st.text(max_size=4), max_size=6),
    received=st.integers(0, 6),
    thinks=st.booleans(),
)
def test_a_message_is_shown_whole_though_deltas_are_lost(
    pieces: list[str], received: int, *, thinks: bool
) -> None:
    whole = "".join(pieces)
    kind = Reasoning if thinks else AssistantMessage
    deltas = [
        ItemDelta("i", "text", piece, "reasoning" if thinks else "assistant_message")
        for piece in pieces[:received]
    ]
    began = ItemStarted(kind(ItemId("i"), "", "streaming"))
    completed = ItemCompleted(kind(ItemId("i"), whole, "completed"))
    updates, snapshot = shown([began, *deltas, completed])
    chunk = ThoughtChunk if thinks else AgentChunk
    assert all(type(update) is chunk for update in updates)
    assert "".join(update.content.text for update in updates) == whole  # type: ignore[union-attr]
    again = SessionView(ClientCapabilities()).history(snapshot)
    assert "".join(update.content.text for update in again) == whole  # type: ignore[union-attr]


def test_images_and_documents_of_the_user_are_shown() -> None:
    images = (Image("image/png", b"png"), Image(PDF, b"pdf"))
    message = UserMessage(ItemId("i"), "look", "steer", images)
    updates, _ = shown([ItemStarted(message), ItemCompleted(message)])
    contents: list[ContentBlock] = [one.content for one in updates if isinstance(one, UserChunk)]
    assert len(contents) == 3
    assert isinstance(contents[1], ImageBlock)
    assert isinstance(contents[2], ResourceBlock)
    assert contents[2].resource.mime_type == PDF
