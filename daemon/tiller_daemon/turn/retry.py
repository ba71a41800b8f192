"""The one retry layer, around every model: adapters and turns don't retry themselves.

It yields a `RetryWait` before each wait. The caller must discard the pieces of the failed attempt.
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
"""Attempts per step. With the delays below they span a minute and a half, longer than the
one-minute windows in which providers count requests and tokens."""

BACKOFF_S_FIRST = 1.0
BACKOFF_S_MAX = 30.0

RETRY_AFTER_S_MAX = 120.0
"""Longest wait that a provider can request: two of the usual one-minute windows."""

REFUSED_S_FIRST = 5.0
REFUSED_S_MAX = 60.0

REFUSED_TOTAL_S_MAX = 300.0
"""How long one step waits for a server that refuses connections: long enough for a local server to
restart and load its weights. A wrong `base_url` shows in the cause of the first wait."""


class RetryWait(Struct, frozen=True):
    """An attempt failed and another one follows. Every event since the last `RetryWait` is void."""

    attempt: int
    """The number of the next attempt, from 1. Refused connections don't count."""
    limit: int
    """Most attempts that count."""
    delay_s: float
    """Seconds until the next attempt."""
    kind: ModelErrorKind
    cause: str
    """The message of the failed attempt's error, a sentence."""


async def stream_with_retry(
    client: ModelClient,
    request: ModelRequest,
    *,
    time: Callable[[], float],
    random: Callable[[], float],
) -> AsyncGenerator[ModelEvent | RetryWait]:
    """Stream one response from `client`, retrying after a retryable `ModelError`.

    Yields a `RetryWait` before each wait and ends after `Finished`. Raises the last `ModelError` if
    that is not retryable or the attempts are used up. `time` returns seconds, `random` numbers in
    [0, 1). `request.attempt` grows by one with every attempt, refused ones included. Cancellation
    ends a wait at once.
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
            # Limited by time, not by attempts: a server that restarts is worth waiting for.
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
    """Return the seconds to wait after failure number `failures`, from 1.

    That is the provider's `retry_after_s` up to the maximum, else 1, 2, 4 … 30 seconds, reduced by
    up to half by `jitter` in [0, 1).
    """
    if retry_after_s is not None:
        return min(max(retry_after_s, 0.0), RETRY_AFTER_S_MAX)
    ceiling_s = min(BACKOFF_S_FIRST * 2.0 ** (failures - 1), BACKOFF_S_MAX)
    return ceiling_s * (1.0 - jitter / 2)


def refused_delay_s(waited_s: float) -> float:
    """Return the seconds to wait for a refusing server, after `waited_s`: 5, 10, 20, 40, 60 …."""
    return min(waited_s + REFUSED_S_FIRST, REFUSED_S_MAX)


async def _complete_stream(
    client: ModelClient, request: ModelRequest
) -> AsyncGenerator[ModelEvent]:
    """Yield the client's events; an end without `Finished` is an error."""
    finished = False
    async with aclosing(client.stream(request)) as events:
        async for event in events:
            finished = isinstance(event, Finished)
            yield event
    if not finished:
        raise ModelError("broken_stream", f"The response of model {request.model} ended too early.")
