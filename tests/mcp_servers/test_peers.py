"""Third-party MCP servers: `everything`, `filesystem` and `git`."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from mcp_servers.conftest import McpTestbed
from support.peers import mcp_everything, mcp_filesystem, mcp_git
from tiller_daemon.config import McpServer

__all__ = ["mcp_everything", "mcp_filesystem", "mcp_git"]

pytestmark = pytest.mark.peer


async def test_read_only_tools_of_everything_are_recognized(
    testbed: McpTestbed, mcp_everything: McpServer
) -> None:
    await testbed.start(e=mcp_everything)
    await testbed.servers.ready()
    tools = testbed.servers.tools()
    assert tools["mcp__e__echo"].effect == "read"
    assert tools["mcp__e__toggle-simulated-logging"].effect == "write"
    assert (await testbed.call("mcp__e__echo", message="hi")).output == "Echo: hi"
    assert "sum of 2 and 3 is 5" in (await testbed.call("mcp__e__get-sum", a=2, b=3)).output


async def test_everything_shows_its_progress(
    testbed: McpTestbed, mcp_everything: McpServer
) -> None:
    await testbed.start(e=mcp_everything)
    await testbed.servers.ready()
    done = await testbed.call("mcp__e__trigger-long-running-operation", duration=0.3, steps=3)
    assert testbed.output == "[1/3]\n[2/3]\n[3/3]\n"
    assert "completed" in done.output


async def test_an_image_of_everything_is_shown_without_its_broken_colour_profile(
    testbed: McpTestbed, mcp_everything: McpServer
) -> None:
    """The profile has a wrong check sum; a provider that minds would refuse the whole session."""
    await testbed.start(e=mcp_everything)
    await testbed.servers.ready()
    shown = await testbed.call("mcp__e__get-tiny-image")
    (image,) = shown.images
    assert image.media_type == "image/png"
    assert b"iCCP" not in image.data


async def test_structured_content_of_everything_is_shown(
    testbed: McpTestbed, mcp_everything: McpServer
) -> None:
    await testbed.start(e=mcp_everything)
    await testbed.servers.ready()
    shown = await testbed.call("mcp__e__get-structured-content", location="Chicago")
    assert "temperature" in shown.output


async def test_everything_asks_the_user_and_gets_the_words(
    testbed: McpTestbed, mcp_everything: McpServer
) -> None:
    await testbed.start(e=mcp_everything)
    await testbed.servers.ready()
    testbed.say("Ada", "yes", *[""] * 20)
    expected = await testbed.call("mcp__e__trigger-elicitation-request")
    questions = [text for text, _ in testbed.questions]
    assert "legal name" in questions[0]
    assert "Ada" in expected.output


@pytest.mark.promise("G13")
async def test_everything_finds_no_key_in_its_environment(
    testbed: McpTestbed, mcp_everything: McpServer
) -> None:
    await testbed.start({"PROVIDER_KEY": "sk-canary-4711", "AWS_SECRET": "s"}, e=mcp_everything)
    await testbed.servers.ready()
    shown = (await testbed.call("mcp__e__get-env")).output
    assert "PATH" in shown
    assert "canary" not in shown
    assert "AWS_SECRET" not in shown


async def test_files_are_read_and_written_and_a_refusal_is_an_error(
    testbed: McpTestbed, mcp_filesystem: Callable[[Path], McpServer]
) -> None:
    await testbed.start(f=mcp_filesystem(testbed.directory))
    await testbed.servers.ready()
    path = testbed.directory / "a.txt"
    await testbed.call("mcp__f__write_file", path=str(path), content="hello\n")
    assert path.read_text() == "hello\n"
    assert (await testbed.call("mcp__f__read_text_file", path=str(path))).output == "hello\n"
    refused = await testbed.call("mcp__f__read_text_file", path="/etc/passwd")
    assert refused.failed
    assert "Access denied" in refused.output


async def test_git_says_what_changed(testbed: McpTestbed, mcp_git: McpServer) -> None:
    def git(*words: str) -> None:
        author = ("-c", "user.name=a", "-c", "user.email=a@b")
        subprocess.run(["git", *author, *words], cwd=testbed.directory, check=True)

    git("init", "-q")
    (testbed.directory / "a.txt").write_text("hello\n")
    git("add", ".")
    git("commit", "-qm", "greet")
    await testbed.start(g=mcp_git)
    await testbed.servers.ready()
    tools = testbed.servers.tools()
    assert (tools["mcp__g__git_log"].effect, tools["mcp__g__git_add"].effect) == ("read", "write")
    repository = str(testbed.directory)
    assert "greet" in (await testbed.call("mcp__g__git_log", repo_path=repository)).output
    (testbed.directory / "a.txt").write_text("hello there\n")
    changed = (await testbed.call("mcp__g__git_diff_unstaged", repo_path=repository)).output
    assert "+hello there" in changed


async def test_prompts_and_resources_of_everything_are_read(
    testbed: McpTestbed, mcp_everything: McpServer
) -> None:
    await testbed.start(e=mcp_everything)
    await testbed.servers.ready()
    listed = {one.name: one.description for one in testbed.servers.commands()}
    assert "mcp:e:simple-prompt" in listed
    assert listed["mcp:e:args-prompt"].startswith("<city> [state]")
    said = await testbed.servers.prompt("", "e", "args-prompt", "Berlin state=Brandenburg")
    assert "Berlin, Brandenburg" in said.output
    read = await testbed.servers.resource("", "e", "demo://resource/dynamic/text/1")
    assert read.output.startswith("demo://resource/dynamic/text/1:\n")
