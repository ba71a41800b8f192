"""States in which a person reads: answers, thoughts, calls, changes, plans, images."""

from e2e.words import bash, read
from support.pictures import picture
from support.screens.stage import BUSY, READY, Stage, State, says, stays
from tiller_daemon.models.scripted import CallPart, ReasoningPart, TextPart

ANSWER = """\
## What goes wrong

The session keeps the name *as it was typed*, but the **index** is in lower case:

- `login` stores `Ann`
- `find` looks for `ann`

| Function | Stores | Looks for |
|---|---|---|
| `login` | Ann, 山田 | Ann, 山田 |
| `find` | nothing | ann, 山田 |

```python
def find(name: str) -> Session:
    \"\"\"The session of that user.\"\"\"
    return index[name.lower()]  # no such user: KeyError
```

See [how names compare](https://example.org/names). I would lower both, with"""

THOUGHT = """\
**Comparing the two lookups**

The test logs in as Ann and looks for Ann. `login` does not lower the name, `find` does.
So the entry can't be found."""

EDIT = {
    "path": "accounts/session.py",
    "old": """\
        self.index[name] = Session(name)
        return self.index[name]""",
    "new": """\
        session = Session(name)
        self.index[name.lower()] = session
        return session""",
}


async def empty(stage: Stage) -> None:
    chat = await stage.chat()
    await chat.sees("tiller · new session", "/help for keys · Enter sends · Ctrl-D leaves")


async def streaming(stage: Stage) -> None:
    chat = await stage.asked(stays(TextPart(ANSWER, pieces=40)), prompt="why does test_login fail?")
    await chat.sees("I would lower both, with", BUSY, "working")


async def thinking(stage: Stage) -> None:
    chat = await stage.asked(stays(ReasoningPart(THOUGHT)), prompt="why does test_login fail?")
    await chat.sees("Thinking for", BUSY)


async def thought(stage: Stage) -> None:
    answer = says(ReasoningPart(THOUGHT), TextPart("`login` does not lower the name."))
    chat = await stage.asked(answer, answer, prompt="why does test_login fail?")
    await chat.sees("Thought for", "■ completed", READY)
    chat.press("\x0f")
    await chat.sees("outputs are shown whole")
    chat.press("think again\r")
    await chat.until(lambda: chat.text.count("■ completed") == 2)
    await chat.sees("So the entry can't be found.", READY)


async def running(stage: Stage) -> None:
    gate = stage.gate()
    command = f"seq -f 'tests/test_%g.py ........' 8; {gate.command}"
    chat = await stage.asked(says(bash(command)), prompt="run the tests")
    await gate.reached()
    await chat.sees("○ bash", "running", "tests/test_8.py ........", BUSY)


async def beside(stage: Stage) -> None:
    parts = (
        bash("sleep 2; echo 'accounts ok'", "a"),
        bash("sleep 1; echo 'no problems'", "b"),
        read("accounts/session.py", "c"),
    )
    chat = await stage.asked(
        says(*parts), says(TextPart("All three say the same.")), prompt="check everything"
    )
    await chat.sees("All three say the same.", READY)


async def finished(stage: Stage) -> None:
    answer = says(bash("sh tests/run")), says(TextPart("One test fails: `find` lowers the name."))
    chat = await stage.asked(*answer, *answer, prompt="run the tests")
    await chat.sees("● bash", "exit 1", "1 failed in 0.12s", "■ completed", READY)
    chat.press("\x0f")
    await chat.sees("outputs are shown whole")
    chat.press("again\r")
    await chat.until(lambda: chat.text.count("■ completed") == 2)
    await chat.sees("def test_login", READY)


async def diff(stage: Stage) -> None:
    chat = await stage.asked(
        says(read(EDIT["path"])),
        says(CallPart("edit", arguments=EDIT)),
        says(TextPart("Both sides use the lower-case name now.")),
        prompt="repair it",
    )
    await chat.sees("● edit", "index[name.lower()] = session", "1 file changed", READY)


async def plan(stage: Stage) -> None:
    entries = [
        {"text": "Find what fails", "state": "completed"},
        {"text": "Repair the lookup of names", "state": "in_progress"},
        {"text": "Add a test with names in capitals", "state": "pending"},
    ]
    chat = await stage.asked(
        says(TextPart("I begin."), CallPart("plan", arguments={"items": entries})),
        stays(TextPart("Now the lookup.")),
        prompt="repair it, step by step",
    )
    await chat.sees("☑ Find what fails", "◐ Repair the lookup", "☐ Add a test", "Now the lookup.")


async def image(stage: Stage) -> None:
    (stage.workspace / "login.png").write_bytes(picture(size=(640, 400)))
    chat = await stage.chat(says(TextPart("The button is outside of the window.")))
    chat.press("what is wrong in @login.png ?\r")
    await chat.sees("[image: image/png, 640x400", "■ completed", READY)


STATES = (
    State("empty", "A new session.", empty, main=True),
    State("streaming", "An answer while it streams.", streaming, main=True),
    State("thinking", "The model thinks.", thinking),
    State("thought", "A thought, folded and opened (`Ctrl-O`).", thought),
    State("running", "A running command with its output so far.", running),
    State("beside", "Calls that ran in parallel.", beside),
    State("finished", "A failed call, folded and opened (`Ctrl-O`).", finished),
    State("diff", "A change to a file.", diff, main=True),
    State("plan", "A plan.", plan),
    State("image", "An image that the terminal can't draw.", image),
)
