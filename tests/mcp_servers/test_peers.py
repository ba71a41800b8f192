"""MCP servers that nobody here wrote: that of all features, that of files, that of git."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from mcp_servers.conftest import Room
from support.peers import mcp_everything, mcp_filesystem, mcp_git
from tiller_daemon.config import McpServer

__all__ = ["mcp_everything", "mcp_filesystem", "mcp_git"]

pytestmark = pytest.mark.peer


async def test_everything_is_told_apart_by_what_only_reads(
    room: Room, mcp_everything: McpServer
) -> None:
    await room.start(e=mcp_everything)
    await room.servers.ready()
    tools = room.servers.tools()
    assert tools["mcp__e__echo"].effect == "read"
    assert tools["mcp__e__toggle-simulated-logging"].effect == "write"
    assert (await room.call("mcp__e__echo", message="hi")).output == "Echo: hi"
    assert "sum of 2 and 3 is 5" in (await room.call("mcp__e__get-sum", a=2, b=3)).output


async def test_everything_shows_its_progress(room: Room, mcp_everything: McpServer) -> None:
    await room.start(e=mcp_everything)
    await room.servers.ready()
    done = await room.call("mcp__e__trigger-long-running-operation", duration=0.3, steps=3)
    assert room.live == "[1/3]\n[2/3]\n[3/3]\n"
    assert "completed" in done.output


async def test_an_image_of_everything_is_shown_without_its_broken_colour_profile(
    room: Room, mcp_everything: McpServer
) -> None:
    """The profile has a wrong check sum; a provider that minds would refuse the whole session."""
    await room.start(e=mcp_everything)
    await room.servers.ready()
    shown = await room.call("mcp__e__get-tiny-image")
    (image,) = shown.images
    assert image.media_type == "image/png"
    assert b"iCCP" not in image.data


async def test_structured_content_of_everything_is_shown(
    room: Room, mcp_everything: McpServer
) -> None:
    await room.start(e=mcp_everything)
    await room.servers.ready()
    shown = await room.call("mcp__e__get-structured-content", location="Chicago")
    assert "temperature" in shown.output


async def test_everything_asks_the_user_and_gets_the_words(
    room: Room, mcp_everything: McpServer
) -> None:
    await room.start(e=mcp_everything)
    await room.servers.ready()
    room.say("Ada", "yes", *[""] * 20)
    said = await room.call("mcp__e__trigger-elicitation-request")
    asked = [text for text, _ in room.asked]
    assert "legal name" in asked[0]
    assert "Ada" in said.output


async def test_g13_everything_finds_no_key_in_its_environment(
    room: Room, mcp_everything: McpServer
) -> None:
    await room.start({"PROVIDER_KEY": "sk-canary-4711", "AWS_SECRET": "s"}, e=mcp_everything)
    await room.servers.ready()
    shown = (await room.call("mcp__e__get-env")).output
    assert "PATH" in shown
    assert "canary" not in shown
    assert "AWS_SECRET" not in shown


async def test_files_are_read_and_written_and_a_refusal_is_an_error(
    room: Room, mcp_filesystem: Callable[[Path], McpServer]
) -> None:
    await room.start(f=mcp_filesystem(room.directory))
    await room.servers.ready()
    path = room.directory / "a.txt"
    await room.call("mcp__f__write_file", path=str(path), content="hello\n")
    assert path.read_text() == "hello\n"
    assert (await room.call("mcp__f__read_text_file", path=str(path))).output == "hello\n"
    refused = await room.call("mcp__f__read_text_file", path="/etc/passwd")
    assert refused.failed
    assert "Access denied" in refused.output


async def test_git_says_what_changed(room: Room, mcp_git: McpServer) -> None:
    def git(*words: str) -> None:
        author = ("-c", "user.name=a", "-c", "user.email=a@b")
        subprocess.run(["git", *author, *words], cwd=room.directory, check=True)

    git("init", "-q")
    (room.directory / "a.txt").write_text("hello\n")
    git("add", ".")
    git("commit", "-qm", "greet")
    await room.start(g=mcp_git)
    await room.servers.ready()
    tools = room.servers.tools()
    assert (tools["mcp__g__git_log"].effect, tools["mcp__g__git_add"].effect) == ("read", "write")
    repository = str(room.directory)
    assert "greet" in (await room.call("mcp__g__git_log", repo_path=repository)).output
    (room.directory / "a.txt").write_text("hello there\n")
    changed = (await room.call("mcp__g__git_diff_unstaged", repo_path=repository)).output
    assert "+hello there" in changed
