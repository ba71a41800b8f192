"""Images and files in an input: which get into history, and which are handed back."""

import os

import pytest

from support.narrowing import of_kind
from support.pdfs import locked, pdf
from support.pictures import decode, picture
from support.world import World
from tiller_daemon.models.scripted import CallPart, Script, ScriptStep, TextPart
from tiller_daemon.session.inputs.attachments import FILES_MAX, IMAGES_MAX
from tiller_protocol.answers import (
    Accepted,
    Queued,
    Rejected,
    SessionResult,
    Started,
    Steered,
)
from tiller_protocol.codec import encode_event
from tiller_protocol.events import Event, RequestOpened, TurnStarted, WarningRaised
from tiller_protocol.items import PDF, Image, UserMessage
from tiller_protocol.ops import Answer, Interrupt, SessionConfigure, SessionGet, UserInput
from tiller_protocol.settings import Rule, Settings, TurnOverrides

STEPS = (ScriptStep(parts=(TextPart("done"),)),) * 3


async def make(nursery, tmp_path, *steps: ScriptStep) -> tuple[World, str]:
    world = World({"s": Script(steps or STEPS)})
    world.workspace = str(tmp_path / "w")
    (tmp_path / "w" / "src").mkdir(parents=True)
    (tmp_path / "w" / "src" / "main.py").write_text("print()\n")
    await world.boot(nursery)
    return world, await world.session()


def said(world: World) -> list[UserMessage]:
    return [item for item in world.model.requests[-1].items if isinstance(item, UserMessage)]


def warnings(events: list[Event]) -> list[WarningRaised]:
    return [event.body for event in events if isinstance(event.body, WarningRaised)]


async def test_an_image_is_what_its_bytes_say_and_not_what_it_is_called(
    autojump_clock, nursery, tmp_path
):
    world, session_id = await make(nursery, tmp_path)
    drawn = picture("JPEG")
    await world.say(session_id, "look", images=(Image("image/heic", drawn),))
    await world.ended(session_id)
    (message,) = said(world)
    assert message.images == (Image("image/jpeg", drawn),)
    snapshot = of_kind(SessionResult, await world.must(SessionGet(session_id))).snapshot
    assert snapshot.items[0] == message
    nursery.cancel_scope.cancel()


async def test_a_large_image_is_made_smaller_before_it_gets_into_history(
    autojump_clock, nursery, tmp_path
):
    world, session_id = await make(nursery, tmp_path)
    images = (Image("", picture("PNG", (2600, 1300))), Image("", picture("GIF")))
    await world.say(session_id, "", images=images)
    await world.ended(session_id)
    (message,) = said(world)
    assert [decode(image.data).size for image in message.images] == [(2000, 1000), (120, 80)]
    assert [image.media_type for image in message.images] == ["image/png"] * 2
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("images", "code", "complaint"),
    [
        ((picture(), b"%!PS-3.0"), "bad_message", "Image 2 of 2 can't be used. It is not a PNG,"),
        ((picture()[:-40],), "bad_message", "The image can't be used. It is broken:"),
        ((picture(),) * (IMAGES_MAX + 1), "too_large", "21 images; at most 20 are allowed"),
    ],
)
async def test_images_that_can_not_be_shown_bring_the_input_back(
    autojump_clock, nursery, tmp_path, images, code, complaint
):
    world, session_id = await make(nursery, tmp_path)
    op = UserInput(session_id, "look", tuple(Image("image/png", data) for data in images))
    submission_id = world.new_id()
    refused = of_kind(Rejected, await world.ask(op, submission_id))
    assert (refused.code, complaint in refused.message) == (code, True)
    assert refused.data
    assert refused.data["input"]["text"] == "look"
    assert refused.data["input"]["images"][0]["data"]
    assert await world.ask(op, submission_id) == refused
    assert len(await world.events(session_id)) == 1
    nursery.cancel_scope.cancel()


@pytest.mark.promise("G3")
async def test_an_input_with_an_image_that_was_made_smaller_has_one_effect(
    autojump_clock, nursery, tmp_path
):
    world, session_id = await make(nursery, tmp_path)
    op = UserInput(session_id, "look", (Image("", picture("PNG", (2600, 1300))),))
    submission_id = world.new_id()
    answer = await world.ask(op, submission_id)
    assert isinstance(answer, Accepted)
    assert await world.ask(op, submission_id) == answer
    await world.ended(session_id)
    await world.kill()
    await world.boot(nursery)
    assert await world.ask(op, submission_id) == answer
    started = [e for e in await world.events(session_id) if isinstance(e.body, TurnStarted)]
    assert len(started) == 1
    nursery.cancel_scope.cancel()


