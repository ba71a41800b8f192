"""Converts the daemon's requests to an editor's questions, and its answers back. Pure."""

from typing import Any, Literal, NamedTuple

from msgspec import Raw

from tiller_client.acp.approval import CHOICE_PREFIX, ELSEWHERE, in_one_line
from tiller_client.acp.schema import FormResult, PermissionResult, read
from tiller_protocol.items import Decision, Request

FORM_FIELD = "answer"
OTHER_FIELD = "other"
"""The fields of the form for the model's question."""


class Answered(NamedTuple):
    """An answer for the daemon."""

    decision: Decision
    text: str = ""


def read_outcome(request: Request, reply: Raw) -> Answered | Literal["elsewhere"] | None:
    """The user's answer; `None` if the question was dismissed or the choice is unknown.

    `elsewhere` if the user answers in another frontend.
    """
    outcome = read(reply, PermissionResult).outcome
    match outcome.option_id if outcome.outcome == "selected" else "":
        case ("once" | "always" | "reject") as decision:
            return Answered(decision)
        case "elsewhere":
            return ELSEWHERE
        case option if option.startswith(CHOICE_PREFIX):
            number = option.removeprefix(CHOICE_PREFIX)
            choices = dict(enumerate(request.choices))
            chosen = choices.get(int(number)) if number.isdecimal() else None
            return None if chosen is None else Answered("answer", chosen)
        case _:
            return None


def form_for(request: Request) -> dict[str, Any]:
    """The schema of a form for the model's question: a choice, or any text."""
    if not request.choices:
        answer = {"type": "string", "title": "Answer"}
        return {"type": "object", "properties": {FORM_FIELD: answer}, "required": [FORM_FIELD]}
    choice = {"type": "string", "title": "Answer", "enum": list(map(in_one_line, request.choices))}
    other = {"type": "string", "title": "Or another answer"}
    return {"type": "object", "properties": {FORM_FIELD: choice, OTHER_FIELD: other}}


def read_form(request: Request, reply: Raw) -> Answered | None:
    """The user's answer in a form; `None` if the form was dismissed."""
    result = read(reply, FormResult)
    if result.action == "decline":
        return Answered("reject")
    content = result.content or {}
    shown = {in_one_line(choice): choice for choice in request.choices}
    answer = str(content.get(FORM_FIELD) or "")
    text = str(content.get(OTHER_FIELD) or shown.get(answer, answer))
    return Answered("answer", text) if result.action == "accept" and text else None
