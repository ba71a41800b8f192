"""Decodes tool arguments, and makes their JSON Schema for models and their error messages. Pure.

A built-in tool has an argument struct. An MCP tool has a schema, and its arguments stay a JSON
object.
"""

import re
from contextlib import suppress
from typing import Any, cast

import msgspec

from tiller_daemon.session.calls.lenient_arguments import mended_arguments
from tiller_daemon.tools.base import Tool
from tiller_daemon.tools.suggestions import did_you_mean
from tiller_daemon.turn.output_schema import value_problem

_UNKNOWN_FIELD = re.compile("contains unknown field `([^`]*)`")
"""Msgspec's message for a field that the argument struct does not have."""


_HALF_PAIR = re.compile(
    r"\\ud[89ab]\w\w(?!\\ud[cdef])|(?<!\\ud[89ab]\w\w)\\ud[cdef]", re.IGNORECASE
)


ARGUMENTS_CHARS_MAX = 256 * 1024
"""The longest arguments. Models write up to 128,000 tokens, rarely more than 30 KiB in a call, and
nobody could approve more. 256 KiB of tiny changes take 0.1 s, in which no other session goes on."""


class BadArguments(Exception):
    """A tool does not accept the arguments; the message names the field and the schema."""


def decode_arguments(tool: Tool, text: str) -> Any:  # noqa: ANN401 - struct or object, by the tool
    """Return the arguments in the type that the tool's functions take; raises `BadArguments`.

    If the tool does not accept them, but would accept what was probably meant, return that.
    """
    # Some models send nothing for a tool without required arguments.
    text = text.strip() or "{}"
    if len(text) > ARGUMENTS_CHARS_MAX:
        raise BadArguments(
            f"The arguments for {tool.name} have {len(text)} characters, but at most"
            f" {ARGUMENTS_CHARS_MAX} are allowed. Make several calls with a part each."
        )
    try:
        return _decode(tool, text)
    except BadArguments as refused:
        with suppress(BadArguments, msgspec.DecodeError, RecursionError):
            return _decode(tool, mended_arguments({"type": "object", **parameters(tool)}, text))
        raise refused from None


def _decode(tool: Tool, text: str) -> Any:  # noqa: ANN401 - struct or object, by the tool
    try:
        if not isinstance(tool.arguments, dict):
            return msgspec.json.decode(text, type=tool.arguments)
        decoded = msgspec.json.decode(text, type=dict[str, Any])
    # Deeply nested JSON exhausts the decoder's stack.
    except (msgspec.DecodeError, RecursionError) as error:
        problem = str(error)
        # The decoder takes half a surrogate pair for the end of the text.
        if _HALF_PAIR.search(text) and ("truncated" in problem or "surrogate" in problem):
            problem = "a text contains half a surrogate pair, which is not a character"
        raise BadArguments(_explain(tool, problem)) from None
    if problem := value_problem(tool.arguments, decoded):
        raise BadArguments(_explain(tool, problem))
    return decoded


def parameters(tool: Tool) -> dict[str, Any]:
    """Return the JSON Schema of a tool's arguments.

    References in a struct's schema are inlined, since some models can't follow `$ref`.
    """
    if isinstance(tool.arguments, dict):
        return tool.arguments
    (reference,), definitions = msgspec.json.schema_components([tool.arguments])

    def inlined(schema: object) -> object:
        match schema:
            case {"$ref": str(name)}:
                definition = definitions[name.rpartition("/")[2]]
                return {key: inlined(value) for key, value in definition.items() if key != "title"}
            case dict():
                known = cast("dict[str, object]", schema)
                return {key: inlined(value) for key, value in known.items()}
            case list():
                return [inlined(value) for value in cast("list[object]", schema)]
            case _:
                return schema

    return cast("dict[str, Any]", inlined(reference))


def _explain(tool: Tool, problem: str) -> str:
    schema = parameters(tool)
    hint = ""
    if unknown := _UNKNOWN_FIELD.search(problem):
        hint = did_you_mean(unknown[1], _field_names(schema))
    text = msgspec.json.encode(schema).decode()
    return f"Invalid arguments for {tool.name}: {problem}.{hint} The arguments must match {text}"


def _field_names(schema: object) -> set[str]:
    """Return the names of all fields in a schema, at any depth."""
    match schema:
        case dict():
            known = cast("dict[str, object]", schema)
            properties = known.get("properties")
            own = set(cast("dict[str, object]", properties)) if properties else set[str]()
            return own.union(*map(_field_names, known.values()))
        case list():
            return set[str]().union(*map(_field_names, cast("list[object]", schema)))
        case _:
            return set()
