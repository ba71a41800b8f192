"""The `scripted` model: responses read from a JSON file, for demos, tests and simulation.

The model is deterministic and stateless: a response depends only on the request's `ordinal`,
`attempt` and `purpose`. The model uses no network, and only trio's clock. docs/scripted-model.md
describes the format.
"""

import os
import re
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn

import msgspec
import trio
from msgspec import Meta, Struct, structs

from tiller_daemon.models.base import (
    Cited,
    Finished,
    HostedCall,
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
from tiller_daemon.models.decoding import DECODING_FAILS
from tiller_daemon.models.recording import SUFFIX, find_recording
from tiller_daemon.private import open_private
from tiller_protocol.events import FinishReason
from tiller_protocol.items import AssistantMessage, Citation, Item, Reasoning, ToolCall, Usage

SCRIPT_BYTES_MAX = 16 * 1024 * 1024
"""Largest script file that is read."""

SHOWN_CHARS_MAX = 2_000
"""How much of the end of the input the error for an unmet expectation quotes."""

Count = Annotated[int, Meta(ge=0)]
PieceCount = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(ge=0)]


class _Part(Struct, frozen=True, forbid_unknown_fields=True, tag_field="type"):
    """A part of a response, or a pause in it."""


class TextPart(_Part, frozen=True, tag="text"):
    """Text, streamed in `pieces` deltas of about equal length."""

    text: str
    pieces: PieceCount = 1


class ReasoningPart(_Part, frozen=True, tag="reasoning"):
    """Thinking, streamed in `pieces` deltas; `opaque` comes with the last one."""

    text: str
    pieces: PieceCount = 1
    opaque: str = ""


class CallPart(_Part, frozen=True, tag="tool_call"):
    """A tool call."""

    name: str
    """The name of the tool."""

    arguments: dict[str, Any] | None = None
    """The arguments; absent means an empty object, unless there is `arguments_text`."""

    arguments_text: str | None = None
    """The arguments as text that is sent unchanged, so it need not be valid JSON."""

    call_id: str = ""
    """The call's id; if empty, it is made from the numbers of the request and the call."""

    pieces: PieceCount = 1
    """The number of deltas in which the arguments are streamed."""

    def __post_init__(self) -> None:
        if self.arguments is not None and self.arguments_text is not None:
            raise ValueError("a tool call has `arguments` or `arguments_text`, not both")


class HostedCallPart(_Part, frozen=True, tag="hosted_call"):
    """A call that the provider runs itself."""

    name: str
    """The name of the tool."""

    arguments: dict[str, Any] = {}
    """The arguments."""

    output: str = ""
    """The result."""

    state: Literal["running", "completed", "failed"] = "completed"
    """How the call ends; `running` means that the response has no result."""

    call_id: str = ""
    """The call's id; if empty, it is made from the number of the request and the tool's name."""


class CitationPart(_Part, frozen=True, tag="citation"):
    """A source of the text before it."""

    url: str
    title: str = ""
    text: str = ""


class WaitPart(_Part, frozen=True, tag="wait"):
    """A pause of some seconds on trio's clock."""

    seconds: Seconds


class HangPart(_Part, frozen=True, tag="hang"):
    """A pause until the request is cancelled."""


Streamed = TextPart | ReasoningPart | CallPart | HostedCallPart | CitationPart
Part = Streamed | WaitPart | HangPart


class Failure(Struct, frozen=True, forbid_unknown_fields=True):
    """A `ModelError` with which an attempt ends."""

    kind: ModelErrorKind
    """The kind of the error."""

    message: str = ""
    """The sentence for the user; if empty, a default sentence is used."""

    status: int | None = None
    """The HTTP status of the error."""

    retry_after_s: Seconds | None = None
    """The delay in seconds that the error asks for."""

    after_parts: Count = 0
    """The number of parts that are streamed before the error."""


class Expectation(Struct, frozen=True, forbid_unknown_fields=True):
    """Text that the input since the model's last output must contain."""

    contains: str


class ScriptedUsage(Usage, frozen=True, forbid_unknown_fields=True):
    """Like `Usage`, but rejects misspelt fields."""


