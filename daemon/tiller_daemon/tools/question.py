"""The tool `question`: the model asks the user something and waits for the answer.

The session opens, shows and resolves the request.
"""

import math
from typing import Annotated, Final

from msgspec import Meta, Struct

from tiller_daemon.tools.base import Tool, ToolEnvironment, ToolResult, nothing_required

TEXT_CHARS_MAX: Final = 4_000
CHOICES_MAX: Final = 20
CHOICE_CHARS_MAX: Final = 300
"""As much as a person can be expected to read before answering."""


class QuestionArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """The arguments of `question`."""

    text: Annotated[
        str, Meta(min_length=1, max_length=TEXT_CHARS_MAX, description="The question alone")
    ]
    choices: Annotated[
        tuple[Annotated[str, Meta(min_length=1, max_length=CHOICE_CHARS_MAX)], ...],
        Meta(
            max_length=CHOICES_MAX,
            description="Answers to choose from, the best first; the user may also answer freely",
        ),
    ] = ()


async def _run(arguments: QuestionArguments, environment: ToolEnvironment) -> ToolResult:
    answer = await environment.user.ask(arguments.text, arguments.choices)
    if answer.text is None:
        reason = f" They said: {answer.reason}" if answer.reason else ""
        return ToolResult(f"The user did not answer.{reason}")
    return ToolResult(answer.text or "(The user's answer is empty.)")


QUESTION: Final = Tool(
    name="question",
    description=(
        "Ask the user a question and wait for the answer. Use this if the answer changes what you "
        "do and you can't find it yourself. Ask one thing, and offer `choices` if you can."
    ),
    arguments=QuestionArguments,
    effect="read",
    timeout_s=math.inf,
    requirements=nothing_required,
    run=_run,
)