async def test_images_and_files_steer_and_wait_like_text(autojump_clock, nursery, tmp_path):
    asks = ScriptStep(parts=(CallPart("guarded"),))
    world, session_id = await make(nursery, tmp_path, asks, *STEPS)
    given = {"images": (Image("", picture()),), "files": ("src/main.py",)}
    assert isinstance(await world.say(session_id, "go"), Started)
    opened = await world.until_body(session_id, RequestOpened)
    assert isinstance(opened.body, RequestOpened)
    assert isinstance(await world.say(session_id, "left", **given), Steered)
    assert isinstance(await world.say(session_id, "then", **given, delivery="queue"), Queued)
    await world.must(Answer(opened.body.request.id, "once"))
    await world.ended(session_id)
    first, steered, queued = said(world)
    assert (first.images, first.files) == ((), ())
    for message in (steered, queued):
        assert message.images == (Image("image/png", picture()),)
        assert message.files == ("src/main.py",)
    nursery.cancel_scope.cancel()


async def test_images_that_waited_for_a_model_that_takes_none_are_left_out_with_a_warning(
    autojump_clock, nursery, tmp_path
):
    asks = ScriptStep(parts=(CallPart("guarded"),))
    world, session_id = await make(nursery, tmp_path, asks, *STEPS)
    world.images = False
    shown = (Image("", picture()),)
    await world.say(session_id, "go")
    opened = of_kind(RequestOpened, (await world.until_body(session_id, RequestOpened)).body)
    refused = await world.refused(UserInput(session_id, "left", shown))
    assert refused.code == "invalid_settings"
    assert isinstance(await world.say(session_id, "then", images=shown, delivery="queue"), Queued)
    await world.must(Answer(opened.request.id, "once"))
    await world.ended(session_id)
    (warning,) = warnings(await world.events(session_id))
    assert warning.code == "images_left_out"
    text = "The model scripted/s takes no images. It got the queued input without an image."
    assert warning.message.startswith(text)
    nursery.cancel_scope.cancel()


async def test_a_document_goes_to_a_model_that_takes_it_and_its_text_to_another(nursery, tmp_path):
    world, session_id = await make(nursery, tmp_path)
    document = Image("anything", pdf("Page one"))
    world.images = False
    await world.say(session_id, "go", images=(document,))
    await world.ended(session_id)
    (given,) = said(world)[-1].images
    assert (given.media_type, given.text, given.pages) == (PDF, "[Page 1]\nPage one\n", 1)
    assert warnings(await world.events(session_id)) == []
    world.documents = False
    await world.say(session_id, "and", images=(document, Image("", pdf(""))))
    await world.ended(session_id, 2)
    (warning,) = warnings(await world.events(session_id))
    assert warning.code == "documents_as_text"
    assert warning.message == (
        "The model scripted/s takes no documents, so it got the text of 2 PDF documents. "
        "1 of 2 had no text, as is usual for scans."
    )
    nursery.cancel_scope.cancel()


async def test_a_document_that_can_not_be_read_brings_the_input_back(nursery, tmp_path):
    world, session_id = await make(nursery, tmp_path)
    refused = await world.refused(UserInput(session_id, "go", (Image("", locked(pdf("x"), "p")),)))
    assert refused.message == "The document can't be used. It needs a password."
    assert refused.data["input"]["text"] == "go"
    nursery.cancel_scope.cancel()


async def test_queued_images_are_checked_against_the_model_of_the_turn_that_begins_with_them(
    autojump_clock, nursery, tmp_path
):
    asks = ScriptStep(parts=(CallPart("guarded"),))
    world, session_id = await make(nursery, tmp_path, asks, *STEPS)
    shown = (Image("", picture()),)
    await world.say(session_id, "go")
    await world.until_body(session_id, RequestOpened)
    await world.say(session_id, "then", images=shown, delivery="queue")
    await world.must(Interrupt(session_id))
    await world.ended(session_id)
    world.images = False
    # New input is queued, as a later turn's model may accept its image.
    answer = await world.say(session_id, "last", images=shown, delivery="queue")
    assert isinstance(answer, Queued)
    await world.ended(session_id, 2)
    codes = [warning.code for warning in warnings(await world.events(session_id))]
    assert codes == ["images_left_out"] * 2
    refused = await world.refused(UserInput(session_id, "now", shown, delivery="queue"))
    assert refused.code == "invalid_settings"
    nursery.cancel_scope.cancel()


