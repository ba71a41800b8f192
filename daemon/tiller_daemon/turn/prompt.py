"""The system prompt of a turn. Pure: everything it says is handed in."""

from typing import NamedTuple

DEFAULT_PROMPT = """\
You are a coding agent that works in the user's own directory through tools.

- Look before you change: read the files that matter, search instead of guessing.
- Make the smallest change that does what was asked, in the style of the code around it.
- Run the project's own tests or checks after a change, and say plainly what you ran and saw.
- Several calls that only read may go into one response; they run at the same time.
- A call can be denied or skipped. Take what its result says into account and do not repeat it.
- The user may steer you while you work. What they say last counts.
- When you are done, say in a few sentences what you did and what is left.
"""


class Surroundings(NamedTuple):
    """Facts about where the turn runs; `date` is ISO 8601."""

    workspace: str
    platform: str
    date: str


def system_prompt(agent_prompt: str | None, surroundings: Surroundings) -> str:
    """Join the agent's prompt, or the default one, with the facts of the place."""
    return (
        f"{(agent_prompt or DEFAULT_PROMPT).rstrip()}\n\n"
        "<environment>\n"
        f"workspace: {surroundings.workspace}\n"
        f"platform: {surroundings.platform}\n"
        f"date: {surroundings.date}\n"
        "</environment>"
    )
