"""States of turns: steered, queued, interrupted, failed, delegated, too long."""

from e2e.words import bash
from support.screens.stage import BUSY, READY, Stage, State, says, stays
from tiller_client.chat.rows import PROMPT
from tiller_daemon.models.scripted import CallPart, Failure, ScriptStep, TextPart

AGENT = """\
---
description: looks for causes
model: local/scout
---
You look for causes.
"""

TASK = {
    "prompt": "Find out who calls find() with a name in capitals",
    "agent": "scout",
}


async def steering(stage: Stage) -> None:
    gate = stage.gate()
    chat = await stage.asked(says(bash(gate.command)), prompt="repair the login")
    await gate.reached()
    await chat.sees(BUSY)
    chat.press("names with accents, too\r")
    await chat.sees("steers: names with accents, too")
    chat.press("then update the changelog\t")
    chat.press("and open a pull request\t")
    await chat.sees("queued: then update the changelog", "queued: and open a pull", "3 queued")


async def queue(stage: Stage) -> None:
    gate = stage.gate()
    chat = await stage.asked(says(bash(gate.command)), prompt="repair the login")
    await gate.reached()
    await chat.sees(BUSY)
    chat.press("then update the changelog\t")
    chat.press("and open a pull request\t")
    await chat.sees("queued: and open a pull request", "2 queued")
    chat.press("\x1bq")
    await chat.sees("▸ then update the changelog")
    chat.press("\r")
    await chat.sees("▸ take back", "remove", "send now", "move to the front")


async def interrupted(stage: Stage) -> None:
    step = stays(TextPart("I look at every caller of `find`, beginning with"))
    chat = await stage.asked(step, prompt="repair the login")
    await chat.sees("beginning with", BUSY)
    chat.press("\x1b")
    await chat.sees("■ interrupted", READY)
    assert chat.text.count("interrupted") == 1


async def failed(stage: Stage) -> None:
    failure = Failure("authentication", "The key was refused. Check LOCAL_API_KEY.", 401)
    chat = await stage.asked(ScriptStep(failures=(failure,)), prompt="repair the login")
    await chat.sees("■ failed", "The key was refused. Check LOCAL_API_KEY.", READY)
    assert chat.text.count("The key was refused.") == 1


async def retrying(stage: Stage) -> None:
    failure = Failure("overloaded", "The server is overloaded.", 529, retry_after_s=60)
    chat = await stage.asked(ScriptStep(failures=(failure,)), prompt="repair the login")
    await chat.sees("↻ retry", "trying again in", BUSY)


async def delegating(stage: Stage) -> None:
    _add_agent(stage)
    gate = stage.gate()
    parts = (bash("grep -rn 'find(' ."), bash(gate.command))
    stage.daemon.play("scout", *(says(part) for part in parts), says(TextPart("Two callers.")))
    chat = await stage.asked(
        says(CallPart("task", arguments=TASK)),
        says(TextPart("Both callers pass names as they were typed.")),
        prompt="who calls find?",
    )
    await gate.reached()
    await chat.sees("○ task", "scout · 1 step", "bash cat gate", BUSY)


async def delegated(stage: Stage) -> None:
    _add_agent(stage)
    stage.daemon.play("scout", says(bash("grep -rn 'find(' .")), says(TextPart("Two callers.")))
    chat = await stage.asked(
        says(CallPart("task", arguments=TASK)),
        says(TextPart("Both callers pass names as they were typed.")),
        prompt="who calls find?",
    )
    await chat.sees("● task", "scout · 2 steps", "■ completed", READY)


async def background(stage: Stage) -> None:
    gate = stage.gate()
    chat = await stage.asked(
        says(bash(gate.command, background=True)),
        says(TextPart("The server is being started; meanwhile I read on.")),
        prompt="start the server",
    )
    await gate.reached()
    await chat.sees("■ completed", "1 in the background", READY)


async def own_command(stage: Stage) -> None:
    chat = await stage.chat()
    chat.press("!git status --short --branch\r")
    await chat.sees("bash git status", "## main", "■ completed", READY)


async def compacted(stage: Stage) -> None:
    full = says(TextPart("The index is in lower case."), tokens=120_000)
    summary = ScriptStep(parts=(TextPart("The user wants the login repaired."),))
    chat = await stage.asked(
        full,
        says(TextPart("Repaired.")),
        prompt="why does test_login fail?",
        side_steps={"compaction": summary},
    )
    await chat.sees("■ completed", "94 % context", READY)
    chat.press("repair it\r")
    await chat.sees("history up to here was summarised", "≡ summarised:", "Repaired.", READY)


async def limited(stage: Stage) -> None:
    step = says(bash("echo tried"))
    arguments = ("--approve", "always", "--max-steps", "2")
    chat = await stage.asked(step, step, step, prompt="try until it works", arguments=arguments)
    await chat.sees("■ limit reached", "! The turn's limit of 2 steps is reached.", READY)
    assert chat.text.count("limit of 2 steps") == 1


async def away(stage: Stage) -> None:
    chat = await stage.asked(says(TextPart("It is repaired.")), prompt="repair it")
    await chat.sees("■ completed", READY)
    await stage.daemon.terminate()
    await chat.sees("the daemon is not running")
    chat.press("thank you")
    await chat.sees(f"{PROMPT}thank you")


async def back(stage: Stage) -> None:
    chat = await stage.asked(
        says(TextPart("It is repaired.")), says(TextPart("You are welcome.")), prompt="repair it"
    )
    await chat.sees("■ completed", READY)
    await stage.daemon.terminate()
    await chat.sees("the daemon is not running")
    chat.press("thank you")
    stage.daemon.start()
    await chat.until(lambda: "the daemon is not running" not in chat.screen)
    chat.press("\r")
    await chat.sees("You are welcome.", READY)


def _add_agent(stage: Stage) -> None:
    agents = stage.daemon.places.config / "agents"
    agents.mkdir(exist_ok=True)
    (agents / "scout.md").write_text(AGENT)


STATES = (
    State("steering", "One message steers the turn, and two are queued.", steering, main=True),
    State("queue", "Actions on a queued message (`Alt-Q`).", queue),
    State("interrupted", "Interrupted with `Esc`.", interrupted),
    State("failed", "A turn that failed.", failed),
    State("retrying", "The model's server is overloaded.", retrying),
    State("delegating", "A sub-agent works.", delegating),
    State("delegated", "A sub-agent is done.", delegated),
    State("background", "A command continues in the background.", background),
    State("own_command", "A shell command run with `!`.", own_command),
    State("compacted", "A summary of the history.", compacted),
    State("limited", "The step limit is reached.", limited),
    State("away", "The daemon is stopped.", away, alone=True),
    State("back", "The daemon is back.", back, alone=True),
)
