"""The commands of the chat take what is written after them, and have the usual names."""

import base64
from collections.abc import Callable
from pathlib import Path

import pytest

from e2e.chat.test_chat import READY, newest
from e2e.test_sandbox import DEFAULT, needs_sandbox
from e2e.words import always, bash, calls, said_in, text, write
from support.chat import ChatTerminal
from support.daemon import Daemon
from support.frontend import Frontend
from tiller_client.chat.commands import INIT, UNCOMMITTED
from tiller_client.chat.rows import PROMPT
from tiller_daemon.models.scripted import ReasoningPart, ScriptStep, TextPart
from tiller_protocol.answers import SessionListResult
from tiller_protocol.ops import SessionList

Opens = Callable[..., ChatTerminal]


async def said(frontend: Frontend) -> list[str]:
    """The user's messages in the newest session."""
    items = (await frontend.snapshot((await newest(frontend)).session_id)).items
    return said_in(tuple(items))


@needs_sandbox
async def test_land_brings_the_commits_of_the_worktree_onto_its_branch(
    opens: Opens, daemon: Daemon, workspace: Path
) -> None:
    daemon.configure(DEFAULT)
    commit = "git add -A && git -c user.name=t -c user.email=t@example.invalid commit -qm One"
    model = daemon.script(calls(write("one.txt", "1\n")), calls(bash(commit)), text("Done."))
    chat = opens("--worktree", "try", "-m", model, "--approve", "always")
    await chat.shows(READY)
    chat.press("go\r")
    await chat.shows("■ completed")
    chat.press("/land\r")
    await chat.sees("landed: master is at ")
    assert (workspace / "one.txt").read_text() == "1\n"


@pytest.mark.nightly
async def test_what_follows_a_command_counts_or_is_refused(
    opens: Opens, daemon: Daemon, frontend: Frontend
) -> None:
    writes = calls(write("one.py", "x = 1\n"), write("two.py", "y = 2\n"))
    model = daemon.script(
        writes, text("Long. " * 9_000), always("Read."), compaction=text("Short.")
    )
    chat = opens("-m", model, "--approve", "always", TILLER_PAGER="cat")
    await chat.shows(READY)
    chat.press("go\r")
    await chat.until(lambda: "■ completed" in chat.text)
    chat.press("/diff one.py\r")
    await chat.shows("A one.py  +1 -0\nnew file mode 100644\n1 + x = 1", READY)
    assert "y = 2" not in chat.text.rpartition("A one.py")[2]
    chat.press("/help me\r")
    await chat.sees("/help takes nothing after it")
    chat.press("/help\r")
    await chat.sees("keys and commands:", "▸ Enter ")
    chat.press("keep")
    await chat.sees("▸ /compact [TEXT]  summarise the history now; TEXT says what to keep")
    chat.press("\r")
    await chat.until(lambda: chat.rows[chat.cursor[0]] == f"{PROMPT}/compact")
    chat.press("\x15")
    chat.press("/compact keep the API decisions\r")
    await chat.shows("history up to here was summarised")
    session_id = (await newest(frontend)).session_id
    (asked,) = [one for one in daemon.asked(session_id) if one.purpose == "compaction"]
    assert "keep the API decisions" in getattr(asked.items[-1], "text", "")
    chat.press("/clear begin anew\r")
    await chat.until(lambda: "» begin anew" in chat.text and READY in chat.rows[chat.cursor[0]])
    assert await said(frontend) == ["begin anew"]


async def test_usual_names_of_commands_work(
    opens: Opens, daemon: Daemon, frontend: Frontend
) -> None:
    model = daemon.script(always("The *answer*."))
    chat = opens("-m", model)
    await chat.shows(READY)
    chat.press("go\r")
    await chat.until(lambda: "■ completed" in chat.text)
    for name in ("/cost", "/usage", "/context", "/status"):
        chat.press(f"{name}\r")
        await chat.until(lambda: "1 turn · 1 step" in chat.screen)
        chat.press("\x0c")
    copied = base64.b64encode(b"The *answer*.").decode()
    chat.press("/copy\r")
    await chat.until(lambda: f"\x1b]52;c;{copied}\x07" in chat.written)
    chat.press("/permissions\r")
    await chat.shows("there are no rules")
    await chat.until(lambda: READY in chat.rows[chat.cursor[0]])
    for name in ("/undo", "/revert", "/rewind"):
        chat.press(f"{name}\r")
        await chat.sees("go back to the point before")
        chat.press("\x1b")
        await chat.until(lambda: "go back to" not in chat.screen)
    for name, words in (
        ("/init", INIT),
        ("/review the tests", "Review the tests."),
        ("/review", UNCOMMITTED),
    ):
        turns = chat.text.count("■ completed")
        chat.press(f"{name}\r")
        await chat.until(lambda turns=turns: chat.text.count("■ completed") > turns)
        assert words in (await said(frontend))[-1]
    chat.press("exit\r")
    assert await chat.end() == 0