class ScriptStep(Struct, frozen=True, forbid_unknown_fields=True):
    """One response."""

    parts: tuple[Part, ...] = ()
    """The parts of the response, in order."""

    failures: tuple[Failure, ...] = ()
    """Attempt k fails with `failures[k]`; the attempt after the last failure succeeds."""

    finish: FinishReason | None = None
    """The finish reason; absent means `tool_calls` if there are calls, else `stop`."""

    usage: ScriptedUsage | None = None
    """The reported usage; absent means that none is reported."""

    expect: Expectation | None = None
    """Checked before anything is streamed. If it is not met, the request fails."""

    repeat: bool = False
    """Whether this step also answers all requests that follow. Only for the last step."""


class Script(Struct, frozen=True, forbid_unknown_fields=True):
    """A script: `steps[n]` answers request number n of the session."""

    steps: tuple[ScriptStep, ...]
    title: ScriptStep | None = None
    compaction: ScriptStep | None = None

    def __post_init__(self) -> None:
        if any(step.repeat for step in self.steps[:-1]):
            raise ValueError("only the last step can `repeat`")


class ScriptedModel:
    """A `ModelClient` that plays the script `NAME.json` in `directory` for the model NAME.

    If there is no script, it plays the recording `NAME.jsonl`. The file is read for each request,
    so that it can be edited while the daemon runs. With `record`, each request is appended to that
    file as one line of JSON before it is answered.
    """

    def __init__(self, directory: Path, record: Path | None = None) -> None:
        self._directory = directory
        self._record = record

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        """Stream the response to `request`; see `ModelClient.stream`.

        Every event is a checkpoint. Raises `ModelError("bad_request")` if an expectation is not
        met or the script has ended.
        """
        await trio.lowlevel.checkpoint()
        if self._record is not None:
            _append(self._record, request)
        script = _script_path(self._directory, request.model)
        if not script.exists() and script.with_name(f"{request.model}{SUFFIX}").exists():
            played = find_recording(self._directory, request.model, request).play(request)
        else:
            played = play_script(load_script(script), request)
        async with aclosing(played) as events:
            async for event in events:
                yield event


