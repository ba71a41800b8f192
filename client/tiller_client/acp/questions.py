"""Converts the daemon's requests to an editor's questions, and its answers back. Pure."""

from typing import Any, NamedTuple

import msgspec
from msgspec import Raw

from tiller_client.acp.schema import FormResult, PermissionResult
from tiller_client.acp.updates import PermissionOption
from tiller_protocol.items import Decision, Request

FORM_FIELD = "answer"
OTHER_FIELD = "other"
"""The fields of the form for the model's question."""

CHOICE_PREFIX = "choice:"

_permission_of = msgspec.json.Decoder(PermissionResult).decode
_form_of = msgspec.json.Decoder(FormResult).decode


class Answered(NamedTuple):
    """An answer for the daemon."""

    decision: Decision
    text: str = ""


def options_for(request: Request) -> tuple[PermissionOption, ...]:
    """The options to answer a request; their labels name what `always` would allow."""
    if request.kind == "question":
        choices = [
            PermissionOption(f"{CHOICE_PREFIX}{number}", choice, "allow_once")
            for number, choice in enumerate(request.choices)
        ]
        return (*choices, PermissionOption("reject", "Don't answer", "reject_once"))
    options = [PermissionOption("once", "Allow once", "allow_once")]
    if request.always:
        what = f"{request.permission} {', '.join(request.always)}"
        session = f"Always allow in this session: {what}"
        options.append(PermissionOption("always", session, "allow_always"))
        if request.always_here:
            here = f"Always allow in {request.always_here}: {what}"
            options.append(PermissionOption("always_here", here, "allow_always"))
    return (*options, PermissionOption("reject", "Reject", "reject_once"))


def read_outcome(request: Request, reply: Raw) -> Answered | None:
    """The user's answer; `None` if the question was dismissed or the choice is unknown."""
    outcome = _permission_of(reply).outcome
    match outcome.option_id if outcome.outcome == "selected" else "":
        case ("once" | "always" | "always_here" | "reject") as decision:
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
    choice = {"type": "string", "title": "Answer", "enum": list(request.choices)}
    other = {"type": "string", "title": "Or another answer"}
    return {"type": "object", "properties": {FORM_FIELD: choice, OTHER_FIELD: other}}


def read_form(_request: Request, reply: Raw) -> Answered | None:
    """The user's answer in a form; `None` if the form was dismissed."""
    result = _form_of(reply)
    if result.action == "decline":
        return Answered("reject")
    content = result.content or {}
    text = str(content.get(OTHER_FIELD) or content.get(FORM_FIELD) or "")
    return Answered("answer", text) if result.action == "accept" and text else None
