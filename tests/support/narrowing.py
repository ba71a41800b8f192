"""Narrows types for the type checker and the reader."""

from typing import TypeVar

T = TypeVar("T")


def of_kind(kind: type[T], value: object) -> T:
    """Return the value, which must be an instance of `kind`."""
    assert isinstance(value, kind), value
    return value