async def play_script(script: Script, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
    """Stream the response of `script` to `request`; see `ScriptedModel.stream`."""
    step, place = _step_for(script, request), _place_of(script, request)
    if step.expect is not None:
        _check(step.expect, request, place)
    failure = step.failures[request.attempt] if request.attempt < len(step.failures) else None
    calls = 0
    for part in step.parts[: failure.after_parts if failure else None]:
        if isinstance(part, WaitPart):
            await trio.sleep(part.seconds)
        elif isinstance(part, HangPart):
            await trio.sleep_forever()
        else:
            for event in _events_of(part, request.ordinal, calls):
                yield event
                await trio.lowlevel.checkpoint()
            calls += isinstance(part, CallPart)
    if failure:
        raise _error_of(failure, request, place)
    if step.usage is not None:
        yield UsageReported(step.usage)
    yield Finished(step.finish or ("tool_calls" if calls else "stop"))


def load_script(path: Path) -> Script:
    """Read a script. Raises a `ModelError` that names the file and the place in the file."""
    try:
        with path.open("rb") as file:
            data = file.read(SCRIPT_BYTES_MAX + 1)
    except OSError as error:
        _refuse(f"The script {path} can't be read: {error.strerror}.")
    if len(data) > SCRIPT_BYTES_MAX:
        _refuse(f"The script {path} is larger than {SCRIPT_BYTES_MAX} bytes.")
    try:
        return msgspec.json.decode(data, type=Script)
    except DECODING_FAILS as error:
        _refuse(f"The script {path} is invalid: {error}.")


def _script_path(directory: Path, name: str) -> Path:
    if not re.fullmatch(r"\w[\w.-]*", name):
        _refuse(f"{name!r} is not a valid script name: use letters, digits, '_', '-' and '.'.")
    return directory / f"{name}.json"


def _step_for(script: Script, request: ModelRequest) -> ScriptStep:
    if request.purpose == "title":
        return script.title or ScriptStep()
    if request.purpose == "compaction":
        if script.compaction is None:
            _refuse(f"The script of model {request.model} has no `compaction` step.")
        return script.compaction
    if request.ordinal < len(script.steps):
        return script.steps[request.ordinal]
    if not (script.steps and script.steps[-1].repeat):
        _refuse(
            f"The script of model {request.model} has ended: it has no `steps[{request.ordinal}]`."
            " Add this step, or set `repeat` in the last one."
        )
    return script.steps[-1]


def _place_of(script: Script, request: ModelRequest) -> str:
    """Return where the script has the step for a request, for messages to the script's author."""
    if request.purpose != "turn":
        return request.purpose
    return f"steps[{min(request.ordinal, len(script.steps) - 1)}]"


def _check(expect: Expectation, request: ModelRequest, place: str) -> None:
    actual = _newest_input(request.items)
    if expect.contains not in actual:
        _refuse(
            f"In the script of model {request.model}, `{place}.expect` requires input that"
            f" contains {expect.contains!r}, but got {actual[-SHOWN_CHARS_MAX:]!r}."
        )


def _newest_input(items: tuple[Item, ...]) -> str:
    """Return the input after the model's last output: user messages, notices and tool results."""
    texts: list[str] = []
    for item in reversed(items):
        if isinstance(item, AssistantMessage | Reasoning):
            break
        texts.append(_text_of(item))
    return "\n".join(reversed(texts))


def _text_of(item: Item) -> str:
    if isinstance(item, ToolCall):
        return item.output
    return getattr(item, "text", "") or getattr(item, "summary", "")


def _events_of(part: Streamed, ordinal: int, index: int) -> Iterator[ModelEvent]:
    match part:
        case TextPart():
            yield from map(TextDelta, _cut(part.text, part.pieces))
        case ReasoningPart():
            *pieces, last = _cut(part.text, part.pieces)
            yield from map(ReasoningDelta, pieces)
            yield ReasoningDelta(last, part.opaque)
        case CallPart():
            yield ToolCallStarted(index, part.call_id or f"call_{ordinal}_{index}", part.name)
            for piece in _cut(_arguments_of(part), part.pieces):
                yield ToolCallDelta(index, piece)
            yield ToolCallDone(index)
        case HostedCallPart():
            arguments = msgspec.json.encode(part.arguments).decode()
            call_id = part.call_id or f"hosted_{ordinal}_{part.name}"
            yield HostedCall(call_id, part.name, "running", arguments)
            if part.state != "running":
                yield HostedCall(call_id, part.name, part.state, arguments, part.output)
        case CitationPart():
            yield Cited(Citation(part.url, part.title, part.text))


def _arguments_of(part: CallPart) -> str:
    if part.arguments_text is not None:
        return part.arguments_text
    return msgspec.json.encode(part.arguments or {}).decode()


def _cut(text: str, pieces: int) -> list[str]:
    """Split `text` into at most `pieces` parts of similar length; empty text gives one part."""
    size = max(1, -(-len(text) // pieces))
    return [text[start : start + size] for start in range(0, len(text), size)] or [""]


def _error_of(failure: Failure, request: ModelRequest, place: str) -> ModelError:
    message = failure.message or (
        f"The script of model {request.model} makes this request fail (`{failure.kind}` in"
        f" `{place}.failures[{request.attempt}]`)."
    )
    return ModelError(
        failure.kind, message, status=failure.status, retry_after_s=failure.retry_after_s
    )


def _append(record: Path, request: ModelRequest) -> None:
    try:
        with open(record, "a+b", opener=open_private) as file:
            if (size := file.tell()) and os.pread(file.fileno(), 1, size - 1) != b"\n":
                file.write(b"\n")  # a daemon was killed while it wrote the last line
            file.write(msgspec.json.encode(structs.replace(request, history_cache=None)) + b"\n")
    except OSError as error:
        _refuse(f"The requests can't be recorded in {record}: {error.strerror}.")


def _refuse(message: str) -> NoReturn:
    raise ModelError("bad_request", message)
