"""Checks JSON Schemas from outside, and validates messages and arguments against them. Pure.

A schema could keep the daemon busy for years. Therefore a validation follows few references, and
the daemon compiles and evaluates no regular expression of a schema: some take exponential time with
some texts. Every text matches a `pattern` here.

The validator is imported when a schema is first used, because most turns have no schema and the
import takes longer than the rest of such a turn.
"""

import re
from collections.abc import Callable, Collection, Iterator
from contextvars import ContextVar
from functools import cache
from typing import Any, cast

import msgspec

SCHEMA_CHARS_SHOWN_MAX = 16_000
"""Longest schema that a repair notice repeats; a longer schema is only in the request itself."""

PROBLEM_CHARS_MAX = 1_000
"""Problems are cut to this length, because they quote the model's message, which may be long."""

REFERENCES_MAX = 50_000
"""How many references one validation follows, since nested references multiply."""

_LEFT: ContextVar[int] = ContextVar("_LEFT")
"""How many references the current validation may still follow."""

_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")

_STRICTER = ("not", "oneOf", "if", "maxContains", "disallow", "patternProperties")
"""Keywords that may refuse a value because a part of the schema matches it. Beside regular
expressions, which match every text here, such a keyword could refuse a valid value."""

_FENCED = re.compile(r"\s*```[\w-]*[ \t]*\n(.*)\n[ \t]*```\s*", re.DOTALL)


def schema_problem(schema: dict[str, Any]) -> str | None:
    """Return why `schema` is not a usable JSON Schema, or `None` if it is.

    References must resolve within the schema, because nothing is ever fetched. Regular expressions
    are not checked.
    """
    draft = _draft(schema)
    try:
        if problem := _first_problem(draft(draft.META_SCHEMA), schema):
            return problem
        for reference in _values(schema, _REFERENCES):
            if isinstance(reference, str) and not _resolves(schema, reference):
                return f"the reference {reference!r} does not resolve within the schema"
        # The validation of any value reveals endless references. The validation of `None` evaluates
        # no regular expressions, since these are only for texts and for the keys of objects.
        _mismatch(schema, None)
    except RecursionError:
        return "its references form a loop, or expand too far"
    return None


def message_problem(schema: dict[str, Any], text: str) -> str | None:
    """Return why `text` is not JSON that matches `schema`, or `None` if it matches.

    See `value_problem` for schemas with regular expressions.
    """
    try:
        return value_problem(schema, msgspec.json.decode(without_fences(text)))
    except (msgspec.DecodeError, UnicodeError) as error:
        return f"it is not JSON: {_one_line(str(error))}"
    except RecursionError:
        return "it is nested too deeply"


def value_problem(schema: dict[str, Any], value: object) -> str | None:
    """Return why and where `value` does not match `schema`, or `None` if it does.

    Every text matches a regular expression. If `schema` also has one of the keywords `_STRICTER`,
    nothing is validated. For a tool's arguments, the server will then say what does not match.
    """
    if _has_expressions(schema) and any(True for _ in _values(schema, _STRICTER)):
        return None
    try:
        return _mismatch(schema, value)
    except RecursionError:
        return "it is nested too deeply"


def without_fences(text: str) -> str:
    """Return `text` without the code fence that models like to put around JSON."""
    fenced = _FENCED.fullmatch(text)
    return fenced[1] if fenced else text


def repair_notice(schema: dict[str, Any], problem: str) -> str:
    """Return the notice for a model whose final message does not match the schema."""
    shown = msgspec.json.encode(schema).decode()
    repeated = f"\nThe schema:\n{shown}" if len(shown) <= SCHEMA_CHARS_SHOWN_MAX else ""
    return (
        f"Your last message does not match the required output schema: {problem}. Send the message "
        f"again as JSON that matches the schema, with nothing before or after the JSON.{repeated}"
    )


def _mismatch(schema: dict[str, Any], value: object) -> str | None:
    """Return the most relevant mismatch and its place, or `None`; never fetches a reference.

    Raises `RecursionError` for endless references, or more than `REFERENCES_MAX` of them.
    """
    from referencing import Registry

    draft = _with_few_references(_draft(schema))
    # The package would validate a part that names a draft with its own class.
    plain = _without_drafts(schema)
    _LEFT.set(REFERENCES_MAX)
    return _first_problem(draft(plain, registry=cast("Any", Registry)()), value)


def _first_problem(validator: Any, value: object) -> str | None:  # noqa: ANN401 - without types
    """Return the most relevant of the validator's problems with a value, and where it is."""
    from jsonschema import exceptions

    error = cast("Any", exceptions).best_match(validator.iter_errors(value))
    if error is None:
        return None
    place = f"at {error.json_path}: " if error.json_path != "$" else ""
    return place + _one_line(error.message)


def _draft(schema: dict[str, Any]) -> Any:  # noqa: ANN401 - the package has no types
    """Return the validator class for the draft that the schema names, or for the newest draft."""
    from jsonschema import Draft202012Validator, validators

    return cast("Any", validators).validator_for(schema, default=Draft202012Validator)


@cache
def _with_few_references(draft: Any) -> Any:  # noqa: ANN401 - the package has no types
    """Return the validator class, changed to ignore `pattern` and to follow few references.

    It raises `RecursionError` when `_LEFT` is used up.
    """
    from jsonschema import validators

    def counted(follow: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
        def followed(*given: object) -> Iterator[Any]:
            _LEFT.set(_LEFT.get() - 1)
            if _LEFT.get() < 0:
                raise RecursionError
            yield from follow(*given)

        return followed

    known = cast("dict[str, Any]", draft.VALIDATORS)
    fewer = {name: counted(known[name]) for name in _REFERENCES if name in known}
    return cast("Any", validators).extend(draft, {**fewer, "pattern": _matches_always})


def _matches_always(*_: object) -> Iterator[Any]:
    return iter(())


def _without_drafts(schema: object) -> object:
    if isinstance(schema, dict):
        known = cast("dict[str, object]", schema)
        return {
            key: _without_drafts(value)
            for key, value in known.items()
            # A property called `$schema` has a schema as its value, not a text.
            if key != "$schema" or not isinstance(value, str)
        }
    if isinstance(schema, list):
        return [_without_drafts(value) for value in cast("list[object]", schema)]
    return schema


def _has_expressions(schema: dict[str, Any]) -> bool:
    # A property called `pattern` has a schema as its value, not a text.
    return any(isinstance(one, str) for one in _values(schema, ("pattern",))) or any(
        _values(schema, ("patternProperties",))
    )


def _values(schema: object, keywords: Collection[str]) -> Iterator[object]:
    """Yield the values of these keywords anywhere in a schema, even if they are property names."""
    if isinstance(schema, dict):
        for key, value in cast("dict[str, object]", schema).items():
            if key in keywords:
                yield value
            yield from _values(value, keywords)
    elif isinstance(schema, list):
        for value in cast("list[object]", schema):
            yield from _values(value, keywords)


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
