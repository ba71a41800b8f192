"""Families of models: the base prompt and the tool for edits that suit the models' training.

In the configuration, `[families.NAME]` overrides and extends the table of families. Pure.
"""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Final, NamedTuple

from tiller_daemon.config.model_schema import EditTool, Family

DEFAULT_PROMPT: Final = """\
You are a coding agent. You work in the user's own directory through tools.

- Look before you change anything: read the files that matter, and search instead of guessing.
- Make the smallest change that does what was asked, in the style of the surrounding code.
- After a change, run the project's own tests or checks, and say plainly what you ran and saw.
- You can put several read-only calls into one response; they run concurrently.
- A call can be denied or skipped. Take its result into account, and do not repeat the call.
- The user may steer you while you work. Their latest message takes precedence.
- When you are done, say in a few sentences what you did and what is left.
"""

_GPT = """\
- Keep going until the task is done: do not stop at a plan or at a part that works, and do not
  write messages that ask for permission. Just call the tool: permission is handled automatically.
- Change files with the tool for edits, never with a script that writes them. An edit that succeeded
  is done: do not read the file again to check it.
- Call tools instead of announcing what you are about to call.
"""

_CLAUDE = """\
- Do what was asked and nothing beyond it: no new files, documentation, fallbacks or comments that
  nobody wants. If you see something else that should change, say so at the end.
- Never make a test pass by special-casing or weakening it. If it is wrong, say so.
- Be brief: no preamble, no summary of what the user can see, no praise.
"""

_GEMINI = """\
- Never assume that a library is there: look at the project's manifest and at neighbouring files.
- Call a tool in the same response in which you decide to call it. Do not end a response by saying
  what you will do next.
- Do not repeat a call that has just succeeded. Do not print code that belongs in a file: write it
  there.
"""

BUILT_IN: Final[Mapping[str, Family]] = {
    "gpt": Family(
        models=(
            *("*gpt-5*", "*gpt-4.1*", "*gpt-oss*", "*codex*"),
            *("o3*", "*/o3*", "o4-*", "*/o4-*"),
        ),
        prompt=DEFAULT_PROMPT + _GPT,
        # OpenAI trains these models on codex's format.
        edit_tool="apply_patch",
    ),
    "claude": Family(models=("*claude*",), prompt=DEFAULT_PROMPT + _CLAUDE),
    "gemini": Family(models=("*gemini*",), prompt=DEFAULT_PROMPT + _GEMINI),
}
"""The families by name. The first with a matching pattern counts; other models have no family."""


class FamilyTraits(NamedTuple):
    """The traits that a model has because of its family."""

    prompt: str = DEFAULT_PROMPT
    """The prompt for agents without their own prompt."""
    edit_tool: EditTool = "edit"
    """The tool for edits that agents without a list of tools get."""


def traits_of(model: str, configured: Mapping[str, Family]) -> FamilyTraits:
    """Return the traits of the model with this name at its provider.

    Configured families come before built-in ones. If a built-in family has the same name, absent
    fields are taken from it.
    """
    for name in dict.fromkeys((*configured, *BUILT_IN)):
        own, built_in = configured.get(name, Family()), BUILT_IN.get(name, Family())
        if _matches(model, own.models or built_in.models):
            prompt = built_in.prompt if own.prompt is None else own.prompt
            edit_tool = own.edit_tool or built_in.edit_tool
            return FamilyTraits(prompt or DEFAULT_PROMPT, edit_tool or "edit")
    return FamilyTraits()


def _matches(model: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(model.casefold(), pattern.casefold()) for pattern in patterns)