async def test_a_file_is_told_as_the_model_would_name_it(autojump_clock, nursery, tmp_path):
    world, session_id = await make(nursery, tmp_path)
    (tmp_path / "w" / "link.py").symlink_to("src/main.py")
    (tmp_path / "notes.txt").write_text("outside")
    place = tmp_path / "w"
    files = ("src/main.py", f"{place}/src/../src/main.py", "link.py", "src", "../notes.txt")
    await world.say(session_id, "look", files=files)
    await world.ended(session_id)
    (message,) = said(world)
    told = ("src/main.py", "src/main.py", "src/main.py", "src", str(tmp_path / "notes.txt"))
    assert message.files == told
    nursery.cancel_scope.cancel()


async def test_a_file_that_is_not_there_brings_its_name_and_one_like_it(
    autojump_clock, nursery, tmp_path
):
    world, session_id = await make(nursery, tmp_path)
    os.mkfifo(tmp_path / "w" / "pipe")
    for path, code, complaint in (
        ("src/mian.py", "not_found", "There is no file src/mian.py. Did you mean `src/main.py`?"),
        ("no/where", "not_found", "There is no file no/where."),
        ("pipe", "bad_message", "pipe is a FIFO, not a regular file"),
        ("src/main.py/x", "bad_message", "a part of its path is a file"),
        ("a\0b", "bad_message", "is not a path"),
        ("", "bad_message", "is not a path"),
    ):
        refused = await world.refused(UserInput(session_id, "look", files=("src", path)))
        assert (refused.code, complaint in refused.message) == (code, True), refused.message
        assert refused.data["input"] == {
            "type": "user_input",
            "session_id": session_id,
            "text": "look",
            "files": ["src", path],
        }
    many = await world.refused(UserInput(session_id, "look", files=("src",) * (FILES_MAX + 1)))
    assert many.code == "too_large"
    assert len(await world.events(session_id)) == 1
    nursery.cancel_scope.cancel()


async def test_a_file_that_the_rules_deny_to_the_model_can_not_be_given(
    autojump_clock, nursery, tmp_path
):
    world, session_id = await make(nursery, tmp_path)
    (tmp_path / "w" / ".env").write_text("KEY=1")
    (tmp_path / "w" / "open.txt").symlink_to(".env")
    (tmp_path / "notes.txt").write_text("outside")
    never = TurnOverrides(approve="never")
    for path, overrides in (("../notes.txt", never), (".env", never), ("open.txt", never)):
        op = UserInput(session_id, "look", files=(path,), overrides=overrides)
        refused = await world.refused(op)
        assert refused.message.endswith(
            "The setting `approve` is `never`, so no one is asked. This counts as a denial."
        )
    await world.must(
        SessionConfigure(session_id, Settings(permissions=(Rule("read", "*.env", "deny"),)))
    )
    for path in (".env", "open.txt"):
        refused = await world.refused(UserInput(session_id, "look", files=(path,)))
        assert refused.code == "bad_message"
        assert refused.message == (
            "The model may not read .env: `read` of `.env` is denied. "
            "The rule is `read` `*.env` deny."
        )
    assert isinstance(await world.say(session_id, "look", files=("src/main.py",)), Started)
    await world.ended(session_id)
    nursery.cancel_scope.cancel()


async def test_a_file_that_the_user_names_is_given_and_one_that_a_link_leads_to_is_judged(
    autojump_clock, nursery, tmp_path
):
    """The model gets the path without the content; the permission to `read` decides about that."""
    world, session_id = await make(nursery, tmp_path)
    (tmp_path / "w" / ".env").write_text("KEY=hidden")
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "key").write_text("hidden")
    (tmp_path / "w" / "notes.txt").symlink_to("../secrets/key")
    rule = Rule("read", f"{tmp_path}/secrets/*", "deny")
    await world.must(SessionConfigure(session_id, Settings(permissions=(rule,))))
    refused = await world.refused(UserInput(session_id, "look", files=("notes.txt",)))
    assert refused.message.startswith(f"The model may not read {tmp_path}/secrets/key: `read` of")
    await world.say(session_id, "look", files=(".env",))
    await world.ended(session_id)
    (message,) = said(world)
    assert message.files == (".env",)
    sent = b"".join(map(encode_event, await world.events(session_id)))
    assert b"hidden" not in sent
    nursery.cancel_scope.cancel()
