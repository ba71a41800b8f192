"""Recordings of model responses, which the scripted model can play back.

A session has one file, with one line of JSON for each attempt at each request. The line is appended
when the attempt ends, even if it failed or was cancelled. It contains only the model's response,
from which `redacted` has removed keys. A write error is logged and never fails a turn.
docs/scripted-model.md describes the format.
"""

import hashlib
import os
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any, Literal, get_args

import msgspec
import structlog
import trio
from msgspec import Struct, structs

from tiller_daemon.models.base import (
    Finished,
    ModelClient,
    ModelError,
    ModelErrorKind,
    ModelEvent,
    ModelRequest,
)
from tiller_daemon.models.decoding import DECODING_FAILS
from tiller_daemon.private import make_directory, open_private
from tiller_protocol.items import UserMessage

log = structlog.get_logger()

SUFFIX = ".jsonl"

FILE_BYTES_MAX = 256 * 1024 * 1024
"""A longer recording is neither extended nor played. A day of work takes about ten megabytes."""

_EVENT_TYPES = tuple(kind.__struct_config__.tag for kind in get_args(ModelEvent))


class RecordedFailure(Struct, frozen=True, omit_defaults=True):
    """How an attempt failed: exactly the arguments of `ModelError`."""

    kind: ModelErrorKind
    """The kind of the error."""

    message: str
    """The sentence for the user."""

    status: int | None = None
    """The HTTP status, if there was a response."""

    retry_after_s: float | None = None
    """The delay that the provider asked for, in seconds."""

    final: bool = False
    """Whether the same request would fail again."""


class Exchange(Struct, frozen=True, omit_defaults=True):
    """One attempt at a request, and its response."""

    purpose: Literal["turn", "title", "compaction"]
    """`purpose` of the request."""

    ordinal: int
    """`ordinal` of the request."""

    attempt: int
    """`attempt` of the request."""

    items: int
    """The number of items in the request's history."""

    opening: str = ""
    """A hash of the session's first input. It identifies sub-agents without revealing the input."""

    events: tuple[dict[str, Any], ...] = ()
    """The `ModelEvent`s in order."""

    failure: RecordedFailure | None = None
    """How the attempt failed after these events; None if it did not fail."""

    cancelled: bool = False
    """Whether the request was cancelled; if so, its playback hangs after the events."""


class RecordingModel:
    """A `ModelClient` that records the responses of `inner`, in one file per session."""

    def __init__(self, inner: ModelClient, directory: Path) -> None:
        self._inner = inner
        self._directory = directory

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        """Stream the response from `inner`; see `ModelClient.stream`."""
        received: list[ModelEvent] = []
        exchange = Exchange(
            request.purpose,
            request.ordinal,
            request.attempt,
            len(request.items),
            _opening_of(request),
            cancelled=True,  # until the stream has ended
        )
        try:
            async with aclosing(self._inner.stream(request)) as events:
                async for event in events:
                    received.append(event)
                    yield event
            exchange = structs.replace(exchange, cancelled=False)
        except ModelError as error:
            failure = RecordedFailure(
                error.kind, error.message, error.status, error.retry_after_s, error.final
            )
            exchange = structs.replace(exchange, cancelled=False, failure=failure)
            raise
        finally:
            # A caller may close the stream after `Finished`, which is not a cancellation.
            if received and isinstance(received[-1], Finished):
                exchange = structs.replace(exchange, cancelled=False)
            self._write(request.session_id, exchange, received)

    def _write(self, session_id: str, exchange: Exchange, received: list[ModelEvent]) -> None:
        """Append the exchange.

        Blocks the event loop, because a thread could not be awaited once the turn is cancelled.
        """
        events = msgspec.to_builtins(received)
        line = msgspec.json.encode(structs.replace(exchange, events=events))
        file = self._directory / f"{session_id}{SUFFIX}"
        try:
            make_directory(self._directory)
            descriptor = open_private(file, os.O_RDWR | os.O_CREAT | os.O_APPEND)
            with os.fdopen(descriptor, "rb+") as opened:
                size = _drop_partial_line(descriptor)
                if size < FILE_BYTES_MAX:
                    opened.write(line + b"\n")
        except OSError as error:
            log.warning("not_recorded", file=str(file), reason=error.strerror)