async def test_what_runs_in_the_background_can_be_listed_and_ended(
    opens: Opens, daemon: Daemon
) -> None:
    command = "sleep 1000"
    model = daemon.script(calls(bash(command, background=True)), always("Started."))
    chat = opens("-m", model, "--approve", "always")
    await chat.shows(READY)
    chat.press("/ps\r")
    await chat.sees("nothing runs in the background")
    chat.press("go\r")
    await chat.shows("Started.", "1 in the background", READY)
    chat.press("/ps\r")
    await chat.sees("in the background:", f"▸ b1 {command}")
    chat.press("\r")
    await chat.sees(f"b1 {command}:", "▸ end it")
    chat.press("\x1b")
    await chat.sees("in the background:", f"▸ b1 {command}")
    chat.press("\routput\r")
    await chat.sees("its output is not in a file yet")
    chat.press("/ps\r")
    await chat.sees("in the background:", f"▸ b1 {command}")
    chat.press("\r")
    await chat.sees("▸ end it")
    chat.press("\r")
    await chat.shows(f"b1 was ended: {command}")
    await chat.until(lambda: "1 in the background" not in chat.screen)


async def test_the_output_of_a_background_command_can_be_read(opens: Opens, daemon: Daemon) -> None:
    model = daemon.script(calls(bash("printf 'a%sc' b", background=True)), always("Started."))
    chat = opens("-m", model, "--approve", "always", PAGER="cat")
    await chat.shows(READY)
    chat.press("go\r")
    await chat.shows("b1 exited", "Started.", READY)
    chat.press("/ps\r")
    await chat.sees("▸ b1 printf 'a%sc' b  exited")
    chat.press("\r")
    await chat.sees("▸ see its output")
    chat.press("\r")
    await chat.until(lambda: "abc" in chat.written)


async def test_an_image_that_is_missing_is_named(opens: Opens, daemon: Daemon) -> None:
    chat = opens("-m", daemon.script(always("Read.")))
    await chat.shows(READY)
    chat.press("see @missing.png\r")
    await chat.sees("sent without missing.png, which does not exist")


async def test_a_command_that_was_just_written_is_completed(opens: Opens, daemon: Daemon) -> None:
    chat = opens("-m", daemon.script(always("Read.")))
    await chat.shows(READY)
    chat.press("go\r")
    await chat.shows("Read.", READY)
    commands = daemon.places.config / "commands"
    commands.mkdir(exist_ok=True)
    (commands / "polish.md").write_text("Polish it.\n")
    chat.press("/")
    await chat.sees("/help", " more")
    chat.press("pol")
    await chat.until(lambda: any("/polish" in row for row in chat.rows))


async def test_the_users_own_command_goes_before_one_of_the_same_name(
    opens: Opens, daemon: Daemon, frontend: Frontend
) -> None:
    commands = daemon.places.config / "commands"
    commands.mkdir(exist_ok=True)
    (commands / "review.md").write_text("My own review.\n")
    chat = opens("-m", daemon.script(always("Read.")))
    await chat.shows(READY)
    chat.press("/review\r")
    await chat.shows("» My own review.", "Read.")


@pytest.mark.parametrize("word", ["exit", "quit", "/exit", "/quit"])
async def test_a_word_leaves_and_a_new_session_in_which_nothing_was_said_is_gone(
    opens: Opens, daemon: Daemon, frontend: Frontend, workspace: Path, word: str
) -> None:
    chat = opens("-m", daemon.script(always("Read.")))
    await chat.shows(READY)
    chat.press(f"{word}\r")
    assert await chat.end() == 0
    assert "to return" not in chat.text
    assert (await frontend.must(SessionList(str(workspace)))) == SessionListResult(())


async def test_a_session_that_was_there_before_stays_without_a_word(
    opens: Opens, frontend: Frontend, workspace: Path
) -> None:
    session = await frontend.session(workspace, always("Read."))
    chat = opens(session)
    await chat.shows(READY)
    chat.press("\x04")
    assert await chat.end() == 0
    assert "to return: tiller chat" in chat.text
    assert (await frontend.snapshot(session)).turns == 0


async def test_ctrl_o_shows_what_is_folded_on_the_screen_whole(
    opens: Opens, daemon: Daemon, workspace: Path
) -> None:
    thinks = ScriptStep(
        parts=(ReasoningPart("The lookup differs in case."), TextPart("It differs."))
    )
    chat = opens("-m", daemon.script(thinks))
    await chat.shows(READY)
    chat.press("go\r")
    await chat.shows("It differs.", READY)
    assert "The lookup differs" not in chat.text
    chat.press("\x0f")
    await chat.shows("The lookup differs in case.", "shown whole")
    chat.press("\x0f")
    await chat.sees("folded from now on")
    assert chat.text.count("The lookup differs in case.") == 1


async def test_whoever_leaves_a_worktree_is_told_how_to_land_its_commits(
    opens: Opens, daemon: Daemon
) -> None:
    chat = opens("-m", daemon.script(always("Done.")), "--worktree", "fix", "go on")
    await chat.shows("Done.", READY)
    chat.press("\x04")
    assert await chat.end() == 0
    assert "to land its commits: tiller worktree land fix" in chat.text
