"""Retries the requests to every model, so that adapters and turns need no retries of their own.

A `RetryWait` comes before each wait. The caller must then discard the pieces of the failed attempt.
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from datetime import UTC, datetime
from math import ceil

import trio
from msgspec import Struct
from msgspec.structs import replace

from tiller_daemon.config import Retry
from tiller_daemon.models.base import (
    Finished,
    ModelClient,
    ModelError,
    ModelErrorKind,
    ModelEvent,
    ModelRequest,
)
from tiller_daemon.turn.response_limits import ResponseLimits
from tiller_protocol.events import StatusChanged

BACKOFF_S_FIRST = 1.0

REFUSED_S_FIRST = 5.0
REFUSED_S_MAX = 60.0

OUTAGE_STATUSES = frozenset({502, 504, *range(520, 528), 530})
"""What gateways answer while the server behind them is away; 52x and 530 are Cloudflare's. The
statuses 503 and 529 have the kind `overloaded`. A 500 is no outage, as it may come each time."""

DATED_S_MAX = 366 * 86_400.0
"""A longer delay is an error by the provider, and is shown without a date."""


class RetryWait(Struct, frozen=True):
    """An attempt failed and another follows. All events since the previous `RetryWait` are void."""

    attempt: int
    """The number of the next attempt, from 1."""
    limit: int | None
    """Maximum number of attempts; None during an outage, because then only the time is limited."""
    delay_s: float
    """Seconds until the next attempt."""
    kind: ModelErrorKind
    """The kind of the error."""
    cause: str
    """The error message of the failed attempt, a sentence."""


class RetriedModel(Struct, frozen=True):
    """A model whose failed requests are made again."""

    client: ModelClient
    limits: Retry
    time: Callable[[], float]
    """Returns Unix seconds."""
    random: Callable[[], float]
    """Returns numbers in [0, 1)."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent | RetryWait]:
        """Stream one response, retrying after a retryable `ModelError`.

        Yields a `RetryWait` before each wait and ends after `Finished`. Raises the last
        `ModelError` if that error is not retryable or the `limits` are reached. `request.attempt`
        grows by one with every attempt. Cancellation ends a wait at once.
        """
        attempts = _Attempts(self.limits)
        while True:
            try:
                async with aclosing(_complete_stream(self.client, request)) as events:
                    async for event in events:
                        yield event
                return
            except ModelError as error:
                failed = error
            wait = attempts.after(failed, self.time(), self.random())
            if wait is None:
                raise _with_time_to_return(failed, self.limits, attempts.waited_s, self.time())
            yield wait
            await trio.sleep(wait.delay_s)
            request = replace(request, attempt=request.attempt + 1)


def retry_status(wait: RetryWait) -> StatusChanged:
    """Return the event that tells frontends about a wait."""
    return StatusChanged(
        "retry", attempt=wait.attempt, limit=wait.limit, delay_s=wait.delay_s, cause=wait.cause
    )


class _Attempts:
    """Counts the attempts of one request, and decides whether another one follows."""

    def __init__(self, limits: Retry) -> None:
        self._limits = limits
        self._failures = 0
        self._outages = 0
        self._outage_since = 0.0
        self.waited_s = 0.0

    def after(self, failed: ModelError, now: float, jitter: float) -> RetryWait | None:
        """Return the wait after a failed attempt; None if no further attempt may follow."""
        limits = self._limits
        asked_s = failed.retry_after_s
        if is_outage(failed):
            # Limited by time, not by attempts, because a server that restarts is worth waiting for.
            self._outage_since = self._outage_since if self._outages else now
            self._outages += 1
            since_s, limit = max(0.0, now - self._outage_since), None
            if failed.kind == "refused":
                delay_s = refused_delay_s(since_s)
            else:
                delay_s = retry_delay_s(self._outages, asked_s, jitter, limits.delay_s)
            may_follow = since_s + delay_s <= limits.outage_s
        else:
            self._failures += 1
            delay_s = retry_delay_s(self._failures, asked_s, jitter, limits.delay_s)
            limit = limits.attempts + self._outages
            may_follow = self._failures < limits.attempts
        may_follow = may_follow and failed.retryable and (asked_s or 0.0) <= limits.retry_after_s
        if not may_follow or self.waited_s + delay_s > limits.total_s:
            return None
        self.waited_s += delay_s
        attempt = self._failures + self._outages + 1
        return RetryWait(attempt, limit, delay_s, failed.kind, failed.message)


def is_outage(failed: ModelError) -> bool:
    """Whether the server refuses connections, or reports that it can't serve for the moment."""
    return failed.kind in {"refused", "overloaded"} or failed.status in OUTAGE_STATUSES


def retry_delay_s(
    failures: int, retry_after_s: float | None, jitter: float, delay_s_max: float
) -> float:
    """Return the seconds to wait after failure number `failures`, from 1.

    These are the provider's `retry_after_s`, or else 1, 2, 4 … up to `delay_s_max` seconds, reduced
    by up to half by `jitter` in [0, 1).
    """
    if retry_after_s is not None:
        return max(retry_after_s, 0.0)
    ceiling_s = min(BACKOFF_S_FIRST * 2.0 ** (failures - 1), delay_s_max)
    return ceiling_s * (1.0 - jitter / 2)


def refused_delay_s(waited_s: float) -> float:
    """Return the next wait for a server that refuses connections: 5, 10, 20, 40, 60 … seconds.

    `waited_s` is the time since the first refusal.
    """
    return min(waited_s + REFUSED_S_FIRST, REFUSED_S_MAX)


def _with_time_to_return(
    failed: ModelError, limits: Retry, waited_s: float, now: float
) -> ModelError:
    """Return `failed`, with the time to try again if the provider asks for too long a delay.

    `now` is Unix seconds.
    """
    asked_s = failed.retry_after_s
    if asked_s is None or not (failed.retryable or failed.kind == "quota"):
        return failed
    if failed.retryable and asked_s <= min(limits.retry_after_s, limits.total_s - waited_s):
        return failed
    when = "much later"
    if asked_s <= DATED_S_MAX:
        date = datetime.fromtimestamp(now + asked_s, UTC)
        when = f"in {_duration(asked_s)}, after {date:%Y-%m-%d %H:%M} UTC"
    end = "" if failed.message.endswith((".", "!", "?")) else "."
    return failed.with_message(f"{failed.message}{end} Try again {when}.")


def _duration(seconds: float) -> str:
    """Return a duration for people, rounded up to whole minutes."""
    minutes = ceil(seconds / 60)
    hours, days = minutes // 60, minutes // 1440
    if days:
        return f"{days} d {hours % 24} h"
    return f"{hours} h {minutes % 60} min" if hours else f"{minutes} min"


async def _complete_stream(
    client: ModelClient, request: ModelRequest
) -> AsyncGenerator[ModelEvent]:
    """Yield the client's events. A response that is too long or lacks `Finished` is an error."""
    finished, limits = False, ResponseLimits(request.model)
    async with aclosing(client.stream(request)) as events:
        async for event in events:
            limits.count(event)
            finished = isinstance(event, Finished)
            yield event
    if not finished:
        problem = f"The response from model {request.model} ended too early."
        raise ModelError("broken_stream", problem)
