"""Converts the daemon's requests to an editor's questions, and its answers back. Pure."""

from typing import Any, NamedTuple

import msgspec
from msgspec import Raw

from tiller_client.acp.approval import CHOICE_PREFIX, in_one_line
from tiller_client.acp.schema import FormResult, PermissionResult
from tiller_protocol.items import Decision, Request

FORM_FIELD = "answer"
OTHER_FIELD = "other"
"""The fields of the form for the model's question."""

_permission_of = msgspec.json.Decoder(PermissionResult).decode
_form_of = msgspec.json.Decoder(FormResult).decode


class Answered(NamedTuple):
    """An answer for the daemon."""

    decision: Decision
    text: str = ""


def read_outcome(request: Request, reply: Raw) -> Answered | None:
    """The user's answer; `None` if the question was dismissed or the choice is unknown."""
    outcome = _permission_of(reply).outcome
    match outcome.option_id if outcome.outcome == "selected" else "":
        case ("once" | "always" | "reject") as decision:
            return Answered(decision)
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
    result = _form_of(reply)
    if result.action == "decline":
        return Answered("reject")
    content = result.content or {}
    shown = {in_one_line(choice): choice for choice in request.choices}
    answer = str(content.get(FORM_FIELD) or "")
    text = str(content.get(OTHER_FIELD) or shown.get(answer, answer))
    return Answered("answer", text) if result.action == "accept" and text else None
