"""Images and files that a user hands over, by the wire and by the command line."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from e2e.gates import Gate
from e2e.words import always, bash, calls, calls_in, failing, read, text
from support.daemon import CONFIG, Daemon
from support.dialect import check_chat_messages
from support.frontend import Frontend
from support.narrowing import of_kind
from support.pdfs import pdf
from support.pictures import decode, noise, picture
from tiller_daemon.models.dialects.openai_chat.request import build_messages
from tiller_daemon.models.scripted import Failure
from tiller_protocol.answers import SessionListResult
from tiller_protocol.items import (
    Image,
    ToolCall,
    UserMessage,
)
from tiller_protocol.ops import SessionList, UserInput


async def tiller(
    daemon: Daemon, *arguments: str, cwd: Path
) -> "subprocess.CompletedProcess[bytes]":
    """Run a command line against the daemon, in a directory."""
    return await trio.run_process(
        [sys.executable, "-m", "tiller_client", *arguments],
        capture_stdout=True,
        capture_stderr=True,
        check=False,
        cwd=cwd,
        env=daemon.variables,
    )


def messages(frontend: Frontend, session_id: str) -> list[UserMessage]:
    items = frontend.requests(session_id)[-1].items
    return [item for item in items if isinstance(item, UserMessage)]


async def test_an_image_and_a_file_reach_the_model(frontend: Frontend, workspace: Path) -> None:
    """An image with a wrong name for its type, and a file → the model gets both, as they are."""
    session_id = await frontend.session(workspace, text("I see"))
    drawn = picture("JPEG")
    await frontend.say(
        session_id,
        "what is it?",
        images=(Image("image/png", drawn),),
        files=(str(workspace / "greeting.txt"),),
    )
    await frontend.turn_ended(session_id)
    (message,) = messages(frontend, session_id)
    assert message.images == (Image("image/jpeg", drawn),)
    assert message.files == ("greeting.txt",)
    (asked,) = build_messages(frontend.requests(session_id)[0])[1:]
    assert asked["content"][0]["text"] == "what is it?\n\nFiles to look at:\n- greeting.txt"
    assert asked["content"][1]["image_url"]["url"].startswith("data:image/jpeg;base64,")


@pytest.mark.nightly
async def test_an_image_too_large_for_providers_is_made_smaller_and_others_are_served_meanwhile(
    frontend: Frontend, workspace: Path
) -> None:
    """A large image → it is shrunk off the loop, so that other ops are answered at once."""
    session_id = await frontend.session(workspace, text("I see"))
    large = picture("PNG", (6000, 4000))
    answered = 0
    async with trio.open_nursery() as nursery:

        async def ask_others() -> None:
            nonlocal answered
            while True:
                await frontend.must(SessionList())
                answered += 1

        nursery.start_soon(ask_others)
        await frontend.say(session_id, "look", images=(Image("", large),))
        nursery.cancel_scope.cancel()
    await frontend.turn_ended(session_id)
    (image,) = messages(frontend, session_id)[0].images
    assert decode(image.data).size == (2000, 1333)
    assert answered >= 5


async def test_an_image_that_is_none_is_handed_back(frontend: Frontend, workspace: Path) -> None:
    """Bytes that are no image, or half of one → rejected with the input; the log is as it was."""
    session_id = await frontend.session(workspace, always("fine"))
    for data, complaint in (
        (b"GIF is what I am not", "is not a PNG, JPEG, GIF or WebP"),
        (noise("PNG", (50, 50))[:-2000], "is broken"),
    ):
        op = UserInput(session_id, "look", (Image("image/png", data),))
        refused = await frontend.refused(op)
        assert refused.code == "bad_message"
        assert complaint in refused.message
        assert refused.data["input"]["text"] == "look"
    assert len(await frontend.log(session_id)) == 1
    await frontend.say(session_id)
    assert (await frontend.turn_ended(session_id)).last_message == "fine"


async def test_reading_an_image_shows_it_to_the_model(frontend: Frontend, workspace: Path) -> None:
    """`read` of an image → the model gets it, in a request that every provider accepts."""
    (workspace / "small.png").write_bytes(picture())
    (workspace / "large.webp").write_bytes(picture("WEBP", (4000, 1000)))
    (workspace / "cut.png").write_bytes(picture()[:60])
    session_id = await frontend.session(
        workspace,
        calls(read("small.png"), read("large.webp"), read("cut.png"), read("greeting.txt")),
        text("I see"),
    )
    await frontend.say(session_id)
    await frontend.turn_ended(session_id)
    small, large, cut, greeting = calls_in(frontend.requests(session_id)[1].items)
    assert small.images == (Image("image/png", picture()),)
    assert "an image of 120 x 80 pixels. It is attached." in small.output
    assert decode(large.images[0].data).size == (2000, 500)
    assert "It is attached, scaled to 2000 x 500." in large.output
    assert (cut.error_kind, cut.images) == ("failed", ())
    assert "cut.png can't be shown. It is broken" in cut.output
    assert "hello" in greeting.output
    built = build_messages(frontend.requests(session_id)[1])
    check_chat_messages(built)
    assert [part["type"] for part in built[-1]["content"]] == ["text", "image_url", "image_url"]


async def test_a_document_is_sent_as_a_file_or_as_its_text(
    new_daemon: Callable[..., Daemon], workspace: Path, nursery: trio.Nursery
) -> None:
    """A PDF on the command line → the model gets the file, or its text if it accepts no files."""
    daemon = new_daemon(f'{CONFIG}\n[models."scripted/reader"]\ndocuments = false\n')
    daemon.start()
    frontend = await Frontend.connect(daemon, nursery)
    (workspace / "paper.pdf").write_bytes(pdf("Hello from page one"))
    for model, takes_files in (("viewer", True), ("reader", False)):
        daemon.play(model, text("I see"))
        done = await tiller(
            daemon, "exec", "-m", f"scripted/{model}", "look", "--image", "paper.pdf", cwd=workspace
        )
        assert (done.returncode, done.stdout) == (0, b"I see\n"), done.stderr
        assert (b"got the text of a PDF document" in done.stderr) is not takes_files
        sessions = of_kind(SessionListResult, await frontend.must(SessionList())).sessions
        newest = max(session.session_id for session in sessions)
        (message,) = messages(frontend, newest)
        assert (message.text == "look") is takes_files
        assert ("[Page 1]\nHello from page one" in message.text) is not takes_files
        assert bool(message.images) is takes_files
    await frontend.close()


async def test_a_model_that_takes_no_images_is_sent_none(
    new_daemon: Callable[..., Daemon], workspace: Path, nursery: trio.Nursery
) -> None:
    """`images = false` → an input with an image is refused; `read` says so in words."""
    daemon = new_daemon(f'{CONFIG}\n[models."scripted/blind"]\nimages = false\n')
    daemon.start()
    frontend = await Frontend.connect(daemon, nursery)
    (workspace / "shot.png").write_bytes(picture())
    gate = Gate(workspace)
    daemon.play("blind", calls(read("shot.png"), bash(gate.command)), text("a pity"))
    session_id = await frontend.session(workspace, model="scripted/blind")
    op = UserInput(session_id, "look", (Image("image/png", picture()),))
    refused = await frontend.refused(op)
    assert refused.message == (
        "The model scripted/blind takes no images. Remove them, or choose another model."
    )
    assert refused.data["input"]["text"] == "look"
    await frontend.say(session_id, "look at shot.png")
    await gate.reached()
    assert (await frontend.refused(op)).message == refused.message
    gate.open()
    assert (await frontend.turn_ended(session_id)).last_message == "a pity"
    call, _ = calls_in(frontend.requests(session_id)[-1].items)
    assert call.images == ()
    assert call.output.endswith("\n[An image is left out here: you can't view images.]")
    kept = [item for item in (await frontend.snapshot(session_id)).items if item.id == call.id]
    assert of_kind(ToolCall, kept[0]).images == (Image("image/png", picture()),)
    await frontend.close()


async def test_a_refusal_of_a_request_with_an_image_says_what_may_help(
    frontend: Frontend, workspace: Path
) -> None:
    """A provider that refuses a request with an image → the turn's error names the setting."""
    refusal = Failure("bad_request", "Can't read that.")
    session_id = await frontend.session(workspace, failing(refusal), always("fine"))
    await frontend.say(session_id, "look", images=(Image("image/png", picture()),))
    ended = await frontend.turn_ended(session_id)
    assert ended.error is not None
    assert ended.error.message == (
        "Can't read that. The request contained images. If the model does not accept images, set "
        "`images = false` for it in `config.toml`."
    )


