"""Elicitation: turns a server's request to the user during a call into questions with choices.

Each field of a form becomes a separate question, because any frontend can show a question with a
text answer. After an invalid answer, the question is asked again, with the reason.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple, cast

import mcp_types as types

from tiller_daemon.tools.base import ToolFailure, UserAnswer
from tiller_daemon.turn.output_schema import value_problem

ATTEMPTS_MAX: Final = 3
"""How often the user is asked for a field before the form is declined."""

ACCEPT: Final = "accept"
DECLINE: Final = "decline"
"""The choices of a question that only needs consent."""

YES: Final = ("yes", "true", "y", "1")
NO: Final = ("no", "false", "n", "0")

Ask = Callable[[str, tuple[str, ...]], Awaitable[UserAnswer]]
Value = str | int | float | bool | list[str] | None


class _Field(NamedTuple):
    """One field of a form; `options` maps the titles that people see to values."""

    name: str
    schema: dict[str, Any]
    options: dict[str, str]
    required: bool


class _Declined(Exception):
    """The user declined, or gave no valid answer."""


async def ask_user(server: str, params: types.ElicitRequestParams, ask: Ask) -> types.ElicitResult:
    """Ask the user for what `server` requests. Decline if no user is available."""
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
    # Only a clear yes is consent, as users may answer in their own words.
    if (answer.text or "").strip().lower() not in (ACCEPT, *YES):
        raise _Declined


async def _ask_for(field: _Field, opening: str, ask: Ask) -> Value:
    """Ask for the value of a field; return `None` if the field is optional and left empty."""
    problem = ""
    for _ in range(ATTEMPTS_MAX):
        answer = await ask(f"{opening}\n{_label(field)}{problem}", _choices(field))
        if answer.text is None:
            raise _Declined
        text = answer.text.strip()
        if not text and "default" in field.schema:
            return cast("Value", field.schema["default"])
        if not text and not field.required:
            return None
        try:
            value = _read(field, text)
        except ValueError as error:
            problem = f"\nThat was not understood: {error}."
            continue
        mismatch = value_problem(field.schema, value)
        if mismatch is None:
            return value
        problem = f"\nThat is not valid: {mismatch}."
    raise _Declined


def _fields(schema: dict[str, Any]) -> list[_Field]:
    properties: dict[str, dict[str, Any]] = schema.get("properties") or {}
    required = schema.get("required") or ()
    return [
        _Field(name, one, _options(one.get("items") or one), name in required)
        for name, one in properties.items()
    ]


def _options(schema: dict[str, Any]) -> dict[str, str]:
    """Return the values to choose from, by title. Protocol versions encode titles differently."""
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
    """Return a one-line description of a field."""
    label = field.schema.get("title") or field.name
    if about := field.schema.get("description"):
        label = f"{label}: {about}"
    notes: list[str] = []
    if field.schema.get("type") == "array":
        notes.append("several, separated by commas")
    if "default" in field.schema:
        notes.append(f"empty for {field.schema['default']}")
    elif not field.required:
        notes.append("may be empty")
    return f"{label} ({'; '.join(notes)})" if notes else label


def _read(field: _Field, text: str) -> Value:
    """Return the value that the user typed. Raises `ValueError` with a hint."""
    match field.schema.get("type"):
        case "boolean":
            if text.lower() not in (*YES, *NO):
                raise ValueError("answer yes or no")
            return text.lower() in YES
        case "integer":
            return int(text)
        case "number":
            return float(text)
        case "array":
            names = [one.strip() for one in text.removesuffix(",").split(",")] if text else []
            if not all(names):
                raise ValueError("a value is missing before a comma")
            return [_choose(field, one) for one in names]
        case _:
            return _choose(field, text) if field.options else text


def _choose(field: _Field, text: str) -> str:
    for title, value in field.options.items():
        if text.casefold() in (title.casefold(), value.casefold()):
            return value
    if field.options:
        raise ValueError(f"answer with one of {', '.join(field.options)}")
    return text
