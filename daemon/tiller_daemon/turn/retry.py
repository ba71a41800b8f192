"""The one retry layer: around every model, so that no adapter and no turn retries by itself.

Says what it waits for before it waits. What becomes of the pieces of a failed attempt is the
caller's affair: a `RetryWait` means that they are void.
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

import trio
from msgspec import Struct
from msgspec.structs import replace

from tiller_daemon.models.base import (
    Finished,
    ModelClient,
    ModelError,
    ModelErrorKind,
    ModelEvent,
    ModelRequest,
)

ATTEMPTS_MAX = 8
"""Tries of one step. With the delays below they span a minute and a half, which outlasts the
one-minute windows in which providers count requests and tokens."""

BACKOFF_S_FIRST = 1.0
BACKOFF_S_MAX = 30.0

RETRY_AFTER_S_MAX = 120.0
"""Longest wait that a provider can ask for: two of the usual one-minute windows."""

REFUSED_S_FIRST = 5.0
REFUSED_S_MAX = 60.0

REFUSED_TOTAL_S_MAX = 300.0
"""How long one step waits for a server that refuses connections. A local server that restarts and
loads its weights is back by then; a wrong `base_url` is said in the first wait's cause."""


class RetryWait(Struct, frozen=True):
    """The attempt failed; after `delay_s` seconds comes try number `attempt` of `limit`.

    Every event since the last `RetryWait` is void. `attempt` counts from 1, and a refused
    connection does not count. `cause` is the failed attempt's sentence.
    """

    attempt: int
    limit: int
    delay_s: float
    kind: ModelErrorKind
    cause: str


async def stream_with_retry(
    client: ModelClient,
    request: ModelRequest,
    *,
    time: Callable[[], float],
    random: Callable[[], float],
) -> AsyncGenerator[ModelEvent | RetryWait]:
    """Stream one response from `client`, trying again after a retryable `ModelError`.

    Yields a `RetryWait` before each sleep and ends after `Finished`; raises the last `ModelError`
    when it can't or may not try again. `time` returns seconds, `random` numbers in [0, 1).
    `request.attempt` grows by one with every try, a refused one too. Cancellation ends a wait at
    once.
    """
    failures, refused_since = 0, None
    while True:
        try:
            async with aclosing(_complete_stream(client, request)) as events:
                async for event in events:
                    yield event
            return
        except ModelError as error:
            failed = error
        if failed.kind == "refused":
            refused_since = time() if refused_since is None else refused_since
            waited_s = max(0.0, time() - refused_since)
            delay_s = refused_delay_s(waited_s)
            give_up = waited_s + delay_s > REFUSED_TOTAL_S_MAX
        else:
            failures += 1
            delay_s = retry_delay_s(failures, failed.retry_after_s, random())
            give_up = failures >= ATTEMPTS_MAX or not failed.retryable
        if give_up:
            raise failed
        yield RetryWait(failures + 1, ATTEMPTS_MAX, delay_s, failed.kind, failed.message)
        await trio.sleep(delay_s)
        request = replace(request, attempt=request.attempt + 1)


def retry_delay_s(failures: int, retry_after_s: float | None, jitter: float) -> float:
    """Seconds to wait after failure number `failures` (from 1).

    What the provider asked for, else 1, 2, 4 … 30 seconds less up to a half by `jitter` in [0, 1).
    """
    if retry_after_s is not None:
        return min(max(retry_after_s, 0.0), RETRY_AFTER_S_MAX)
    ceiling_s = min(BACKOFF_S_FIRST * 2.0 ** (failures - 1), BACKOFF_S_MAX)
    return ceiling_s * (1.0 - jitter / 2)


def refused_delay_s(waited_s: float) -> float:
    """Seconds to wait for a server that refuses, after `waited_s` in vain: 5, 10, 20, 40, 60 …."""
    return min(waited_s + REFUSED_S_FIRST, REFUSED_S_MAX)


async def _complete_stream(
    client: ModelClient, request: ModelRequest
) -> AsyncGenerator[ModelEvent]:
    """The client's stream, of which an end without `Finished` is an error."""
    finished = False
    async with aclosing(client.stream(request)) as events:
        async for event in events:
            finished = isinstance(event, Finished)
            yield event
    if not finished:
        raise ModelError("broken_stream", f"The answer of model {request.model} ended unfinished.")