async def test_exec_hands_over_images_and_files_named_from_where_it_runs(
    frontend: Frontend, workspace: Path, daemon: Daemon, tmp_path: Path
) -> None:
    """`tiller exec -C DIR --image F --file P` → paths are relative to the current directory."""
    (tmp_path / "shot.png").write_bytes(picture())
    model = daemon.script(text("I see"))
    ran = await tiller(
        daemon, "exec", "-C", str(workspace), "-m", model, "--image", "shot.png",
        "--file", "repository/greeting.txt", "--file", "repository", "look", cwd=tmp_path,
    )  # fmt: skip
    assert (ran.returncode, ran.stdout) == (0, b"I see\n"), ran.stderr
    listed = await frontend.must(SessionList(limit=1))
    assert isinstance(listed, SessionListResult)
    session_id = listed.sessions[0].session_id
    (message,) = messages(frontend, session_id)
    assert message.images == (Image("image/png", picture()),)
    assert message.files == ("greeting.txt", ".")
    shown = await tiller(daemon, "show", session_id, cwd=tmp_path)
    first = "» look [greeting.txt] [.]\n  [image: image/png, "
    assert first in shown.stdout.decode()
    attached = await tiller(daemon, "attach", "--until-idle", session_id, cwd=tmp_path)
    assert first in attached.stdout.decode()


