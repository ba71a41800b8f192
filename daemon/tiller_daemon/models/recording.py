"""Recordings: what models said in a session, written as it comes, and played by the scripted model.

One file for each session, a line of JSON for each try of each request, appended when it has ended,
also when it failed or was cancelled. Only what came from the model is in it: no key, as `redacted`
stands before it.
Writing is best effort: a recording never fails a turn. What stands in a line is in
docs/scripted-model.md.
"""

import hashlib
import os
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import Any, Literal

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
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    ToolCallDone,
    ToolCallStarted,
    UsageReported,
)
from tiller_daemon.private import make_directory, open_private
from tiller_protocol.items import UserMessage

log = structlog.get_logger()

SUFFIX = ".jsonl"

FILE_BYTES_MAX = 256 * 1024 * 1024
"""A longer recording is not written on, nor played; a day's work has some ten megabytes."""

EVENTS: dict[str, type[ModelEvent]] = {
    "text": TextDelta,
    "reasoning": ReasoningDelta,
    "call": ToolCallStarted,
    "arguments": ToolCallDelta,
    "call_done": ToolCallDone,
    "usage": UsageReported,
    "finish": Finished,
}
"""What an event is called in a recording."""

_NAMES = {kind: name for name, kind in EVENTS.items()}


class RecordedFailure(Struct, frozen=True, omit_defaults=True):
    """How a try failed, as in `ModelError`."""

    kind: ModelErrorKind
    message: str
    status: int | None = None
    retry_after_s: float | None = None
    final: bool = False


class Exchange(Struct, frozen=True, omit_defaults=True):
    """One try of a request, and what came: events in order, then a failure, or silence for ever.

    `items` is how long history was in it. `opening` stands for the session's first input, which is
    not told. `cancelled` says that nobody waited for the end.
    """

    purpose: Literal["turn", "title", "compaction"]
    ordinal: int
    attempt: int
    items: int
    opening: str = ""
    events: tuple[dict[str, Any], ...] = ()
    failure: RecordedFailure | None = None
    cancelled: bool = False


class RecordingModel:
    """A `ModelClient` that writes down what `inner` says, in a file of `directory` a session."""

    def __init__(self, inner: ModelClient, directory: Path) -> None:
        self._inner = inner
        self._directory = directory

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        """Stream the response of `inner`; see `ModelClient.stream`."""
        seen: list[ModelEvent] = []
        exchange = Exchange(
            request.purpose,
            request.ordinal,
            request.attempt,
            len(request.items),
            _opening_of(request),
            cancelled=True,
        )
        try:
            async with aclosing(self._inner.stream(request)) as events:
                async for event in events:
                    seen.append(event)
                    yield event
            exchange = structs.replace(exchange, cancelled=False)
        except ModelError as error:
            failure = RecordedFailure(
                error.kind, error.message, error.status, error.retry_after_s, error.final
            )
            exchange = structs.replace(exchange, cancelled=False, failure=failure)
            raise
        finally:
            if seen and isinstance(seen[-1], Finished):
                exchange = structs.replace(exchange, cancelled=False)
            self._write(request.session_id, exchange, seen)

    def _write(self, session_id: str, exchange: Exchange, seen: list[ModelEvent]) -> None:
        """Append the exchange. On the loop, as it may not be lost when the turn is cancelled."""
        events = tuple(_as_table(event) for event in seen)
        line = msgspec.json.encode(structs.replace(exchange, events=events))
        file = self._directory / f"{session_id}{SUFFIX}"
        try:
            make_directory(self._directory)
            descriptor = open_private(file, os.O_RDWR | os.O_CREAT | os.O_APPEND)
            with os.fdopen(descriptor, "rb+") as opened:
                size = _whole_lines(descriptor)
                if size < FILE_BYTES_MAX:
                    opened.write(line + b"\n")
        except OSError as error:
            log.warning("not_recorded", file=str(file), reason=error.strerror)


