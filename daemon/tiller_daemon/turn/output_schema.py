"""The output schema of a turn: checks schemas, and validates messages against them. Pure.

The validator is imported when a schema is first used: most turns have none, and importing it takes
longer than the rest of the turn combined.
"""

import re
from collections.abc import Iterator
from typing import Any, cast

import msgspec

SCHEMA_CHARS_SHOWN_MAX = 16_000
"""Longest schema that a repair notice repeats; longer ones reach the model only in the request."""

PROBLEM_CHARS_MAX = 1_000
"""Problems are cut to this length, because they quote the message, which may be long."""

_FENCED = re.compile(r"\s*```[\w-]*[ \t]*\n(.*)\n[ \t]*```\s*", re.DOTALL)


def schema_problem(schema: dict[str, Any]) -> str | None:
    """Return why `schema` is not a usable JSON Schema, or `None` if it is.

    References must resolve within the schema: nothing is ever fetched.
    """
    draft = _draft(schema)
    try:
        if problem := _mismatch(draft.META_SCHEMA, schema, formats=draft.FORMAT_CHECKER):
            return problem
        for reference in _references(schema):
            if not _resolves(schema, reference):
                return f"the reference {reference!r} does not resolve within the schema"
        # Validating any value reveals endless references.
        _mismatch(schema, None)
    except RecursionError:
        return "its references form an endless loop"
    return None


def message_problem(schema: dict[str, Any], text: str) -> str | None:
    """Return why `text` is not JSON that matches `schema`, or `None` if it is."""
    try:
        return value_problem(schema, msgspec.json.decode(without_fences(text)))
    except (msgspec.DecodeError, UnicodeError) as error:
        return f"it is not JSON: {_one_line(str(error))}"
    except RecursionError:
        return "it is nested too deeply"


def value_problem(schema: dict[str, Any], value: object) -> str | None:
    """Return why and where `value` does not match `schema`, or `None` if it does."""
    try:
        return _mismatch(schema, value)
    except RecursionError:
        return "it is nested too deeply"


def without_fences(text: str) -> str:
    """Return `text` without the code fence that models like to put around JSON."""
    fenced = _FENCED.fullmatch(text)
    return fenced[1] if fenced else text


def repair_notice(schema: dict[str, Any], problem: str) -> str:
    """Return the notice for a model whose final message does not match."""
    shown = msgspec.json.encode(schema).decode()
    repeated = f"\nThe schema:\n{shown}" if len(shown) <= SCHEMA_CHARS_SHOWN_MAX else ""
    return (
        f"Your last message does not match the required output schema: {problem}. Send it again as "
        f"JSON that matches, with nothing before or after it.{repeated}"
    )


def _mismatch(schema: dict[str, Any], value: object, formats: object = None) -> str | None:
    """Return the most relevant mismatch and its place, or `None`; never fetches a reference."""
    from jsonschema import exceptions
    from referencing import Registry

    empty_registry = cast("Any", Registry)()
    validator = _draft(schema)(schema, registry=empty_registry, format_checker=formats)
    error = cast("Any", exceptions).best_match(validator.iter_errors(value))
    if error is None:
        return None
    place = f"at {error.json_path}: " if error.json_path != "$" else ""
    return place + _one_line(error.message)


def _draft(schema: dict[str, Any]) -> Any:  # noqa: ANN401 - the package has no types
    """Return the validator class of the draft that the schema names, else of the newest draft."""
    from jsonschema import Draft202012Validator, validators

    return cast("Any", validators).validator_for(schema, default=Draft202012Validator)


def _references(schema: object) -> Iterator[str]:
    if isinstance(schema, dict):
        for key, value in cast("dict[str, object]", schema).items():
            if key in ("$ref", "$dynamicRef") and isinstance(value, str):
                yield value
            else:
                yield from _references(value)
    elif isinstance(schema, list):
        for value in cast("list[object]", schema):
            yield from _references(value)


def _resolves(schema: dict[str, Any], reference: str) -> bool:
    from referencing import Registry, Resource
    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import DRAFT202012

    resource = Resource.from_contents(schema, default_specification=DRAFT202012)
    base = resource.id() or ""
    known = cast("Any", Registry)().with_resource(base, resource)
    try:
        known.resolver(base).lookup(reference)
    except Unresolvable:
        return False
    return True


def _one_line(text: str) -> str:
    line = " ".join(text.split()).rstrip(".")
    return line if len(line) <= PROBLEM_CHARS_MAX else f"{line[:PROBLEM_CHARS_MAX]}…"
