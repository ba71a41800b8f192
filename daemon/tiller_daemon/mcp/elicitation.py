"""What a server asks the user while it works (elicitation), as questions with choices.

A form becomes one question for each of its fields, as people answer in words and from anywhere;
what does not fit is asked again with the reason.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple, cast

import mcp_types as types

from tiller_daemon.tools.base import ToolFailure, UserAnswer
from tiller_daemon.turn.output_schema import value_problem

ATTEMPTS_MAX: Final = 3
"""How often one field is asked for."""

ACCEPT: Final = "accept"
DECLINE: Final = "decline"
"""What can be chosen where there is nothing else to say."""

YES: Final = ("yes", "true", "y", "1")
NO: Final = ("no", "false", "n", "0")

Ask = Callable[[str, tuple[str, ...]], Awaitable[UserAnswer]]
Value = str | int | float | bool | list[str] | None


class _Field(NamedTuple):
    """One thing that is asked for. `options` are values to choose from, by what people see."""

    name: str
    schema: dict[str, Any]
    options: dict[str, str]
    needed: bool


class _Declined(Exception):
    """The user does not answer."""


async def ask_user(server: str, params: types.ElicitRequestParams, ask: Ask) -> types.ElicitResult:
    """Ask the user what `server` wants to know; declined when nobody is there."""
    opening = f"The MCP server {server} asks: {params.message}"
    try:
        if isinstance(params, types.ElicitRequestURLParams):
            await _confirm(f"{opening}\nIt wants you to open {params.url}", ask)
            return types.ElicitResult(action="accept")
        fields = _fields(params.requested_schema)
        if not fields:
            await _confirm(opening, ask)
        content: dict[str, Value] = {}
        for field in fields:
            value = await _ask_for(field, opening, ask)
            if value is not None:
                content[field.name] = value
        return types.ElicitResult(action="accept", content=content)
    except (_Declined, ToolFailure):
        return types.ElicitResult(action="decline")


async def _confirm(text: str, ask: Ask) -> None:
    answer = await ask(text, (ACCEPT, DECLINE))
    if answer.text is None or answer.text.strip().lower() in (DECLINE, *NO):
        raise _Declined


async def _ask_for(field: _Field, opening: str, ask: Ask) -> Value:
    """The value of a field; `None` if it is left out."""
    problem = ""
    for _ in range(ATTEMPTS_MAX):
        answer = await ask(f"{opening}\n{_label(field)}{problem}", _choices(field))
        if answer.text is None:
            raise _Declined
        said = answer.text.strip()
        if not said and "default" in field.schema:
            return cast("Value", field.schema["default"])
        if not said and not field.needed:
            return None
        try:
            value = _read(field, said)
        except ValueError as error:
            problem = f"\nThat was not understood: {error}."
            continue
        mismatch = value_problem(field.schema, value)
        if mismatch is None:
            return value
        problem = f"\nThat does not fit: {mismatch}."
    raise _Declined


def _fields(schema: dict[str, Any]) -> list[_Field]:
    properties: dict[str, dict[str, Any]] = schema.get("properties") or {}
    needed = schema.get("required") or ()
    return [
        _Field(name, one, _options(one.get("items") or one), name in needed)
        for name, one in properties.items()
    ]


def _options(schema: dict[str, Any]) -> dict[str, str]:
    """What can be chosen, by the words for it; the ways of all versions of the protocol."""
    if titled := schema.get("oneOf") or schema.get("anyOf"):
        rows = cast("list[dict[str, str]]", titled)
        return {row.get("title") or row["const"]: row["const"] for row in rows if "const" in row}
    values = cast("list[str]", schema.get("enum") or [])
    titles = cast("list[str]", schema.get("enumNames") or values)
    return dict(zip(titles, values, strict=False))


def _choices(field: _Field) -> tuple[str, ...]:
    if field.schema.get("type") == "boolean":
        return (YES[0], NO[0])
    return tuple(field.options)


def _label(field: _Field) -> str:
    """What is asked for, in a line."""
    label = field.schema.get("title") or field.name
    if about := field.schema.get("description"):
        label = f"{label}: {about}"
    notes: list[str] = []
    if field.schema.get("type") == "array":
        notes.append("several, with commas between them")
    if "default" in field.schema:
        notes.append(f"empty for {field.schema['default']}")
    elif not field.needed:
        notes.append("may be empty")
    return f"{label} ({'; '.join(notes)})" if notes else label


def _read(field: _Field, said: str) -> Value:
    """The value that the user's words mean; raises `ValueError`."""
    match field.schema.get("type"):
        case "boolean":
            if said.lower() not in (*YES, *NO):
                raise ValueError("say yes or no")
            return said.lower() in YES
        case "integer":
            return int(said)
        case "number":
            return float(said)
        case "array":
            return [_choose(field, one.strip()) for one in said.split(",") if one.strip()]
        case _:
            return _choose(field, said) if field.options else said


def _choose(field: _Field, said: str) -> str:
    for title, value in field.options.items():
        if said.casefold() in (title.casefold(), value.casefold()):
            return value
    if field.options:
        raise ValueError(f"say one of {', '.join(field.options)}")
    return said