class Recording:
    """A recording that is played: each request gets what it got then."""

    def __init__(self, exchanges: tuple[Exchange, ...], name: str) -> None:
        self._exchanges = exchanges
        self._name = name

    @property
    def opening(self) -> str:
        """What stands for the session's first input."""
        return next((one.opening for one in self._exchanges if one.purpose == "turn"), "")

    async def play(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        """Stream what was recorded for a request like this; every event is a checkpoint."""
        exchange = self._find(request)
        for told in exchange.events:
            await trio.lowlevel.checkpoint()
            yield _from_table(told, self._name)
        if exchange.failure is not None:
            failed = exchange.failure
            raise ModelError(
                failed.kind,
                failed.message,
                status=failed.status,
                retry_after_s=failed.retry_after_s,
                final=failed.final,
            )
        if exchange.cancelled:
            await trio.sleep_forever()

    def _find(self, request: ModelRequest) -> Exchange:
        key = (request.purpose, request.ordinal, request.attempt)
        found = [e for e in self._exchanges if (e.purpose, e.ordinal, e.attempt) == key]
        if not found:
            raise ModelError(
                "bad_request",
                f"The recording {self._name} has no answer to try {request.attempt + 1} of request "
                f"number {request.ordinal + 1} ({request.purpose}): here the session went another "
                "way.",
            )
        # Several summaries of one turn have the same number; history tells them apart.
        return next((e for e in found if e.items == len(request.items)), found[-1])


def load_recording(path: Path) -> Recording:
    """Read a recording; raises `ModelError` that names the file, and the line."""
    try:
        if path.stat().st_size > FILE_BYTES_MAX:
            raise ModelError("bad_request", f"The recording {path} is too long to be played.")
        *lines, _ = path.read_bytes().split(b"\n")  # A last one without its end was cut off.
    except OSError as error:
        message = f"The recording {path} can't be read: {error.strerror}."
        raise ModelError("bad_request", message) from None
    exchanges = tuple(_exchange(line, f"{path}, line {n}") for n, line in enumerate(lines, 1))
    return Recording(exchanges, path.name)


def find_recording(directory: Path, name: str, request: ModelRequest) -> Recording:
    """The recording `name`, or for a session that begins otherwise the one of its beginning.

    A sub-agent has its parent's model, and a session and a recording of its own.
    """
    recording = load_recording(directory / f"{name}{SUFFIX}")
    opening = _opening_of(request)
    if request.purpose == "title" or opening == recording.opening:
        return recording
    for path in sorted(directory.glob(f"*{SUFFIX}")):
        if path.stem != name and (other := load_recording(path)).opening == opening:
            return other
    return recording


def _whole_lines(descriptor: int) -> int:
    """How long a file is, after what is no whole line at its end was cut off: the daemon died."""
    size = os.fstat(descriptor).st_size
    if not size or os.pread(descriptor, 1, size - 1) == b"\n":
        return size
    whole = os.pread(descriptor, size, 0).rfind(b"\n") + 1
    os.ftruncate(descriptor, whole)
    return whole


def _exchange(line: bytes, place: str) -> Exchange:
    try:
        return msgspec.json.decode(line, type=Exchange)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        message = f"The recording is wrong at {place}: {error}."
        raise ModelError("bad_request", message) from None


def _opening_of(request: ModelRequest) -> str:
    said = (item.text for item in request.items if isinstance(item, UserMessage))
    return hashlib.blake2b(next(said, "").encode(), digest_size=8).hexdigest()


def _as_table(event: ModelEvent) -> dict[str, Any]:
    fields = msgspec.to_builtins(event)
    defaults = {f.name: f.default for f in structs.fields(event)}
    kept = {name: value for name, value in fields.items() if value != defaults[name]}
    return {"type": _NAMES[type(event)], **kept}


def _from_table(told: dict[str, Any], name: str) -> ModelEvent:
    fields = {key: value for key, value in told.items() if key != "type"}
    kind = EVENTS.get(str(told.get("type")))
    if kind is None:
        raise ModelError("bad_request", f"The recording {name} has an event {told.get('type')!r}.")
    try:
        return msgspec.convert(fields, kind)
    except msgspec.ValidationError as error:
        message = f"The recording {name} has a wrong event `{told['type']}`: {error}."
        raise ModelError("bad_request", message) from None
