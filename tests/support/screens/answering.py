"""States in which the chat asks a question."""

from e2e.words import bash, read
from support.screens.reading import EDIT
from support.screens.stage import ANSWERABLE, READY, Stage, State, says, stays
from tiller_client.chat.rows import PROMPT
from tiller_daemon.models.scripted import CallPart, TextPart
from tiller_protocol.answers import SessionListResult
from tiller_protocol.ops import Answer, SessionList

ASKING = ("--approve", "ask")

PUSH = "git push origin main && gh release create v1.2 --notes-file NOTES.md"


async def command(stage: Stage) -> None:
    chat = await stage.asked(says(bash(PUSH)), prompt="publish it", arguments=ASKING)
    await chat.sees(PUSH, ANSWERABLE)
    chat.press("y")
    await chat.sees("▸ y  yes, once  (Enter)")


async def edit(stage: Stage) -> None:
    steps = says(read(EDIT["path"])), says(CallPart("edit", arguments=EDIT))
    chat = await stage.asked(*steps, prompt="repair it", arguments=ASKING)
    await chat.sees("+        self.index[name.lower()] = session", ANSWERABLE)


async def several(stage: Stage) -> None:
    parts = (read("/etc/hostname", "a"), read("/etc/hosts", "b"))
    chat = await stage.asked(says(*parts), prompt="which machine is this?", arguments=ASKING)
    await chat.sees("(and 1 more)", ANSWERABLE)


async def question(stage: Stage) -> None:
    arguments = {
        "text": "Which names should be the same?",
        "choices": ["Those that differ in case only", "Only equal ones"],
    }
    call = CallPart("question", arguments=arguments)
    chat = await stage.asked(says(call), prompt="repair it", arguments=ASKING)
    await chat.sees("1  Those that differ in case only", "a number chooses; or type your answer")


async def elsewhere(stage: Stage) -> None:
    chat = await stage.asked(
        says(bash(PUSH)),
        says(TextPart("Then I leave it at that.")),
        prompt="publish it",
        arguments=ASKING,
    )
    await chat.sees(ANSWERABLE)
    other = await stage.elsewhere("Neovim")
    listed = await other.must(SessionList(limit=1))
    assert isinstance(listed, SessionListResult)
    await other.must(Answer(listed.sessions[0].requests[0].id, "reject", "not on a Friday"))
    await chat.sees("✗ rejected by Neovim: not on a Friday", "Then I leave it", READY)
    await other.close()


async def reason(stage: Stage) -> None:
    chat = await stage.asked(says(bash(PUSH)), stays(), prompt="publish it", arguments=ASKING)
    await chat.sees(ANSWERABLE)
    chat.press("r")
    await chat.sees("▸ r  no, with a reason  (Enter)")
    chat.press("\r")
    await chat.sees("type it, then Enter")
    chat.press("first run the tests")
    await chat.sees(f"{PROMPT}first run the tests")


STATES = (
    State("command", "A command waits for approval.", command, main=True),
    State("edit", "A change waits for approval.", edit),
    State("several", "Two requests are open.", several),
    State("question", "The model asks a question.", question),
    State("reason", "Rejecting with a reason.", reason),
    State("elsewhere", "The request was answered in Neovim.", elsewhere),
)
