"""States in which a person writes or chooses: menus, completions, a paste, help."""

from support.screens.stage import READY, Stage, State, says
from tiller_client.chat.rows import PROMPT
from tiller_daemon.models.scripted import TextPart

ANSWER = says(TextPart("Done."))


async def slash(stage: Stage) -> None:
    chat = await stage.chat()
    chat.press("/")
    await chat.sees("/help      the keys and commands", "/sessions")


async def files(stage: Stage) -> None:
    chat = await stage.chat()
    chat.press("what is in @acc")
    await chat.sees("accounts/session.py", "accounts/users.py")


async def models(stage: Stage) -> None:
    chat = await stage.chat()
    chat.press("\x1bm")
    await chat.sees("model:", "local/gpt-oss-120b", "local/devstral-small")


async def variants(stage: Stage) -> None:
    chat = await stage.chat()
    chat.press("\x1bv")
    await chat.sees("variant:", "deep", "quick")


async def agents(stage: Stage) -> None:
    chat = await stage.chat()
    chat.press("/agent\r")
    await chat.sees("agent:", "build", "plan")


async def _among_sessions(stage: Stage, command: str, *shown: str) -> None:
    for prompt in ("repair the login", "update the changelog", "why is the build slow?"):
        chat = await stage.asked(ANSWER, prompt=prompt)
        await chat.sees("■ completed")
    chat = await stage.chat()
    chat.press(f"{command}\r")
    await chat.sees(*shown)


async def sessions(stage: Stage) -> None:
    shown = ("open a session:", "repair the login", "why is the build slow?")
    await _among_sessions(stage, "/sessions", *shown)


async def search(stage: Stage) -> None:
    shown = ("other sessions with these words:", "repair the login")
    await _among_sessions(stage, "/sessions login", *shown)


async def points(stage: Stage) -> None:
    chat = await stage.chat(ANSWER, ANSWER, ANSWER)
    for prompt in ("repair the login", "update the changelog", "open a pull request"):
        chat.press(f"{prompt}\r")
        await chat.until(lambda prompt=prompt: f"» {prompt}" in chat.text and READY in chat.screen)
    chat.press("\x1b")
    await chat.sees("Esc again: go back to an earlier turn")
    chat.press("\x1b")
    await chat.sees(
        "go back to the point before", "▸ 3. open a pull request", "1. repair the login"
    )


async def back_to(stage: Stage) -> None:
    await points(stage)
    chat = stage.shown
    chat.press("\r")
    await chat.sees("before this turn", "▸ revert", "fork")


async def paste(stage: Stage) -> None:
    chat = await stage.chat()
    chat.press("what is wrong here? ")
    chat.paste("\n".join(f"line {number}" for number in range(120)))
    await chat.sees("what is wrong here? [pasted 120 lines #1]")


async def written_before(stage: Stage) -> None:
    chat = await stage.chat(ANSWER, ANSWER)
    for prompt in ("repair the login", "update the changelog"):
        chat.press(f"{prompt}\r")
        await chat.until(lambda prompt=prompt: f"» {prompt}" in chat.text and READY in chat.screen)
    chat.press("\x12")
    await chat.sees("written before:", "▸ update the changelog", "repair the login")


async def several_lines(stage: Stage) -> None:
    chat = await stage.chat()
    chat.press("repair the login:\n- names with accents\n- names in 日本語, such as 山田さん")
    await chat.sees(f"{PROMPT}repair the login:", "  - names with accents", "山田さん")


async def unknown(stage: Stage) -> None:
    chat = await stage.chat()
    chat.press("/modle\r")
    await chat.sees("there is no command /modle; did you mean /model?")


async def help_(stage: Stage) -> None:
    chat = await stage.chat()
    chat.press("/help\r")
    await chat.sees("keys and commands:", "▸ Enter ", "Alt-Enter, Ctrl-J", " more")


STATES = (
    State("slash", "Commands, after `/`.", slash),
    State("files", "Files, after `@`.", files),
    State("models", "Choosing the model, with `Alt-M`.", models, main=True),
    State("variants", "Choosing the model's variant, with `Alt-V`.", variants),
    State("agents", "Choosing the agent.", agents),
    State("sessions", "Choosing another session.", sessions, alone=True),
    State("search", "Searching all conversations.", search, alone=True),
    State("points", "Going back to earlier turns, with `Esc` `Esc`.", points),
    State("back_to", "Revert or fork.", back_to),
    State("paste", "A pasted text, shown as a placeholder.", paste),
    State(
        "written_before", "Searching earlier messages, with `Ctrl-R`.", written_before, alone=True
    ),
    State("several_lines", "A message of several lines.", several_lines),
    State("unknown", "A command that does not exist.", unknown),
    State("help", "The keys and commands.", help_),
)