async def test_steer_and_send_hand_over_images_and_files(
    frontend: Frontend, workspace: Path, daemon: Daemon
) -> None:
    """`tiller steer` and `tiller send --queue` with attachments → they come with the text."""
    (workspace / "shot.gif").write_bytes(picture("GIF"))
    gate = Gate(workspace)
    session_id = await frontend.session(workspace, calls(bash(gate.command)), always("done"))
    await frontend.say(session_id)
    await gate.reached()
    given = ("--image", "shot.gif", "--file", "greeting.txt")
    for verb in (("steer",), ("send", "--queue")):
        ran = await tiller(daemon, *verb, *given, session_id, "look", cwd=workspace)
        assert ran.returncode == 0, ran.stderr
    queued = await tiller(daemon, "queue", session_id, cwd=workspace)
    assert queued.stdout.decode().count("look [greeting.txt] [image/png, ") == 2
    gate.open()
    await frontend.turn_ended(session_id)
    _, steered, followed = messages(frontend, session_id)
    for message in (steered, followed):
        assert message.files == ("greeting.txt",)
        assert decode(message.images[0].data).size == (120, 80)


async def test_what_can_not_be_handed_over_is_a_sentence(
    frontend: Frontend, workspace: Path, daemon: Daemon
) -> None:
    """A missing file → status 1 and a similar name; an unreadable image → 2; also with JSON."""
    session_id = await frontend.session(workspace, always("done"))
    send = ("send", session_id, "look")
    ran = await tiller(daemon, *send, "--file", "greetings.txt", cwd=workspace)
    assert ran.returncode == 1
    assert ran.stderr == (b"tiller: There is no file greetings.txt. Did you mean `greeting.txt`?\n")
    ran = await tiller(daemon, *send, "--image", "greeting.txt", cwd=workspace)
    assert ran.returncode == 1
    assert b"The image can't be used. It is not a PNG" in ran.stderr
    ran = await tiller(daemon, *send, "--image", "nowhere.png", cwd=workspace)
    assert (ran.returncode, ran.stderr) == (
        2,
        b"tiller: nowhere.png can't be read: No such file or directory\n",
    )
    ran = await tiller(daemon, *send, "--json", "--file", "nowhere", cwd=workspace)
    assert json.loads(ran.stdout)["code"] == "not_found"
    assert json.loads(ran.stdout)["data"]["input"]["files"] == [str(workspace / "nowhere")]
    assert len(await frontend.log(session_id)) == 1
