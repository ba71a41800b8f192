"""Checks request bodies against the types of the packages `openai` and `anthropic`.

The packages take seconds to import, so only the worker that uses them does so.
"""

import json
from functools import cache
from typing import Any, Literal, Union, get_args, get_origin

import typing_extensions
from pydantic import TypeAdapter


def check_chat_typed(body: bytes) -> None:
    """Check a body for Chat Completions by OpenAI's package."""
    _check(_chat(), body)


def check_responses_typed(body: bytes) -> None:
    """Check a body for Responses by OpenAI's package."""
    _check(_responses(), body)


def check_messages_typed(body: bytes) -> None:
    """Check a body against the types of Anthropic's package."""
    found = messages_problem(json.loads(body))
    assert not found, found


def messages_problem(body: Any) -> str:
    """Return where a body does not match the types of Anthropic's package; empty if it does."""
    from anthropic.types.message_create_params import MessageCreateParamsStreaming

    return problem(body, MessageCreateParamsStreaming)


@cache
def _chat() -> TypeAdapter[Any]:
    from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming

    return TypeAdapter(CompletionCreateParamsStreaming)


@cache
def _responses() -> TypeAdapter[Any]:
    from openai.types.responses.response_create_params import ResponseCreateParamsStreaming

    return TypeAdapter(ResponseCreateParamsStreaming)


def _check(adapter: TypeAdapter[Any], body: bytes) -> None:
    """Compare, as the package drops fields that it does not know."""
    told = json.loads(body)
    assert _exhausted(adapter.validate_python(told)) == told


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
