"""Makes the system prompt of a turn. Pure: all of its contents are passed in."""

from collections.abc import Sequence
from typing import NamedTuple

PLAN_PROMPT = """\
You are a coding agent that makes plans. You work in the user's own directory through read-only
tools. Anything that would make a change is denied; do not try to work around that.

- Read what the plan depends on, search instead of guessing, and run commands that only read.
- You can put several read-only calls into one response; they run concurrently.
- Ask the user when the answer would change the plan.
- Consider what could go wrong, and how the result will be checked.
- End with the plan: what to change in which file and why, in the order of work, and what you are
  not sure about. Someone else will carry it out, knowing nothing but what you wrote.
"""

EXPLORE_PROMPT = """\
You investigate how things work in the user's own directory, through read-only tools.

- Search broadly first, then read the parts that matter.
- You can put several read-only calls into one response; they run concurrently.
- Answer what was asked and stop there: a few sentences or a short list, with `path:line` for each
  finding. Say what you did not find, and never guess.
"""

GENERAL_PROMPT = """\
You are given one task in the user's own directory. Do it from start to finish through tools.

- Look before you change anything: read the files that matter, and search instead of guessing.
- Make the smallest change that does what was asked, in the style of the surrounding code.
- You can put several read-only calls into one response; they run concurrently.
- A call can be denied or skipped. Take its result into account, and do not repeat the call.
- No one can answer you while you work. Decide for yourself where you can, and say what you assumed.
- End with a report for someone who saw none of your work: what you did, in which files, with what
  outcome, how you checked it, and what is left.
"""

INSTRUCTIONS_INTRODUCTION = """\
These are instructions for you from the user and the project. Where two of them conflict, the later
one applies. What the user says in this conversation overrides all of them."""

SKILLS_INTRODUCTION = """\
These skills are available: files that describe how to do a certain kind of work here. If a request
matches a description, read that skill's file with `read` before you start, and follow it."""


class PromptEnvironment(NamedTuple):
    """Facts about where the turn runs."""

    workspace: str
    """The absolute path of the workspace."""
    repository: str
    """The git repository around the workspace and its branch; empty without a repository."""
    platform: str
    """A value of `sys.platform`."""
    date: str
    """The local date and its time zone."""
    sandbox: str = ""
    """The limits on commands; empty without a sandbox."""
    scope: Sequence[str] = ()
    """The only files that the turn may change; empty without such a limit."""


class InstructionFile(NamedTuple):
    """A file whose text is part of the prompt."""

    path: str
    text: str


class SkillSummary(NamedTuple):
    """A skill that the model may read at `path`."""

    name: str
    description: str
    path: str


class GivenPrompt(NamedTuple):
    """The parts of the prompt that are not read from files in the workspace."""

    base: str
    """The agent's prompt, or the prompt of the model's family."""
    header: str = ""
    """Text that the provider requires at the beginning; may be empty."""
    addition: str = ""
    """Text that comes with the input, for this turn only; may be empty."""


def system_prompt(
    given: GivenPrompt,
    environment: PromptEnvironment,
    instructions: Sequence[InstructionFile] = (),
    skills: Sequence[SkillSummary] = (),
) -> str:
    """Return the system prompt: the given parts, instructions, skills and environment."""
    # The parts that change least come first, so that providers can cache the longest prefix.
    parts = [with_header(given.header, given.base.rstrip())]
    if instructions:
        parts.append(INSTRUCTIONS_INTRODUCTION)
        parts += [
            f'<instructions file="{path}">\n{text}\n</instructions>' for path, text in instructions
        ]
    if skills:
        lines = "\n".join(f"- {name}: {text} ({path})" for name, text, path in skills)
        parts.append(f"{SKILLS_INTRODUCTION}\n\n<skills>\n{lines}\n</skills>")
    parts.append(_environment(environment))
    if given.addition:
        parts.append(given.addition.rstrip())
    return "\n\n".join(parts)


def with_header(header: str, system: str) -> str:
    """Return a system prompt that begins with the provider's header."""
    return f"{header.rstrip()}\n\n{system}" if header else system


def _environment(environment: PromptEnvironment) -> str:
    sandbox = f"command sandbox: {environment.sandbox}\n" if environment.sandbox else ""
    scope = ""
    if environment.scope:
        scope = f"you may change only: {', '.join(environment.scope)}\n"
    return (
        "<environment>\n"
        f"workspace: {environment.workspace}\n"
        f"git repository: {environment.repository or 'none'}\n"
        f"platform: {environment.platform}\n"
        f"date: {environment.date}\n"
        f"{sandbox}"
        f"{scope}"
        "</environment>"
    )
