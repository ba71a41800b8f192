"""Runs a test with each member of a corpus and names all members with which it fails.

`each` replaces `pytest.mark.parametrize` where members need no fixtures of their own: thousands of
cases cost pytest more time than what they test.
"""

import inspect
import reprlib
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any

import pytest

_SHOWN = reprlib.Repr()
_SHOWN.maxstring = _SHOWN.maxother = 100


def each(names: str | Sequence[str], corpus: Iterable[Any]) -> Callable[[Callable[..., Any]], Any]:
    """Call the test with every member of the corpus, and then fail if it failed with any."""
    keys = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    members = [dict(zip(keys, [one] if len(keys) == 1 else one, strict=True)) for one in corpus]
    assert members, "a test of an empty corpus tests nothing"

    def decorate(test: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(test)
        def call(**fixtures: Any) -> None:
            with _failures(len(members)) as failures:
                for member in members:
                    with failures(member):
                        test(**fixtures, **member)

        @wraps(test)
        async def call_async(**fixtures: Any) -> None:
            with _failures(len(members)) as failures:
                for member in members:
                    with failures(member):
                        await test(**fixtures, **member)

        looped = call_async if inspect.iscoroutinefunction(test) else call
        signature = inspect.signature(test)
        fixtures = [one for name, one in signature.parameters.items() if name not in keys]
        vars(looped)["__signature__"] = signature.replace(parameters=fixtures)
        return looped

    return decorate


@contextmanager
def _failures(total: int) -> Generator[Callable[[dict[str, Any]], Any]]:
    failed: list[Exception] = []
    named: list[str] = []

    @contextmanager
    def failures(member: dict[str, Any]) -> Generator[None]:
        try:
            yield
        except (Exception, pytest.fail.Exception) as error:
            # What pytest itself raises is no Exception, which a group may not contain.
            kept = error if isinstance(error, Exception) else AssertionError(str(error))
            named.append(", ".join(f"{key}={_SHOWN.repr(value)}" for key, value in member.items()))
            kept.add_note(f"with {named[-1]}")
            failed.append(kept.with_traceback(error.__traceback__))

    yield failures
    if failed:
        raise ExceptionGroup(f"{len(failed)} of {total} fail: {'; '.join(named)}", failed)