def forget_recording(directory: Path, session_id: str) -> None:
    """Remove the recording of a session, if there is one."""
    with suppress(OSError):
        (directory / f"{session_id}{SUFFIX}").unlink(missing_ok=True)


class Recording:
    """A recording to play back: each request gets the response that it got originally."""

    def __init__(self, exchanges: tuple[Exchange, ...], name: str) -> None:
        self._exchanges = exchanges
        self._name = name

    @property
    def opening(self) -> str:
        """The hash of the session's first input."""
        return next((one.opening for one in self._exchanges if one.purpose == "turn"), "")

    async def play(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        """Stream the recorded response to `request`. Every event is a checkpoint."""
        exchange = self._find(request)
        for table in exchange.events:
            await trio.lowlevel.checkpoint()
            yield _from_table(table, self._name)
        if failure := exchange.failure:
            raise ModelError(**structs.asdict(failure))
        if exchange.cancelled:
            await trio.sleep_forever()

    def _find(self, request: ModelRequest) -> Exchange:
        key = (request.purpose, request.ordinal, request.attempt)
        found = [e for e in self._exchanges if (e.purpose, e.ordinal, e.attempt) == key]
        if not found:
            raise ModelError(
                "bad_request",
                f"The recording {self._name} has no line with `purpose` {request.purpose}, "
                f"`ordinal` {request.ordinal} and `attempt` {request.attempt}. At this point, the "
                "session differs from the recorded one.",
            )
        # Several compactions in one turn have the same number but different histories.
        return next((e for e in found if e.items == len(request.items)), found[-1])


def load_recording(path: Path) -> Recording:
    """Read a recording. Raises a `ModelError` that names the file and the line."""
    try:
        if path.stat().st_size > FILE_BYTES_MAX:
            raise ModelError("bad_request", f"The recording {path} is too long to be played.")
        *lines, _ = path.read_bytes().split(b"\n")  # a last line without its end was cut off
    except OSError as error:
        message = f"The recording {path} can't be read: {error.strerror}."
        raise ModelError("bad_request", message) from None
    exchanges = tuple(_exchange(line, f"{path}, line {n}") for n, line in enumerate(lines, 1))
    return Recording(exchanges, path.name)


def find_recording(directory: Path, name: str, request: ModelRequest) -> Recording:
    """Return the recording for the session of `request`.

    That is the recording `name`, unless the session begins differently. A sub-agent uses its
    parent's model name but has a separate recording, which is identified by its first input.
    """
    recording = load_recording(directory / f"{name}{SUFFIX}")
    opening = _opening_of(request)
    if request.purpose == "title" or opening == recording.opening:
        return recording
    for path in sorted(directory.glob(f"*{SUFFIX}")):
        if path.stem != name and (other := load_recording(path)).opening == opening:
            return other
    return recording


def _drop_partial_line(descriptor: int) -> int:
    """Cut off a partial last line, left by a crash of the daemon; return the size of the file."""
    size = os.fstat(descriptor).st_size
    if not size or os.pread(descriptor, 1, size - 1) == b"\n":
        return size
    whole = os.pread(descriptor, size, 0).rfind(b"\n") + 1
    os.ftruncate(descriptor, whole)
    return whole


def _exchange(line: bytes, place: str) -> Exchange:
    try:
        return msgspec.json.decode(line, type=Exchange)
    except DECODING_FAILS as error:
        message = f"The recording is invalid in {place}: {error}."
        raise ModelError("bad_request", message) from None


def _opening_of(request: ModelRequest) -> str:
    inputs = (item.text for item in request.items if isinstance(item, UserMessage))
    return hashlib.blake2b(next(inputs, "").encode(), digest_size=8).hexdigest()


def _from_table(table: dict[str, Any], name: str) -> ModelEvent:
    if table.get("type") not in _EVENT_TYPES:
        message = f"The recording {name} has an unknown event {table.get('type')!r}."
        raise ModelError("bad_request", message)
    try:
        return msgspec.convert(table, ModelEvent)
    except msgspec.ValidationError as error:
        message = f"The recording {name} has an invalid event `{table['type']}`: {error}."
        raise ModelError("bad_request", message) from None
