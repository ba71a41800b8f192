"""Checks request bodies against the types of the packages `openai` and `anthropic`."""

import json
from typing import Any, Literal, Union, get_args, get_origin

import typing_extensions
from anthropic.types.message_create_params import MessageCreateParamsStreaming
from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming
from openai.types.responses.response_create_params import ResponseCreateParamsStreaming
from pydantic import TypeAdapter

CHAT = TypeAdapter[Any](CompletionCreateParamsStreaming)
RESPONSES = TypeAdapter[Any](ResponseCreateParamsStreaming)


def check_typed(adapter: TypeAdapter[Any], body: bytes) -> None:
    """Check a body by OpenAI's package, which drops fields that it does not know."""
    told = json.loads(body)
    assert _exhausted(adapter.validate_python(told)) == told


def check_messages_typed(body: bytes) -> None:
    """Check a body against the types of Anthropic's package."""
    found = problem(json.loads(body), MessageCreateParamsStreaming)
    assert not found, found


def problem(value: Any, kind: Any, place: str = "body") -> str:
    """Return where `value` does not match `kind` or has an unknown field; empty if it matches."""
    if typing_extensions.is_typeddict(kind):
        return _problem_of_fields(value, kind, place)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is typing_extensions.Required:
        return problem(value, arguments[0], place)
    if origin is Literal:
        return "" if value in arguments else f"{place}: {value!r} is none of {arguments}"
    if origin is Union or type(kind).__name__ == "UnionType":
        problems = [problem(value, one, place) for one in arguments]
        return "" if "" in problems else max(problems, key=len)
    if origin is dict:
        return "" if isinstance(value, dict) else f"{place}: no object"
    if origin is not None:
        if not isinstance(value, list):
            return f"{place}: no list"
        found = (problem(one, arguments[0], f"{place}[{n}]") for n, one in enumerate(value))
        return next((one for one in found if one), "")
    if kind is object or kind is Any:
        return ""
    return "" if isinstance(value, kind) else f"{place}: {value!r} is no {kind}"


def _problem_of_fields(value: Any, kind: Any, place: str) -> str:
    hints = typing_extensions.get_type_hints(kind, include_extras=True)
    if not isinstance(value, dict):
        return f"{place}: no object"
    for name, hint in hints.items():
        if get_origin(hint) is typing_extensions.Required and name not in value:
            return f"{place}: no {name}"
    for name, inner in value.items():
        if name not in hints:
            return f"{place}: {name} is no field of {kind.__name__}"
        if found := problem(inner, hints[name], f"{place}.{name}"):
            return found
    return ""


def _exhausted(value: Any) -> Any:
    """Read the lists in a value, since the package validates lists only as they are read."""
    if isinstance(value, dict):
        return {key: _exhausted(one) for key, one in value.items()}
    if value is None or isinstance(value, str | int | float):
        return value
    return [_exhausted(one) for one in value]
