"""The system prompt of a turn. Pure: everything it says is handed in."""

from collections.abc import Sequence
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

PLAN_PROMPT = """\
You are a coding agent that makes plans. You work in the user's own directory through tools that
only look; whatever would change anything is denied, and you do not try to get around that.

- Read what the plan depends on, search instead of guessing, and run commands that only read.
- Several calls that only read may go into one response; they run at the same time.
- Ask when the answer would change the plan.
- Think of what could go wrong, and of how the result will be checked.
- End with the plan: what to change in which file and why, in the order of work, and what you are
  not sure about. Somebody else carries it out, and knows nothing but what you wrote.
"""

EXPLORE_PROMPT = """\
You find out how things are in the user's own directory, through tools that only look.

- Search broadly first, then read the parts that matter.
- Several calls that only read may go into one response; they run at the same time.
- Answer what was asked and stop there: a few sentences or a short list, with `path:line` for each
  thing that you found. Say what you did not find, and never guess.
"""

GENERAL_PROMPT = """\
You are given one task in the user's own directory, and do it from begin to end through tools.

- Look before you change: read the files that matter, search instead of guessing.
- Make the smallest change that does what was asked, in the style of the code around it.
- Several calls that only read may go into one response; they run at the same time.
- A call can be denied or skipped. Take what its result says into account and do not repeat it.
- Nobody answers while you work. Decide yourself where you can, and say what you assumed.
- End with a report for somebody who saw nothing of your work: what you did, what came of it, in
  which files, how it was checked, and what is left.
"""

INSTRUCTIONS_INTRODUCTION = """\
The user and the project have these instructions for you. Where two of them differ the later one
counts; what the user says in this conversation counts more than any of them."""

SKILLS_INTRODUCTION = """\
There are skills: files that say how to do a certain kind of work here. When what is asked fits a
description, read that file with `read` before you begin, and follow it."""


class PromptEnvironment(NamedTuple):
    """Facts about where the turn runs.

    `repository` says what is known of the git repository around it and is empty without one;
    `date` is ISO 8601, `sandbox` what commands are held to, if they are.
    """

    workspace: str
    repository: str
    platform: str
    date: str
    sandbox: str = ""


class InstructionFile(NamedTuple):
    """A file whose text is part of the prompt."""

    path: str
    text: str


class SkillSummary(NamedTuple):
    """A skill that the model may read; `path` is where."""

    name: str
    description: str
    path: str


def system_prompt(
    agent_prompt: str | None,
    environment: PromptEnvironment,
    instructions: Sequence[InstructionFile] = (),
    skills: Sequence[SkillSummary] = (),
) -> str:
    """Join the agent's prompt, or the default one, with the facts and what the files say.

    What changes least stands first, so that a provider can keep the beginning.
    """
    parts = [(agent_prompt or DEFAULT_PROMPT).rstrip()]
    if instructions:
        parts.append(INSTRUCTIONS_INTRODUCTION)
        parts += [
            f'<instructions file="{path}">\n{text}\n</instructions>' for path, text in instructions
        ]
    if skills:
        lines = "\n".join(f"- {name}: {text} ({path})" for name, text, path in skills)
        parts.append(f"{SKILLS_INTRODUCTION}\n\n<skills>\n{lines}\n</skills>")
    parts.append(_environment(environment))
    return "\n\n".join(parts)


def _environment(environment: PromptEnvironment) -> str:
    sandbox = f"sandbox of commands: {environment.sandbox}\n" if environment.sandbox else ""
    return (
        "<environment>\n"
        f"workspace: {environment.workspace}\n"
        f"git repository: {environment.repository or 'none'}\n"
        f"platform: {environment.platform}\n"
        f"date: {environment.date}\n"
        f"{sandbox}"
        "</environment>"
    )
