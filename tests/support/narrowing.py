"""Telling the type checker, and the reader, of which kind a value is."""

from typing import TypeVar

T = TypeVar("T")


def of_kind(kind: type[T], value: object) -> T:
    """This value, which must be of that kind."""
    assert isinstance(value, kind), value
    return value
